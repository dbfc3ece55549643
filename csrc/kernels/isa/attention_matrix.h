// Small matrix products for prefill attention: C[rows, 16 n] (+)= A[rows, depth] B[depth, 16 n].
//
// A is dense, B is packed in panels of 16 columns, C is float32. `Matrix<T>` says what A and B hold for
// tensors of T: float32, or bfloat16 where the level multiplies pairs of them; then a panel is [depth /
// 2][16][2] instead of [depth][16]. Each element of C is summed over the depth in one order, whatever the
// other rows and columns are. Include after level.h.
#pragma once

#include "attention_tiles.h"

namespace graphsink {
namespace {

constexpr int64_t kPanel = 16;    // columns of a panel
constexpr int64_t kRowStep = 16;  // rows of A and C are padded to this

#if defined(__AVX512F__)
// 16 rows of 16 32-bit elements -> 16 columns, each stored at out + 16 * column.
inline void store_transposed(const __m512i* rows, int32_t* out) {
    __m512i a[16], b[16];
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    // b[4 j + c]: column c of each quarter, of rows 4 j .. 4 j + 3.
    for (int i = 0; i < 16; i += 4) {
        b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    for (int c = 0; c < 4; ++c) {
        const __m512i low02 = _mm512_shuffle_i32x4(b[c], b[4 + c], 0x88);
        const __m512i low13 = _mm512_shuffle_i32x4(b[c], b[4 + c], 0xdd);
        const __m512i high02 = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0x88);
        const __m512i high13 = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0xdd);
        _mm512_storeu_si512(out + 16 * c, _mm512_shuffle_i32x4(low02, high02, 0x88));
        _mm512_storeu_si512(out + 16 * (4 + c), _mm512_shuffle_i32x4(low13, high13, 0x88));
        _mm512_storeu_si512(out + 16 * (8 + c), _mm512_shuffle_i32x4(low02, high02, 0xdd));
        _mm512_storeu_si512(out + 16 * (12 + c), _mm512_shuffle_i32x4(low13, high13, 0xdd));
    }
}
#endif

// Float32 operands, for tensors of any T.
template <typename T>
struct Matrix {
    using Element = float;
    static constexpr int64_t kDepthStep = 1;  // the depth of A and B is padded to this
    static constexpr int kTogether = 1;       // elements of the depth that one step multiplies
    using Operand = Lanes;
    static Operand repeat(const float* a) { return broadcast(*a); }
    static Operand read(const float* b) { return load(b); }
    static Lanes accumulate(Lanes sum, Operand a, Operand b) { return fused(a, b, sum); }

    static void copy_row(const T* from, float* to, int64_t count) {
        for (int64_t i = 0; i < count; i += kLanes) {
            const int n = static_cast<int>(smaller(kLanes, count - i));
            store_some(to + i, load_some(from + i, n), n);
        }
    }
    // Weights of a row, rounded to what A holds.
    static Lanes store_weights(float* to, Lanes weights) {
        store(to, weights);
        return weights;
    }
    // One panel whose columns are 16 rows of memory.
    static void pack_columns(const T* const* rows, int64_t depth, float* panel) {
#if defined(__AVX512F__)
        for (int64_t d = 0; d < depth; d += 16) {
            __m512i lines[16];
            const int n = static_cast<int>(smaller(16, depth - d));
            for (int i = 0; i < 16; ++i) lines[i] = _mm512_castps_si512(load_some(rows[i] + d, n));
            alignas(64) int32_t columns[256];
            store_transposed(lines, columns);
            memcpy(panel + d * kPanel, columns, static_cast<uint64_t>(n) * kPanel * sizeof(float));
        }
#else
        for (int64_t d = 0; d < depth; ++d) {
            for (int64_t i = 0; i < kPanel; ++i) panel[d * kPanel + i] = to_float(rows[i][d]);
        }
#endif
    }
    // Panels whose rows are rows of memory, `count` of them. The last panel is padded with zeros.
    static void pack_rows(const T* const* rows, int64_t count, int64_t columns, float* panels) {
        for (int64_t c = 0; c < columns; c += kPanel, panels += count * kPanel) {
            for (int64_t r = 0; r < count; ++r) {
                for (int64_t i = 0; i < kPanel; i += kLanes) {
                    const int n = static_cast<int>(smaller(kLanes, columns - c - i));
                    store(panels + r * kPanel + i, n > 0 ? load_some(rows[r] + c + i, n) : zero());
                }
            }
        }
    }
};

#if defined(__AVX512BF16__)
// Pairs of bfloat16 along the depth, added to float32.
template <>
struct Matrix<Bf16> {
    using Element = Bf16;
    static constexpr int64_t kDepthStep = 32;
    static constexpr int kTogether = 2;
    using Operand = __m512bh;
    static Operand repeat(const Bf16* a) {
        int32_t pair;
        memcpy(&pair, a, sizeof pair);
        return (__m512bh)_mm512_set1_epi32(pair);
    }
    static Operand read(const Bf16* b) { return (__m512bh)_mm512_loadu_si512(b); }
    static Lanes accumulate(Lanes sum, Operand a, Operand b) { return _mm512_dpbf16_ps(sum, a, b); }

