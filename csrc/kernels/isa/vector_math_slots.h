// What every prebuilt kernel starts with: reading its slots, checking sizes, taking its share of the work.
// Include after level.h.
#pragma once

#include <stdint.h>

#include "graphsink/kernel_abi.h"

namespace graphsink {
namespace {

template <typename T>
inline T* address(const gs_args* args, int slot) {
    return static_cast<T*>(args->slots[slot].address);
}
inline int64_t integer(const gs_args* args, int slot) {
    return args->slots[slot].i64;
}
inline float number(const gs_args* args, int slot) {
    return static_cast<float>(args->slots[slot].f64);
}

// The first code wins.
inline void report(const gs_args* args, uint32_t code) {
    if (*args->error == GS_ERROR_NONE) *args->error = code;
}

inline int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}
inline int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}
inline int64_t round_up(int64_t value, int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

// Items begin..end-1 of a task belong to one block.
struct Share {
    int64_t begin;
    int64_t end;
};

// Splits `count` items evenly in pieces of `grain`; the split moves results between cores, never a result.
inline Share share_of(int64_t count, int64_t grain, uint32_t block, uint32_t block_dim) {
    const int64_t pieces = (count + grain - 1) / grain;
    const int64_t quotient = pieces / block_dim, rest = pieces % block_dim;
    const int64_t first = block * quotient + smaller(block, rest);
    const int64_t last = first + quotient + (block < rest ? 1 : 0);
    return {smaller(first * grain, count), smaller(last * grain, count)};
}

}  // namespace
}  // namespace graphsink
