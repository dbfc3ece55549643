// How many dot-product operations per second a core can do: independent chains of multiply-add that live in
// registers. dot_peak_f32 uses float32 multiply-add, dot_peak_bf16 the level's bfloat16 instruction where it
// has one.
//
//     dot_peak  [iterations, flops]
//
// flops is the address of double[block_dim]: each block stores how many
// floating-point operations it did (a multiply-add counts as two).
#include "level.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace graphsink {
namespace {

// Hides a value from the optimiser, which would otherwise compute the chains at compile time.
#define GS_OPAQUE(value) __asm__ volatile("" : "+x"(value))

void report(const gs_args* args, uint32_t block, double flops) {
    static_cast<double*>(args->slots[1].address)[block] = flops;
}

#if defined(__AVX2__)

#if defined(__AVX512F__)
using Vector = __m512;
constexpr int kLanes = 16;
Vector splat(float value) {
    return _mm512_set1_ps(value);
}
Vector multiply_add(Vector a, Vector b, Vector c) {
    return _mm512_fmadd_ps(a, b, c);
}
#else
using Vector = __m256;
constexpr int kLanes = 8;
Vector splat(float value) {
    return _mm256_set1_ps(value);
}
Vector multiply_add(Vector a, Vector b, Vector c) {
    return _mm256_fmadd_ps(a, b, c);
}
#endif

// Two units of latency 4 to 5 need ten chains; twelve fit sixteen registers.
constexpr int kChains = 12;

void dot_peak_f32(const gs_args* args, uint32_t block, uint32_t) {
    Vector chains[kChains], half = splat(0.5f), step = splat(0.25f);
    GS_OPAQUE(half);
    GS_OPAQUE(step);
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) chains[c] = splat(1.0f);
    const int64_t iterations = args->slots[0].i64;
    for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
        for (int c = 0; c < kChains; ++c) {
            chains[c] = multiply_add(chains[c], half, step);
            GS_OPAQUE(chains[c]);
        }
    }
    report(args, block, 2.0 * kLanes * kChains * static_cast<double>(iterations));
}

#else

constexpr int kLanes = 32;

void dot_peak_f32(const gs_args* args, uint32_t block, uint32_t) {
    float chains[kLanes], half = 0.5f, step = 0.25f;
    GS_OPAQUE(half);
    GS_OPAQUE(step);
    for (float& chain : chains) chain = 1.0f;
    const int64_t iterations = args->slots[0].i64;
    for (int64_t i = 0; i < iterations; ++i) {
        for (float& chain : chains) chain = chain * half + step;
    }
    for (float& chain : chains) GS_OPAQUE(chain);
    report(args, block, 2.0 * kLanes * static_cast<double>(iterations));
}

#endif

#if defined(__AMX_BF16__)

struct alignas(64) TileConfiguration {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

void dot_peak_bf16(const gs_args* args, uint32_t block, uint32_t) {
    const TileConfiguration configuration;
    alignas(64) uint16_t ones[16 * 32];
    for (uint16_t& one : ones) one = 0x3f80;
    __asm__ volatile("" ::"m"(configuration), "m"(ones) : "memory");
    _tile_loadconfig(&configuration);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, ones, 64);
    _tile_loadd(5, ones, 64);
    const int64_t iterations = args->slots[0].i64;
    for (int64_t i = 0; i < iterations; ++i) {
        _tile_dpbf16ps(0, 4, 5);
        _tile_dpbf16ps(1, 4, 5);
        _tile_dpbf16ps(2, 4, 5);
        _tile_dpbf16ps(3, 4, 5);
    }
    _tile_release();
    report(args, block, 2.0 * 16 * 16 * 32 * 4 * static_cast<double>(iterations));
}

#elif defined(__AVX512BF16__)

void dot_peak_bf16(const gs_args* args, uint32_t block, uint32_t) {
    __m512 chains[kChains];
    // Plus one and minus one: the sums stay at zero.
    __m512i left = _mm512_set1_epi32(0x3f803f80), right = _mm512_set1_epi32(0x3f80bf80);
    GS_OPAQUE(left);
    GS_OPAQUE(right);
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) chains[c] = _mm512_setzero_ps();
    const int64_t iterations = args->slots[0].i64;
    for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
        for (int c = 0; c < kChains; ++c) {
            chains[c] = _mm512_dpbf16_ps(chains[c], (__m512bh)left, (__m512bh)right);
            GS_OPAQUE(chains[c]);
        }
    }
    report(args, block, 4.0 * 16 * kChains * static_cast<double>(iterations));
}

#else

// No bfloat16 instruction: products of bfloat16 numbers are made by float32 multiply-add.
constexpr gs_kernel dot_peak_bf16 = dot_peak_f32;

#endif

constexpr KernelEntry kEntries[] = {
    {"dot_peak_f32", dot_peak_f32},
    {"dot_peak_bf16", dot_peak_bf16},
};

}  // namespace

extern const KernelTable GS_TABLE(dot_peak);
const KernelTable GS_TABLE(dot_peak){kEntries, sizeof kEntries / sizeof kEntries[0]};

}  // namespace graphsink
