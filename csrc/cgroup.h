// CPU and memory limits of the control groups this process is in (cgroup v1 and v2).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace graphsink {

struct CpuQuota {
    std::int64_t quota_us = 0;   // CPU time allowed per period
    std::int64_t period_us = 0;  // > 0
    std::string directory;       // the group that sets it
};

struct MemoryLimit {
    std::int64_t limit_bytes = 0;
    std::int64_t used_bytes = 0;  // charged to the group, without file cache the kernel can drop
    std::string directory;
};

// Both walk from the process's own group up to the root of each mounted hierarchy and return the
// tightest limit, since any ancestor can throttle. `proc_self` is the directory that holds `cgroup`
// and `mountinfo` ("/proc/self"; tests point it at a fake). Empty when nothing limits the process.
std::optional<CpuQuota> tightest_cpu_quota(const std::string& proc_self);
std::optional<MemoryLimit> tightest_memory_limit(const std::string& proc_self);

}  // namespace graphsink
