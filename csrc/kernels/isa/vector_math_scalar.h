// One lane of plain C++: the reference, and what runs where no vector level does. Names and meanings are
// listed in vector_math_lanes.h.
#pragma once

namespace graphsink {
namespace {

constexpr int kLanes = 1;
using Lanes = float;

inline Lanes zero() {
    return 0.0f;
}
inline Lanes broadcast(float value) {
    return value;
}
template <typename T>
inline Lanes load(const T* p) {
    return to_float(*p);
}
template <typename T>
inline Lanes load_some(const T* p, int) {
    return to_float(*p);
}
template <typename T>
inline void store(T* p, Lanes value) {
    *p = from_float<T>(value);
}
template <typename T>
inline void store_some(T* p, Lanes value, int) {
    *p = from_float<T>(value);
}
inline Lanes rounded_to_bf16(Lanes value) {
    return to_float(from_float<Bf16>(value));
}

inline Lanes add(Lanes a, Lanes b) {
    return a + b;
}
inline Lanes sub(Lanes a, Lanes b) {
    return a - b;
}
inline Lanes mul(Lanes a, Lanes b) {
    return a * b;
}
inline Lanes div(Lanes a, Lanes b) {
    return a / b;
}
inline Lanes fused(Lanes a, Lanes b, Lanes c) {
    return a * b + c;
}
inline Lanes greatest(Lanes a, Lanes b) {
    return a > b ? a : b;
}
inline Lanes below(Lanes a, Lanes b, Lanes x, Lanes y) {
    return a < b ? x : y;
}
inline float sum_of(Lanes a) {
    return a;
}
inline float greatest_of(Lanes a) {
    return a;
}
inline Lanes sums_of(const Lanes* rows) {
    return rows[0];
}

}  // namespace
}  // namespace graphsink
