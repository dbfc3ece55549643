// Calls one kernel outside of any graph: for tests of kernels and for measurements.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graphsink/kernel_abi.h"
#include "registry.h"

namespace graphsink {

// Runs all blocks one after another on the calling thread. Returns the error code, 0 if there is none.
std::uint32_t call_kernel(const KernelBuild& kernel, const std::vector<gs_slot>& slots,
                          std::uint32_t block_dim, std::uint64_t scratch_bytes);

// Runs the kernel `rounds` times with one pinned thread per core, blocks dealt out in turn, and a barrier
// between rounds. Returns seconds per round. Throws std::runtime_error if the kernel reports an error.
std::vector<double> time_kernel(const KernelBuild& kernel, const std::vector<gs_slot>& slots,
                                std::uint32_t block_dim, std::uint64_t scratch_bytes,
                                const std::vector<int>& cores, int rounds);

}  // namespace graphsink
