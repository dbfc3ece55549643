// Inner loops with vectors: rows x panels of sums stay in registers for a whole run of lines.
//
// Each output has one chain of additions, in the order of the inputs, whatever the number of rows, panels or
// runs: so a row has the same bits in every batch.
#pragma once

#include <immintrin.h>

#include "linear_store.h"
#include "linear_tile.h"

namespace graphsink {
namespace {

// A `Lanes` type says how one line of weights is multiplied by inputs:
//   Vector           sums of kVectorBytes / 4 outputs
//   kPhases          inputs of a line that are multiplied one after another
//   weights(p, ph)   the weights at p for phase ph; broadcast(x, ph) the input for it, in all lanes
//   add(x, w, sum)   sum + x * w

#if defined(__AVX512F__)

struct F32Lanes {
    using Vector = __m512;
    using Input = float;
    static constexpr int kPhases = 1;
    static Vector zero() { return _mm512_setzero_ps(); }
    static Vector load(const float* p) { return _mm512_loadu_ps(p); }
    static void store(float* p, Vector v) { _mm512_storeu_ps(p, v); }
    static Vector weights(const char* p, int) { return _mm512_loadu_ps(p); }
    static Vector broadcast(const char* x, int phase) {
        return _mm512_set1_ps(reinterpret_cast<const float*>(x)[phase]);
    }
    static Vector add(Vector x, Vector w, Vector sum) { return _mm512_fmadd_ps(x, w, sum); }
};

// bfloat16 weights, x already converted to float32: the even inputs of all pairs, shifted up, then the odd
// ones.
struct WidenedBf16Lanes : F32Lanes {
    static constexpr int kPhases = 2;
    static Vector weights(const char* p, int phase) {
        const __m512i pairs = _mm512_loadu_si512(p);
        const __m512i odd = _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u)));
        return _mm512_castsi512_ps(phase == 0 ? _mm512_maskz_slli_epi32(0xffff, pairs, 16) : odd);
    }
};

#elif defined(__AVX2__)

struct F32Lanes {
    using Vector = __m256;
    using Input = float;
    static constexpr int kPhases = 1;
    static Vector zero() { return _mm256_setzero_ps(); }
    static Vector load(const float* p) { return _mm256_loadu_ps(p); }
    static void store(float* p, Vector v) { _mm256_storeu_ps(p, v); }
    static Vector weights(const char* p, int) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
    static Vector broadcast(const char* x, int phase) {
        return _mm256_broadcast_ss(reinterpret_cast<const float*>(x) + phase);
    }
    static Vector add(Vector x, Vector w, Vector sum) { return _mm256_fmadd_ps(x, w, sum); }
};

struct WidenedBf16Lanes : F32Lanes {
    static constexpr int kPhases = 2;
    static Vector weights(const char* p, int phase) {
        const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
        const __m256i odd = _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u)));
        return _mm256_castsi256_ps(phase == 0 ? _mm256_slli_epi32(pairs, 16) : odd);
    }
};

#endif

#if defined(__AVX512BF16__)

// A pair of inputs in one instruction. It treats denormal numbers as zero.
struct PairedBf16Lanes : F32Lanes {
    using Input = uint16_t;
    static constexpr int kPhases = 1;
    static Vector broadcast(const char* x, int) {
        int pair;
        __builtin_memcpy(&pair, x, sizeof pair);
        return _mm512_castsi512_ps(_mm512_set1_epi32(pair));
    }
    static Vector add(Vector x, Vector w, Vector sum) {
        return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_castps_si512(x), (__m512bh)_mm512_castps_si512(w));
    }
};

#endif

template <class Lanes, int kRows, int kPanels>
void vector_tile(const TileCall& call) {
    using Vector = typename Lanes::Vector;
    constexpr int kPerPanel = static_cast<int>(kLineBytes / sizeof(Vector));
    constexpr int kVectors = kPanels * kPerPanel;
    constexpr int kFloats = sizeof(Vector) / 4;
    Vector sums[kRows][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
            sums[r][v] = call.first ? Lanes::zero() : Lanes::load(call.sums + (r * kVectors + v) * kFloats);
        }
    }
    const char* x = call.x.data;
    const char* weights = call.weights;
    const int64_t row_bytes = call.x.row_bytes, panel_bytes = call.panel_bytes;
    // A part of a line at a time: asking for the same line again costs less than a branch.
    const char* ahead = weights + call.prefetch;
    const int64_t ahead_bytes = call.prefetch_lines * kLineBytes / 16;
    for (int64_t line = 0; line < call.lines; ++line) {
#pragma GCC unroll 8
        for (int p = 0; p < kPanels; ++p) _mm_prefetch(ahead + p * panel_bytes, _MM_HINT_T0);
#pragma GCC unroll 2
        for (int phase = 0; phase < Lanes::kPhases; ++phase) {
            Vector w[kVectors];
#pragma GCC unroll 8
            for (int v = 0; v < kVectors; ++v) {
                w[v] = Lanes::weights(
                    weights + v / kPerPanel * panel_bytes + v % kPerPanel * static_cast<int>(sizeof(Vector)),
                    phase);
            }
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) {
                const Vector input = Lanes::broadcast(x + r * row_bytes, phase);
#pragma GCC unroll 8
                for (int v = 0; v < kVectors; ++v) sums[r][v] = Lanes::add(input, w[v], sums[r][v]);
            }
        }
        weights += kLineBytes;
        ahead += ahead_bytes;
        x += call.x.step_bytes;
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) Lanes::store(call.sums + (r * kVectors + v) * kFloats, sums[r][v]);
    }
}

