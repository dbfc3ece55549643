// Inner loops with tile registers (AMX): a weight tile is 16 lines, an x tile 16 rows by 32 inputs.
//
// The tile instruction adds the 32 products of a step in an order of its own, so this level uses it for every
// number of rows: a row then has the same bits in every batch.
#pragma once

#include <immintrin.h>

#include "linear_store.h"
#include "linear_tile.h"

namespace graphsink {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileLines = 16;
constexpr int64_t kTileInputs = 32;
constexpr int64_t kTileBytes = kTileLines * kLineBytes;

struct alignas(64) TileConfiguration {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// The intrinsics do not tell the compiler that they read memory.
inline void order_memory() {
    __asm__ volatile("" ::: "memory");
}

// Asks for kLines lines of a tile: into the first-level cache if it is the whole tile, which is read soon.
template <int kLines>
inline void prefetch_tile(const char* tile) {
    __asm__ volatile("" : "+r"(tile));  // one address register, not one per line
#pragma GCC unroll 16
    for (int line = 0; line < kLines; ++line) {
        _mm_prefetch(tile + line * kLineBytes, kLines == kTileLines ? _MM_HINT_T0 : _MM_HINT_T1);
    }
}

// Up to 16 rows, up to four panels. Registers: 0-3 sums, 4 x, 5-7 weights.
template <int kPanels, int kPrefetchLines>
struct OneTileRow {
    static void run(const TileCall& call);
};

template <int kPanels, int kPrefetchLines>
void OneTileRow<kPanels, kPrefetchLines>::run(const TileCall& call) {
    order_memory();
    const int64_t sum_stride = kPanels * kLineBytes;
    char* sums = reinterpret_cast<char*>(call.sums);
    if (call.first) {
        _tile_zero(0);
        if constexpr (kPanels > 1) _tile_zero(1);
        if constexpr (kPanels > 2) _tile_zero(2);
        if constexpr (kPanels > 3) _tile_zero(3);
    } else {
        _tile_loadd(0, sums, sum_stride);
        if constexpr (kPanels > 1) _tile_loadd(1, sums + kLineBytes, sum_stride);
        if constexpr (kPanels > 2) _tile_loadd(2, sums + 2 * kLineBytes, sum_stride);
        if constexpr (kPanels > 3) _tile_loadd(3, sums + 3 * kLineBytes, sum_stride);
    }
    const char* x = call.x.data;
    const char* weights = call.weights;
    const char* ahead = weights + call.prefetch;
    const int64_t panel_bytes = call.panel_bytes;
    for (int64_t line = 0; line < call.lines; line += kTileLines) {
        _tile_loadd(4, x, call.x.row_bytes);
        for (int p = 0; p < kPanels; ++p) prefetch_tile<kPrefetchLines>(ahead + p * panel_bytes);
        _tile_loadd(5, weights, kLineBytes);
        _tile_dpbf16ps(0, 4, 5);
        if constexpr (kPanels > 1) {
            _tile_loadd(6, weights + panel_bytes, kLineBytes);
            _tile_dpbf16ps(1, 4, 6);
        }
        if constexpr (kPanels > 2) {
            _tile_loadd(7, weights + 2 * panel_bytes, kLineBytes);
            _tile_dpbf16ps(2, 4, 7);
        }
        if constexpr (kPanels > 3) {
            _tile_loadd(5, weights + 3 * panel_bytes, kLineBytes);
            _tile_dpbf16ps(3, 4, 5);
        }
        weights += kTileBytes;
        ahead += kPrefetchLines * kLineBytes;
        x += call.x.step_bytes;
    }
    _tile_stored(0, sums, sum_stride);
    if constexpr (kPanels > 1) _tile_stored(1, sums + kLineBytes, sum_stride);
    if constexpr (kPanels > 2) _tile_stored(2, sums + 2 * kLineBytes, sum_stride);
    if constexpr (kPanels > 3) _tile_stored(3, sums + 3 * kLineBytes, sum_stride);
    order_memory();
}

// 17 to 32 rows, one or two panels. Registers: 0-1 sums of rows 0-15, 2-3 of rows 16-31, 4-5 x, 6-7 weights.
// x is read again for every group of panels and should stay in the first-level cache; weights and sums pass
// by it (stream_loadd), because together they are more than that cache holds.
template <int kPanels, int kPrefetchLines>
struct TwoTileRows {
    static void run(const TileCall& call);
};

template <int kPanels, int kPrefetchLines>
void TwoTileRows<kPanels, kPrefetchLines>::run(const TileCall& call) {
    order_memory();
    const int64_t sum_stride = kPanels * kLineBytes;
    char* upper = reinterpret_cast<char*>(call.sums);
    char* lower = upper + kTileRows * sum_stride;
    if (call.first) {
        _tile_zero(0);
        _tile_zero(2);
        if constexpr (kPanels > 1) _tile_zero(1);
        if constexpr (kPanels > 1) _tile_zero(3);
    } else {
        _tile_stream_loadd(0, upper, sum_stride);
        _tile_stream_loadd(2, lower, sum_stride);
        if constexpr (kPanels > 1) _tile_stream_loadd(1, upper + kLineBytes, sum_stride);
        if constexpr (kPanels > 1) _tile_stream_loadd(3, lower + kLineBytes, sum_stride);
    }
    const char* x = call.x.data;
    const char* weights = call.weights;
    const char* ahead = weights + call.prefetch;
    const int64_t panel_bytes = call.panel_bytes;
    for (int64_t line = 0; line < call.lines; line += kTileLines) {
        _tile_stream_loadd(6, weights, kLineBytes);
        _tile_loadd(4, x, call.x.row_bytes);
        for (int p = 0; p < kPanels; ++p) prefetch_tile<kPrefetchLines>(ahead + p * panel_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, x + call.x.tile_bytes, call.x.row_bytes);
        _tile_dpbf16ps(2, 5, 6);
        if constexpr (kPanels > 1) {
            _tile_stream_loadd(7, weights + panel_bytes, kLineBytes);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(3, 5, 7);
        }
        weights += kTileBytes;
        ahead += kPrefetchLines * kLineBytes;
        x += call.x.step_bytes;
    }
    _tile_stored(0, upper, sum_stride);
    _tile_stored(2, lower, sum_stride);
    if constexpr (kPanels > 1) _tile_stored(1, upper + kLineBytes, sum_stride);
    if constexpr (kPanels > 1) _tile_stored(3, lower + kLineBytes, sum_stride);
    order_memory();
}

// Asking costs load slots, so the lines are counted out at compile time.
template <template <int, int> class Tile, int kPanels>
void with_prefetch(const TileCall& call) {
    if (call.prefetch_lines == 0) return Tile<kPanels, 0>::run(call);
    if (call.prefetch_lines == 1) return Tile<kPanels, 1>::run(call);
    if (call.prefetch_lines == 2) return Tile<kPanels, 2>::run(call);
    if (call.prefetch_lines <= 4) return Tile<kPanels, 4>::run(call);
    if (call.prefetch_lines <= 8) return Tile<kPanels, 8>::run(call);
    return Tile<kPanels, 16>::run(call);
}

// How the driver uses tile registers.
struct AmxTiles {
    static constexpr int64_t kMaxRows = 2 * kTileRows;
    static constexpr int64_t kMaxPanels = 4;
    static constexpr int64_t kRowUnit = 2 * kTileRows;
    static constexpr int64_t kRowRound = kTileRows;
    static constexpr int64_t kStepLines = kTileLines;
    static constexpr int64_t kRunLines = 256;
    static constexpr int64_t kPreparedBytes = kMaxRows * kRunLines * 4;
    static constexpr int64_t kMaxBlockRows = 256;

