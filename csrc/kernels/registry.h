// Prebuilt kernels: every source file in csrc/kernels/isa/ is compiled once per instruction-set level, and
// this registry picks the build for the level in use.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cpu_features.h"
#include "graphsink/kernel_abi.h"

namespace graphsink {

struct KernelEntry {
    const char* name;  // "linear_bf16", ...
    gs_kernel function;
};

struct KernelTable {
    const KernelEntry* entries;
    std::size_t count;
};

struct KernelBuild {
    std::string name;
    IsaLevel level;  // the level that this function was compiled for
    gs_kernel function;
};

// The kernels to use at `level`: of each name the build for the highest level that is not above it.
// Throws std::invalid_argument if this processor cannot run `level`.
std::vector<KernelBuild> kernels_at(IsaLevel level);

// One of them. Throws std::out_of_range for an unknown name; the message lists the names.
KernelBuild find_kernel(const std::string& name, IsaLevel level);

}  // namespace graphsink