// How the driver uses vector tiles. Sixteen registers hold fewer sums than thirty-two.
template <class Format, class Lanes>
struct VectorTiles {
    static constexpr bool kWide = sizeof(typename Lanes::Vector) == 64;
    static constexpr bool kConverts = sizeof(typename Lanes::Input) != sizeof(typename Format::Element);
    static constexpr int64_t kMaxRows = kWide ? 8 : 6;
    static constexpr int64_t kMaxPanels = 4;
    static constexpr int64_t kRowUnit = 1;   // x rows per unit of the split over blocks
    static constexpr int64_t kRowRound = 1;  // sums are kept for a multiple of so many rows
    static constexpr int64_t kStepLines = 1;
    static constexpr int64_t kRunLines = 256;
    static constexpr int64_t kMaxBlockRows = 128;
    static constexpr int64_t kPreparedBytes = kMaxRows * kRunLines * Format::kInputsPerLine * 4;

    static int64_t panels_for(int64_t rows) {
        if (kWide) return rows <= 6 ? 4 : 3;
        return rows == 1 ? 4 : rows == 2 ? 3 : rows == 3 ? 2 : 1;
    }

    static bool prepares(bool, bool whole_steps) { return kConverts || !whole_steps; }

    // Copies inputs [first, first + count) of `rows` rows into `buffer`, in the form that the loops read,
    // followed by zeros up to a whole line.
    static Operand prepare(const char* x, int64_t row_bytes, int64_t rows, int64_t first, int64_t count,
                           char* buffer) {
        using Element = typename Format::Element;
        using Input = typename Lanes::Input;
        const int64_t padded = ceil_div(count, Format::kInputsPerLine) * Format::kInputsPerLine;
        const int64_t buffer_row_bytes = padded * static_cast<int64_t>(sizeof(Input));
        for (int64_t row = 0; row < rows; ++row) {
            const auto* from = reinterpret_cast<const Element*>(x + row * row_bytes) + first;
            auto* to = reinterpret_cast<Input*>(buffer + row * buffer_row_bytes);
            for (int64_t i = 0; i < count; ++i) {
                if constexpr (kConverts) {
                    to[i] = widen(from[i]);
                } else {
                    to[i] = from[i];
                }
            }
            for (int64_t i = count; i < padded; ++i) to[i] = 0;
        }
        return {buffer, buffer_row_bytes, Format::kInputsPerLine * static_cast<int64_t>(sizeof(Input)), 0};
    }

    static Operand direct(const char* x, int64_t row_bytes, int64_t first) {
        return {x + first * static_cast<int64_t>(sizeof(typename Format::Element)), row_bytes,
                kLineBytes / kPanelOutputs, 0};
    }

    static TileFunction tile(int64_t rows, int64_t panels);
    static void begin(int64_t) {}
    static void end() {}
};

// No entry where the sums would not fit the registers; panels_for never asks for those.
template <class Lanes, int kRows, int kPanels>
constexpr TileFunction vector_tile_entry() {
    constexpr int kRegisters =
        kRows * kPanels * static_cast<int>(kLineBytes / sizeof(typename Lanes::Vector));
    if constexpr (kRegisters <= (sizeof(typename Lanes::Vector) == 64 ? 24 : 12)) {
        return vector_tile<Lanes, kRows, kPanels>;
    } else {
        return nullptr;
    }
}

#define GS_TILE_ROW(rows)                                                      \
    {vector_tile_entry<Lanes, rows, 1>(), vector_tile_entry<Lanes, rows, 2>(), \
     vector_tile_entry<Lanes, rows, 3>(), vector_tile_entry<Lanes, rows, 4>()}

template <class Format, class Lanes>
TileFunction VectorTiles<Format, Lanes>::tile(int64_t rows, int64_t panels) {
    static constexpr TileFunction kTiles[8][4] = {GS_TILE_ROW(1), GS_TILE_ROW(2), GS_TILE_ROW(3),
                                                  GS_TILE_ROW(4), GS_TILE_ROW(5), GS_TILE_ROW(6),
                                                  GS_TILE_ROW(7), GS_TILE_ROW(8)};
    return kTiles[rows - 1][panels - 1];
}

#undef GS_TILE_ROW

}  // namespace
}  // namespace graphsink