    static void copy_row(const Bf16* from, Bf16* to, int64_t count) {
        memcpy(to, from, static_cast<uint64_t>(count) * sizeof(Bf16));
    }
    static Lanes store_weights(Bf16* to, Lanes weights) {
        const __m256i halves = (__m256i)_mm512_cvtneps_pbh(weights);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), halves);
        return widened(halves);
    }
    static void pack_columns(const Bf16* const* rows, int64_t depth, Bf16* panel) {
        for (int64_t d = 0; d < depth; d += 32) {
            __m512i lines[16];
            const int n = static_cast<int>(smaller(32, depth - d));
            for (int i = 0; i < 16; ++i) lines[i] = (__m512i)DotStep<Bf16>::read_some(rows[i] + d, n);
            store_transposed(lines, reinterpret_cast<int32_t*>(panel + d * kPanel));
        }
    }
    // `count` is even.
    static void pack_rows(const Bf16* const* rows, int64_t count, int64_t columns, Bf16* panels) {
        for (int64_t c = 0; c < columns; c += kPanel, panels += count * kPanel) {
            const __mmask16 mask = first_lanes(static_cast<int>(smaller(kPanel, columns - c)));
            for (int64_t r = 0; r < count; r += 2) {
                const __m512i even = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, rows[r] + c));
                const __m512i odd = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, rows[r + 1] + c));
                _mm512_storeu_si512(panels + r * kPanel, _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
            }
        }
    }
};
#endif

// kRows rows by kPanels panels of C.
template <typename T, int kRows, int kPanels>
void multiply_block(const typename Matrix<T>::Element* a, int64_t depth, const typename Matrix<T>::Element* b,
                    float* c, int64_t c_stride, bool accumulate) {
    using M = Matrix<T>;
    constexpr int kVectors = kPanels * static_cast<int>(kPanel) / kLanes;
    constexpr int kPerPanel = static_cast<int>(kPanel) / kLanes;
    Lanes sums[kRows][kVectors];
    for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < kVectors; ++v)
            sums[r][v] = accumulate ? load(c + r * c_stride + v * kLanes) : zero();
    }
    for (int64_t d = 0; d < depth; d += M::kTogether) {
        typename M::Operand right[kVectors];
        for (int v = 0; v < kVectors; ++v) {
            const int64_t panel = v / kPerPanel, within = v % kPerPanel;
            right[v] = M::read(b + panel * depth * kPanel + d * kPanel + within * kLanes * M::kTogether);
        }
        for (int r = 0; r < kRows; ++r) {
            const typename M::Operand left = M::repeat(a + r * depth + d);
            for (int v = 0; v < kVectors; ++v) sums[r][v] = M::accumulate(sums[r][v], left, right[v]);
        }
    }
    for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < kVectors; ++v) store(c + r * c_stride + v * kLanes, sums[r][v]);
    }
}

// rows is a multiple of kRowStep, depth of kDepthStep; c_stride is 16 * panels.
template <typename T>
void multiply_in_registers(const typename Matrix<T>::Element* a, int64_t rows, int64_t depth,
                           const typename Matrix<T>::Element* b, int64_t panels, float* c, bool accumulate) {
    constexpr int kPanels = kLanes == 16 ? 4 : 1;
    const int64_t stride = panels * kPanel;
    for (int64_t r = 0; r < rows; r += 4) {
        const typename Matrix<T>::Element* left = a + r * depth;
        float* out = c + r * stride;
        int64_t p = 0;
        for (; p + kPanels <= panels; p += kPanels) {
            multiply_block<T, 4, kPanels>(left, depth, b + p * depth * kPanel, out + p * kPanel, stride,
                                          accumulate);
        }
        for (; p < panels; ++p) {
            multiply_block<T, 4, 1>(left, depth, b + p * depth * kPanel, out + p * kPanel, stride,
                                    accumulate);
        }
    }
}

