// What this processor and operating system can run: instruction sets, names, caches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace graphsink {

// Levels that kernels are built for. x86 levels are ordered by value; neon is the only level above
// scalar on aarch64, so a comparison is meaningful only between levels of one architecture.
enum class IsaLevel : int {
    scalar = 0,
    avx2 = 1,         // AVX2 + FMA + F16C
    avx512 = 2,       // AVX-512 F, BW, DQ, VL (on top of avx2)
    avx512_bf16 = 3,  // + AVX512_BF16
    amx = 4,          // + AMX-TILE, AMX-BF16, and the kernel's permission to use tile data
    neon = 10,
};

const char* isa_level_name(IsaLevel level);

// Throws std::invalid_argument for a name that is not a level.
IsaLevel isa_level_from_name(const std::string& name);

struct CpuFeatures {
    std::string architecture;  // "x86_64" or "aarch64"
    std::string vendor;        // "GenuineIntel", "AuthenticAMD", "ARM 0x41", ...
    std::string brand;         // marketing name; never empty
    // Usable extensions: reported by the processor AND enabled by the operating system.
    std::vector<std::string> features;
    IsaLevel level = IsaLevel::scalar;
};

// Detected on the first call; later calls return the same object. The first call asks the kernel for
// permission to use AMX tiles, because only the answer tells whether tiles may be used.
const CpuFeatures& cpu_features();

// True if code built for `level` can run here.
bool isa_level_runs_here(IsaLevel level);

struct CacheSizes {
    std::int64_t l1d_bytes = 0;  // one core's; 0 where unknown
    std::int64_t l2_bytes = 0;   // of the instance that the first core uses
    std::int64_t l3_bytes = 0;
    // The last level there is, summed over the distinct instances behind `cores`: what a buffer must
    // exceed before reading it measures memory.
    std::int64_t last_level_total_bytes = 0;
};

// Cache sizes behind `cores` (operating-system ids), from `sysfs_cpu` (the directory with cpu0, cpu1,
// ...), or from cpuid where sysfs says nothing, as in some sandboxes.
CacheSizes cache_sizes(const std::vector<int>& cores, const std::string& sysfs_cpu);

}  // namespace graphsink
