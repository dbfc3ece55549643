// One register of float32 lanes, as wide as the level allows, and the conversions to and from bfloat16.
//
// Kernels that are written with `Lanes` are compiled unchanged at every level; at the scalar level a register
// has one lane. The files included here define, with the same names:
//   kLanes                            lanes of a register
//   zero, broadcast                   constants
//   load, load_some, store, store_some  float or Bf16 memory, unaligned; `_some` touches only `count`
//   elements
//                                     (0 < count <= kLanes) and fills missing lanes with 0
//   add, sub, mul, div, fused (a*b+c: one rounding where the level has it), square_root
//   greatest(a, b)                    b where either is NaN
//   below(a, b, x, y)                 x where a < b, else y
//   absolute, with_sign_of, nearest_integer (ties to even), times_power_of_two
//   sum_of, greatest_of               over the lanes, in one fixed order
//   sums_of(rows)                     lane i is the sum of rows[i]: kLanes sums at once
//   rounded<T>                        rounds the lanes to T and back, as eager does between two operations
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "vector_math_slots.h"

namespace graphsink {
namespace {

// bfloat16: the upper half of a float32.
struct Bf16 {
    uint16_t bits;
};

inline float to_float(float value) {
    return value;
}
inline float to_float(Bf16 value) {
    const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

template <typename T>
inline T from_float(float value);
template <>
inline float from_float<float>(float value) {
    return value;
}
// Round to nearest even; a NaN stays one.
template <>
inline Bf16 from_float<Bf16>(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value) return {static_cast<uint16_t>(bits >> 16 | 0x40u)};
    return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

}  // namespace
}  // namespace graphsink

#if defined(__AVX512F__)
#include "vector_math_avx512.h"
#elif defined(__AVX2__)
#include "vector_math_avx2.h"
#else
#include "vector_math_scalar.h"
#endif

namespace graphsink {
namespace {

template <typename T>
inline Lanes rounded(Lanes value);
template <>
inline Lanes rounded<float>(Lanes value) {
    return value;
}
template <>
inline Lanes rounded<Bf16>(Lanes value) {
    return rounded_to_bf16(value);
}

}  // namespace
}  // namespace graphsink