    static int64_t panels_for(int64_t rows) { return rows <= kTileRows ? 4 : 2; }

    // A few rows are read where they are. Many are copied first, because rows that lie a power of two apart
    // compete for the same cache lines.
    static bool prepares(bool few_rows, bool whole_steps) { return !few_rows || !whole_steps; }

    static Operand direct(const char* x, int64_t row_bytes, int64_t first) {
        return {x + first * 2, row_bytes, kLineBytes, kTileRows * row_bytes};
    }

    // Whole tiles one after another; rows and inputs that do not exist are zero.
    static Operand prepare(const char* x, int64_t row_bytes, int64_t rows, int64_t first, int64_t count,
                           char* buffer) {
        const int64_t steps = ceil_div(count, kTileInputs);
        const int64_t whole_steps = count / kTileInputs;
        for (int64_t row = 0; row < ceil_div(rows, kTileRows) * kTileRows; ++row) {
            const char* from = x + row * row_bytes + first * 2;
            char* to = buffer + row / kTileRows * steps * kTileBytes + row % kTileRows * kLineBytes;
            const int64_t whole = row < rows ? whole_steps : 0;
            for (int64_t step = 0; step < whole; ++step) {
                _mm512_storeu_si512(to + step * kTileBytes, _mm512_loadu_si512(from + step * kLineBytes));
            }
            const int64_t rest = row < rows ? count % kTileInputs : 0;
            for (int64_t step = whole; step < steps; ++step) {
                const auto some = static_cast<__mmask32>((uint64_t{1} << (step == whole ? rest : 0)) - 1);
                _mm512_storeu_si512(to + step * kTileBytes,
                                    _mm512_maskz_loadu_epi16(some, from + step * kLineBytes));
            }
        }
        return {buffer, kLineBytes, kTileBytes, steps * kTileBytes};
    }

    static TileFunction tile(int64_t rows, int64_t panels) {
        static constexpr TileFunction kOne[4] = {with_prefetch<OneTileRow, 1>, with_prefetch<OneTileRow, 2>,
                                                 with_prefetch<OneTileRow, 3>, with_prefetch<OneTileRow, 4>};
        static constexpr TileFunction kTwo[2] = {with_prefetch<TwoTileRows, 1>,
                                                 with_prefetch<TwoTileRows, 2>};
        return rows <= kTileRows ? kOne[panels - 1] : kTwo[panels - 1];
    }

    // Registers for `rows` rows that are read in place, or for whole tiles if there are more.
    static void begin(int64_t rows) {
        TileConfiguration configuration;
        if (rows <= kTileRows) {
            for (const int x_or_sum : {0, 1, 2, 3, 4})
                configuration.rows[x_or_sum] = static_cast<uint8_t>(rows);
        } else if (rows < kMaxRows) {
            for (const int second : {2, 3, 5})
                configuration.rows[second] = static_cast<uint8_t>(rows - kTileRows);
        }
        __asm__ volatile("" ::"m"(configuration) : "memory");
        _tile_loadconfig(&configuration);
    }

    static void end() { _tile_release(); }
};

}  // namespace
}  // namespace graphsink
