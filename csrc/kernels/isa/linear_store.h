// The end of every linear kernel: float32 sums plus bias, rounded once, stored.
#pragma once

#include <stdint.h>
#include <string.h>

#include "linear_problem.h"

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

inline void narrow(float value, float& out) {
    out = value;
}

// To nearest, ties to even; NaN becomes the quiet NaN that PyTorch stores.
inline void narrow(float value, uint16_t& out) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    out = static_cast<uint16_t>(value != value ? 0x7fc0u : rounded);
}

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
    Element result[kPanelOutputs];
    for (int64_t i = 0; i < kPanelOutputs; ++i) narrow(sums[i] + bias[i], result[i]);
    const int64_t count = left < kPanelOutputs ? left : kPanelOutputs;
    if (count == kPanelOutputs) {
        memcpy(y, result, sizeof result);
    } else {
        memcpy(y, result, static_cast<size_t>(count) * sizeof(Element));
    }
}

}  // namespace
}  // namespace graphsink