// Holds the tile unit for the duration of a kernel where the level has one.
template <typename T>
struct TileUnit {};

template <typename T>
void multiply(const typename Matrix<T>::Element* a, int64_t rows, int64_t depth,
              const typename Matrix<T>::Element* b, int64_t panels, float* c, bool accumulate) {
    multiply_in_registers<T>(a, rows, depth, b, panels, c, accumulate);
}

#if defined(__AMX_BF16__)

struct alignas(64) TileShapes {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// All eight tiles are 16 rows of 64 bytes.
template <>
struct TileUnit<Bf16> {
    TileUnit() {
        const TileShapes shapes;
        _tile_loadconfig(&shapes);
    }
    ~TileUnit() { _tile_release(); }
    TileUnit(const TileUnit&) = delete;
    TileUnit& operator=(const TileUnit&) = delete;
};

// One tile of A's rows by two panels. Tiles 0 and 1 are C, 2 is A, 3 and 4 are B.
inline void multiply_tiles(const Bf16* a, int64_t depth, const Bf16* b, float* c, int64_t c_stride,
                           bool accumulate, bool two) {
    const int64_t c_bytes = c_stride * static_cast<int64_t>(sizeof(float));
    const int64_t a_bytes = depth * static_cast<int64_t>(sizeof(Bf16));
    _tile_zero(0);
    _tile_zero(1);
    if (accumulate) _tile_loadd(0, c, c_bytes);
    if (accumulate && two) _tile_loadd(1, c + kPanel, c_bytes);
    for (int64_t d = 0; d < depth; d += 32) {
        _tile_loadd(2, a + d, a_bytes);
        _tile_loadd(3, b + d * kPanel, 64);
        _tile_dpbf16ps(0, 2, 3);
        if (!two) continue;
        _tile_loadd(4, b + (depth + d) * kPanel, 64);
        _tile_dpbf16ps(1, 2, 4);
    }
    _tile_stored(0, c, c_bytes);
    if (two) _tile_stored(1, c + kPanel, c_bytes);
}

// Two tiles of rows by two panels: each loaded tile is used twice. Tiles 0 to 3 are C, 4 and 5 A, 6 and 7 B.
inline void multiply_four_tiles(const Bf16* a, int64_t depth, const Bf16* b, float* c, int64_t c_stride,
                                bool accumulate) {
    const int64_t c_bytes = c_stride * static_cast<int64_t>(sizeof(float));
    const int64_t a_bytes = depth * static_cast<int64_t>(sizeof(Bf16));
    float* lower = c + 16 * c_stride;
    if (accumulate) {
        _tile_loadd(0, c, c_bytes);
        _tile_loadd(1, c + kPanel, c_bytes);
        _tile_loadd(2, lower, c_bytes);
        _tile_loadd(3, lower + kPanel, c_bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t d = 0; d < depth; d += 32) {
        _tile_loadd(4, a + d, a_bytes);
        _tile_loadd(6, b + d * kPanel, 64);
        _tile_loadd(7, b + (depth + d) * kPanel, 64);
        _tile_loadd(5, a + 16 * depth + d, a_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, c_bytes);
    _tile_stored(1, c + kPanel, c_bytes);
    _tile_stored(2, lower, c_bytes);
    _tile_stored(3, lower + kPanel, c_bytes);
}

template <>
inline void multiply<Bf16>(const Bf16* a, int64_t rows, int64_t depth, const Bf16* b, int64_t panels,
                           float* c, bool accumulate) {
    const int64_t stride = panels * kPanel;
    for (int64_t r = 0; r < rows;) {
        const bool two_rows = r + 32 <= rows;
        for (int64_t p = 0; p < panels; p += 2) {
            const Bf16* right = b + p * depth * kPanel;
            float* out = c + r * stride + p * kPanel;
            if (two_rows && p + 2 <= panels) {
                multiply_four_tiles(a + r * depth, depth, right, out, stride, accumulate);
                continue;
            }
            multiply_tiles(a + r * depth, depth, right, out, stride, accumulate, p + 2 <= panels);
            if (two_rows) {
                multiply_tiles(a + (r + 16) * depth, depth, right, out + 16 * stride, stride, accumulate,
                               false);
            }
        }
        r += two_rows ? 32 : 16;
    }
}

#endif

}  // namespace
}  // namespace graphsink
