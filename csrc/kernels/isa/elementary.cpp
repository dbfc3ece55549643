// Kernels that need no arithmetic of their own: for tests of the runtime, and to measure its cost.
#include <time.h>

#include "level.h"

namespace graphsink {
namespace {

// No arguments. Does nothing.
void empty(const gs_args*, uint32_t, uint32_t) {}

// [address of int64[block_dim]]: adds 1 to the element of this block.
void count_block(const gs_args* args, uint32_t block, uint32_t) {
    static_cast<int64_t*>(args->slots[0].address)[block] += 1;
}

// [address of int64, value]: block 0 adds the value.
void add_to(const gs_args* args, uint32_t block, uint32_t) {
    if (block == 0) *static_cast<int64_t*>(args->slots[0].address) += args->slots[1].i64;
}

// [code]: reports it as a fault.
void fail(const gs_args* args, uint32_t, uint32_t) {
    *args->error = static_cast<uint32_t>(args->slots[0].u64);
}

// [address of uint64 destination[length], a[length], b[length], constant, length]: destination[i] =
// 31 a[i] + 17 b[length - 1 - i] + constant. Reads what other blocks of earlier tasks have written.
void combine(const gs_args* args, uint32_t block, uint32_t block_dim) {
    auto* destination = static_cast<uint64_t*>(args->slots[0].address);
    const auto* a = static_cast<const uint64_t*>(args->slots[1].address);
    const auto* b = static_cast<const uint64_t*>(args->slots[2].address);
    const uint64_t constant = args->slots[3].u64, length = args->slots[4].u64;
    const uint64_t begin = length * block / block_dim, end = length * (block + 1) / block_dim;
    for (uint64_t i = begin; i < end; ++i) destination[i] = 31 * a[i] + 17 * b[length - 1 - i] + constant;
}

// [core, nanoseconds]: keeps that core of the device busy; others return at once.
void delay(const gs_args* args, uint32_t, uint32_t) {
    if (args->core != args->slots[0].u64) return;
    timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - start.tv_sec) * 1000000000 + (now.tv_nsec - start.tv_nsec) < args->slots[1].i64);
}

// [core]: reports the number of the block as a fault if it runs on that core.
void fail_on_core(const gs_args* args, uint32_t block, uint32_t) {
    if (args->core == args->slots[0].u64) *args->error = GS_ERROR_USER + block;
}

// [address of int64[block_dim], nanoseconds]: every block raises its flag and waits for those of all others;
// so it ends only if all blocks run at the same time. Reports GS_ERROR_USER when the time is over.
void meet(const gs_args* args, uint32_t block, uint32_t block_dim) {
    auto* flags = static_cast<int64_t*>(args->slots[0].address);
    timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    __atomic_store_n(&flags[block], 1, __ATOMIC_SEQ_CST);
    for (uint32_t other = 0; other < block_dim; ++other) {
        while (__atomic_load_n(&flags[other], __ATOMIC_SEQ_CST) == 0) {
            clock_gettime(CLOCK_MONOTONIC, &now);
            if ((now.tv_sec - start.tv_sec) * 1000000000 + (now.tv_nsec - start.tv_nsec) < args->slots[1].i64)
                continue;
            *args->error = GS_ERROR_USER;
            return;
        }
    }
}

// [address of int64[count], own index, count, nanoseconds]: the same for tasks of one block each.
void meet_tasks(const gs_args* args, uint32_t, uint32_t) {
    const gs_slot slots[] = {args->slots[0], args->slots[3]};
    const gs_args own = {slots, args->scratch, args->scratch_bytes, args->error, 2, args->core};
    meet(&own, static_cast<uint32_t>(args->slots[1].u64), static_cast<uint32_t>(args->slots[2].u64));
}

constexpr KernelEntry kEntries[] = {
    {"empty", empty},
    {"count_block", count_block},
    {"add_to", add_to},
    {"combine", combine},
    {"delay", delay},
    {"fail", fail},
    {"meet", meet},
    {"meet_tasks", meet_tasks},
    {"fail_on_core", fail_on_core},
};

}  // namespace

extern const KernelTable GS_TABLE(elementary);
const KernelTable GS_TABLE(elementary){kEntries, sizeof kEntries / sizeof kEntries[0]};

}  // namespace graphsink
