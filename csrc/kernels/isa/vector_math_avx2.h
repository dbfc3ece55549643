// Lanes of AVX2 with FMA: 8. Names and meanings are listed in vector_math_lanes.h.
#pragma once

#include <immintrin.h>

namespace graphsink {
namespace {

constexpr int kLanes = 8;
using Lanes = __m256;

inline __m256i first_lanes(int count) {
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), index);
}

inline Lanes zero() {
    return _mm256_setzero_ps();
}
inline Lanes broadcast(float value) {
    return _mm256_set1_ps(value);
}

inline Lanes widened(__m128i halves) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
inline Lanes load(const float* p) {
    return _mm256_loadu_ps(p);
}
inline Lanes load(const Bf16* p) {
    return widened(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Lanes load_some(const float* p, int count) {
    return _mm256_maskload_ps(p, first_lanes(count));
}
// AVX2 has no masked loads of 16 bits.
inline Lanes load_some(const Bf16* p, int count) {
    Bf16 copy[kLanes] = {};
    memcpy(copy, p, static_cast<unsigned>(count) * sizeof(Bf16));
    return load(copy);
}

inline __m256i nearest_bf16_bits(Lanes value) {
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i lowest = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(lowest, _mm256_set1_epi32(0x7fff));
    const __m256i nearest = _mm256_add_epi32(bits, bias);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(nearest, quiet, nan);
}
inline Lanes rounded_to_bf16(Lanes value) {
    const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    return _mm256_castsi256_ps(_mm256_and_si256(nearest_bf16_bits(value), upper));
}
inline __m128i narrowed(Lanes value) {
    const __m256i upper = _mm256_srli_epi32(nearest_bf16_bits(value), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
}
inline void store(float* p, Lanes value) {
    _mm256_storeu_ps(p, value);
}
inline void store(Bf16* p, Lanes value) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrowed(value));
}
inline void store_some(float* p, Lanes value, int count) {
    _mm256_maskstore_ps(p, first_lanes(count), value);
}
inline void store_some(Bf16* p, Lanes value, int count) {
    Bf16 copy[kLanes];
    store(copy, value);
    memcpy(p, copy, static_cast<unsigned>(count) * sizeof(Bf16));
}

inline Lanes add(Lanes a, Lanes b) {
    return _mm256_add_ps(a, b);
}
inline Lanes sub(Lanes a, Lanes b) {
    return _mm256_sub_ps(a, b);
}
inline Lanes mul(Lanes a, Lanes b) {
    return _mm256_mul_ps(a, b);
}
inline Lanes div(Lanes a, Lanes b) {
    return _mm256_div_ps(a, b);
}
inline Lanes fused(Lanes a, Lanes b, Lanes c) {
    return _mm256_fmadd_ps(a, b, c);
}
inline Lanes greatest(Lanes a, Lanes b) {
    return _mm256_max_ps(a, b);
}
inline Lanes below(Lanes a, Lanes b, Lanes x, Lanes y) {
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
inline Lanes absolute(Lanes a) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
inline Lanes with_sign_of(Lanes magnitude, Lanes sign) {
    const Lanes bit = _mm256_set1_ps(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(bit, magnitude), _mm256_and_ps(bit, sign));
}
inline Lanes nearest_integer(Lanes a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline Lanes power_of_two(__m256i exponent) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(exponent, _mm256_set1_epi32(127)), 23));
}
// In two factors: one alone would leave the range of exponents. |exponent| <= 252. The first product is
// exact, so there is one rounding even where the result is denormal.
inline Lanes times_power_of_two(Lanes a, Lanes exponent) {
    const __m256i whole = _mm256_cvtps_epi32(exponent);
    const __m256i half = _mm256_srai_epi32(whole, 1);
    return mul(mul(a, power_of_two(half)), power_of_two(_mm256_sub_epi32(whole, half)));
}

inline __m128 folded(Lanes a, __m128 (*join)(__m128, __m128)) {
    const __m128 quarter = join(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 pair = join(quarter, _mm_movehl_ps(quarter, quarter));
    return join(pair, _mm_shuffle_ps(pair, pair, 1));
}
inline float sum_of(Lanes a) {
    return _mm_cvtss_f32(folded(a, [](__m128 x, __m128 y) { return _mm_add_ps(x, y); }));
}
inline float greatest_of(Lanes a) {
    return _mm_cvtss_f32(folded(a, [](__m128 x, __m128 y) { return _mm_max_ps(x, y); }));
}

inline Lanes pairs_in_lane(Lanes a, Lanes b) {
    return add(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
}
inline Lanes sums_of_four(const Lanes* rows) {
    const __m256d x = _mm256_castps_pd(pairs_in_lane(rows[0], rows[1]));
    const __m256d y = _mm256_castps_pd(pairs_in_lane(rows[2], rows[3]));
    return add(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)), _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
}
// A transposing tree of additions: 7 additions for 8 sums.
inline Lanes sums_of(const Lanes* rows) {
    const Lanes low = sums_of_four(rows), high = sums_of_four(rows + 4);
    return add(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
}

}  // namespace
}  // namespace graphsink
