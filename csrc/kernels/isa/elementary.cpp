// Kernels that need no arithmetic of their own: for tests of the runtime, and to measure its cost.
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

constexpr KernelEntry kEntries[] = {
    {"empty", empty},
    {"count_block", count_block},
    {"add_to", add_to},
    {"fail", fail},
};

}  // namespace

extern const KernelTable GS_TABLE(elementary);
const KernelTable GS_TABLE(elementary){kEntries, sizeof kEntries / sizeof kEntries[0]};

}  // namespace graphsink
