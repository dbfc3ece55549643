// The two products of decode attention over a few tokens: scores of one query head, and weighted values of up
// to four. Include after level.h.
#pragma once

#include "vector_math.h"

namespace graphsink {
namespace {

// softcap * tanh(score / softcap); 0 means no bound.
inline Lanes capped(Lanes score, float softcap) {
    if (softcap == 0.0f) return score;
    return mul(broadcast(softcap), tanh(div(score, broadcast(softcap))));
}

// One step of a dot product of rows of T: how many elements it takes, and the step itself.
template <typename T>
struct DotStep {
    static constexpr int kWidth = kLanes;
    using Operand = Lanes;
    static Operand read(const T* p) { return load(p); }
    static Operand read_some(const T* p, int count) { return load_some(p, count); }
    static Lanes accumulate(Lanes sum, Operand a, Operand b) { return fused(a, b, sum); }
};

#if defined(__AVX512BF16__)
// Products of pairs, added to the float32 lane of the pair.
template <>
struct DotStep<Bf16> {
    static constexpr int kWidth = 32;
    using Operand = __m512bh;
    static Operand read(const Bf16* p) { return (__m512bh)_mm512_loadu_si512(p); }
    static Operand read_some(const Bf16* p, int count) {
        const __mmask32 mask = count >= 32 ? ~0u : (1u << count) - 1u;
        return (__m512bh)_mm512_maskz_loadu_epi16(mask, p);
    }
    static Lanes accumulate(Lanes sum, Operand a, Operand b) { return _mm512_dpbf16_ps(sum, a, b); }
};
#endif

// Lane i: query . rows[i] over `size` elements.
template <typename T>
inline Lanes scores_of(const T* query, const T* const* rows, int64_t size) {
    using Step = DotStep<T>;
    Lanes sums[kLanes];
    for (int i = 0; i < kLanes; ++i) sums[i] = zero();
    int64_t d = 0;
    for (; d + Step::kWidth <= size; d += Step::kWidth) {
        const typename Step::Operand q = Step::read(query + d);
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) sums[i] = Step::accumulate(sums[i], q, Step::read(rows[i] + d));
    }
    if (d < size) {
        const int rest = static_cast<int>(size - d);
        const typename Step::Operand q = Step::read_some(query + d, rest);
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
            sums[i] = Step::accumulate(sums[i], q, Step::read_some(rows[i] + d, rest));
        }
    }
    return sums_of(sums);
}

// sums[h][...] += weights[h][token] * rows[token][...] over `tokens`, for kVectors registers from each row.
// `rest` is the number of elements if there is less than one register (kVectors is 1 then), else 0.
template <int kHeads, int kVectors, typename T>
void weigh_columns(const T* const* rows, int64_t offset, int64_t tokens, const float* weights,
                   int64_t weight_stride, float* sums, int64_t sum_stride, int rest) {
    Lanes total[kHeads][kVectors];
    for (int h = 0; h < kHeads; ++h) {
        for (int v = 0; v < kVectors; ++v) total[h][v] = load(sums + h * sum_stride + v * kLanes);
    }
    for (int64_t token = 0; token < tokens; ++token) {
        const T* row = rows[token] + offset;
        Lanes values[kVectors];
        for (int v = 0; v < kVectors; ++v)
            values[v] = rest == 0 ? load(row + v * kLanes) : load_some(row, rest);
        for (int h = 0; h < kHeads; ++h) {
            const Lanes weight = broadcast(weights[h * weight_stride + token]);
            for (int v = 0; v < kVectors; ++v) total[h][v] = fused(weight, values[v], total[h][v]);
        }
    }
    for (int h = 0; h < kHeads; ++h) {
        for (int v = 0; v < kVectors; ++v) store(sums + h * sum_stride + v * kLanes, total[h][v]);
    }
}

// Four heads by kVectors registers of sums fit beside the values.
constexpr int kRegisters = kLanes == 8 ? 2 : 4;

// The same for all columns. `sums` rows are padded to whole registers.
template <int kHeads, typename T>
void weigh_heads(const T* const* rows, int64_t size, int64_t tokens, const float* weights,
                 int64_t weight_stride, float* sums, int64_t sum_stride) {
    int64_t d = 0;
    for (; d + kRegisters * kLanes <= size; d += kRegisters * kLanes) {
        weigh_columns<kHeads, kRegisters>(rows, d, tokens, weights, weight_stride, sums + d, sum_stride, 0);
    }
    for (; d < size; d += kLanes) {
        const int rest = size - d < kLanes ? static_cast<int>(size - d) : 0;
        weigh_columns<kHeads, 1>(rows, d, tokens, weights, weight_stride, sums + d, sum_stride, rest);
    }
}

template <typename T>
void weigh(int64_t heads, const T* const* rows, int64_t size, int64_t tokens, const float* weights,
           int64_t weight_stride, float* sums, int64_t sum_stride) {
    for (int64_t h = 0; h < heads; h += 4) {
        const float* w = weights + h * weight_stride;
        float* s = sums + h * sum_stride;
        switch (smaller(heads - h, 4)) {
            case 1:
                weigh_heads<1>(rows, size, tokens, w, weight_stride, s, sum_stride);
                break;
            case 2:
                weigh_heads<2>(rows, size, tokens, w, weight_stride, s, sum_stride);
                break;
            case 3:
                weigh_heads<3>(rows, size, tokens, w, weight_stride, s, sum_stride);
                break;
            default:
                weigh_heads<4>(rows, size, tokens, w, weight_stride, s, sum_stride);
        }
    }
}

}  // namespace
}  // namespace graphsink
