// The end of every linear kernel: float32 sums plus bias, rounded once, stored.
#pragma once

#include <stdint.h>
#include <string.h>

#include "linear_problem.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace graphsink {
namespace {

inline float widen(float value) {
    return value;
}

inline float widen(uint16_t bits) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

// The result of one panel from sums and bias. Rounds to nearest, ties to even; NaN becomes the quiet NaN that
// PyTorch stores.
inline void round_panel(const float* sums, const float* bias, float* result) {
    for (int64_t i = 0; i < kPanelOutputs; ++i) result[i] = sums[i] + bias[i];
}

#if defined(__AVX512F__)

inline void round_panel(const float* sums, const float* bias, uint16_t* result) {
    const __m512 value = _mm512_add_ps(_mm512_loadu_ps(sums), _mm512_loadu_ps(bias));
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i odd = _mm512_and_epi32(_mm512_maskz_srli_epi32(0xffff, bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    const __m512i chosen = _mm512_mask_mov_epi32(up, nan, _mm512_set1_epi32(0x7fc00000));
    const __m512i upper = _mm512_maskz_srli_epi32(0xffff, chosen, 16);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(result), _mm512_maskz_cvtepi32_epi16(0xffff, upper));
}

#elif defined(__AVX2__)

// Eight values in the low halves of eight 32-bit lanes.
inline __m256i rounded_bits(const float* sums, const float* bias) {
    const __m256 value = _mm256_add_ps(_mm256_loadu_ps(sums), _mm256_loadu_ps(bias));
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(up, _mm256_set1_epi32(0x7fc00000), nan), 16);
}

inline void round_panel(const float* sums, const float* bias, uint16_t* result) {
    // Packing works within 128-bit halves; the permutation puts the quarters in order.
    const __m256i packed = _mm256_packus_epi32(rounded_bits(sums, bias), rounded_bits(sums + 8, bias + 8));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(result), _mm256_permute4x64_epi64(packed, 0xd8));
}

#else

inline void round_panel(const float* sums, const float* bias, uint16_t* result) {
    for (int64_t i = 0; i < kPanelOutputs; ++i) {
        const float value = sums[i] + bias[i];
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
        result[i] = static_cast<uint16_t>(value != value ? 0x7fc0u : rounded);
    }
}

#endif

// The bias of one panel in float32. Without a bias -0.0, because x + -0.0 is x for every x.
template <class Element>
void load_bias(const LinearProblem& problem, int64_t panel, float* bias) {
    for (int64_t i = 0; i < kPanelOutputs; ++i) {
        const int64_t output = panel * kPanelOutputs + i;
        const bool there = problem.bias != nullptr && output < problem.outputs;
        bias[i] = there ? widen(reinterpret_cast<const Element*>(problem.bias)[output]) : -0.0f;
    }
}

// Row `row`, panel `panel` of the result. Outputs beyond N are not stored.
template <class Element>
void store_panel(const LinearProblem& problem, int64_t row, int64_t panel, const float* sums,
                 const float* bias) {
    const int64_t output = panel * kPanelOutputs;
    auto* y = reinterpret_cast<Element*>(problem.y + row * problem.y_row_bytes) + output;
    const int64_t left = problem.outputs - output;
    if (left >= kPanelOutputs) {
        round_panel(sums, bias, y);
    } else {
        Element result[kPanelOutputs];
        round_panel(sums, bias, result);
        memcpy(y, result, static_cast<size_t>(left) * sizeof(Element));
    }
}

}  // namespace
}  // namespace graphsink
