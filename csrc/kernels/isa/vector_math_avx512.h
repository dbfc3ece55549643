// Lanes of AVX-512 F, BW, DQ, VL: 16. Names and meanings are listed in vector_math_lanes.h.
#pragma once

// GCC 12 warns about registers that its own header leaves undefined on purpose.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif

namespace graphsink {
namespace {

constexpr int kLanes = 16;
using Lanes = __m512;

inline __mmask16 first_lanes(int count) {
    return static_cast<__mmask16>((1u << count) - 1u);
}

inline Lanes zero() {
    return _mm512_setzero_ps();
}
inline Lanes broadcast(float value) {
    return _mm512_set1_ps(value);
}

inline Lanes widened(__m256i halves) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
inline Lanes load(const float* p) {
    return _mm512_loadu_ps(p);
}
inline Lanes load(const Bf16* p) {
    return widened(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Lanes load_some(const float* p, int count) {
    return _mm512_maskz_loadu_ps(first_lanes(count), p);
}
inline Lanes load_some(const Bf16* p, int count) {
    return widened(_mm256_maskz_loadu_epi16(first_lanes(count), p));
}

// Integer arithmetic, because the conversion instruction of AVX512_BF16 flushes denormals and eager does not.
inline __m512i nearest_bf16_bits(Lanes value) {
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i lowest = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i bias = _mm512_add_epi32(lowest, _mm512_set1_epi32(0x7fff));
    const __m512i nearest = _mm512_add_epi32(bits, bias);
    const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(nearest, nan, bits, _mm512_set1_epi32(0x400000));
}
inline Lanes rounded_to_bf16(Lanes value) {
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    return _mm512_castsi512_ps(_mm512_and_si512(nearest_bf16_bits(value), upper));
}
inline __m256i narrowed(Lanes value) {
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(nearest_bf16_bits(value), 16));
}
inline void store(float* p, Lanes value) {
    _mm512_storeu_ps(p, value);
}
inline void store(Bf16* p, Lanes value) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrowed(value));
}
inline void store_some(float* p, Lanes value, int count) {
    _mm512_mask_storeu_ps(p, first_lanes(count), value);
}
inline void store_some(Bf16* p, Lanes value, int count) {
    _mm256_mask_storeu_epi16(p, first_lanes(count), narrowed(value));
}

inline Lanes add(Lanes a, Lanes b) {
    return _mm512_add_ps(a, b);
}
inline Lanes sub(Lanes a, Lanes b) {
    return _mm512_sub_ps(a, b);
}
inline Lanes mul(Lanes a, Lanes b) {
    return _mm512_mul_ps(a, b);
}
inline Lanes div(Lanes a, Lanes b) {
    return _mm512_div_ps(a, b);
}
inline Lanes fused(Lanes a, Lanes b, Lanes c) {
    return _mm512_fmadd_ps(a, b, c);
}
inline Lanes greatest(Lanes a, Lanes b) {
    return _mm512_max_ps(a, b);
}
inline Lanes below(Lanes a, Lanes b, Lanes x, Lanes y) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
inline Lanes absolute(Lanes a) {
    return _mm512_abs_ps(a);
}
inline Lanes with_sign_of(Lanes magnitude, Lanes sign) {
    const Lanes bit = _mm512_set1_ps(-0.0f);
    return _mm512_or_ps(_mm512_andnot_ps(bit, magnitude), _mm512_and_ps(bit, sign));
}
inline Lanes nearest_integer(Lanes a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// One rounding even where the result is denormal.
inline Lanes times_power_of_two(Lanes a, Lanes exponent) {
    return _mm512_scalef_ps(a, exponent);
}

inline float sum_of(Lanes a) {
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}
inline float greatest_of(Lanes a) {
    const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    const __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    const __m128 pair = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}

inline Lanes pairs_in_lane(Lanes a, Lanes b) {
    return add(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
}
inline Lanes quads_in_lane(Lanes a, Lanes b) {
    const __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
    return add(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
}
inline Lanes across_lanes(Lanes a, Lanes b) {
    return add(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}
inline Lanes sums_of_four(const Lanes* rows) {
    return quads_in_lane(pairs_in_lane(rows[0], rows[1]), pairs_in_lane(rows[2], rows[3]));
}
// A transposing tree of additions: 15 additions for 16 sums.
inline Lanes sums_of(const Lanes* rows) {
    const Lanes low = across_lanes(sums_of_four(rows), sums_of_four(rows + 4));
    const Lanes high = across_lanes(sums_of_four(rows + 8), sums_of_four(rows + 12));
    return across_lanes(low, high);
}

}  // namespace
}  // namespace graphsink
