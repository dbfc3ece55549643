#include "allowed_cores.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>

namespace graphsink {

namespace {

struct CpuSetDeleter {
    void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

// The kernel's mask may be larger than cpu_set_t (1024 cores); it answers EINVAL until the buffer fits.
std::vector<int> affinity_of_process() {
    for (int capacity = 1024; capacity <= (1 << 20); capacity *= 2) {
        const std::unique_ptr<cpu_set_t, CpuSetDeleter> set(CPU_ALLOC(static_cast<std::size_t>(capacity)));
        if (!set) throw std::bad_alloc();
        const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(capacity));
        CPU_ZERO_S(bytes, set.get());
        if (sched_getaffinity(0, bytes, set.get()) == 0) {
            std::vector<int> cores;
            for (int core = 0; core < capacity; ++core) {
                if (CPU_ISSET_S(static_cast<std::size_t>(core), bytes, set.get())) cores.push_back(core);
            }
            return cores;
        }
        if (errno != EINVAL) break;
    }
    throw std::system_error(errno, std::generic_category(), "sched_getaffinity");
}

}  // namespace

AllowedCores allowed_cores(const std::string& proc_self) {
    AllowedCores allowed;
    allowed.affinity = affinity_of_process();
    allowed.quota = tightest_cpu_quota(proc_self);
    auto usable = static_cast<std::int64_t>(allowed.affinity.size());
    if (allowed.quota) usable = std::min(usable, allowed.quota->quota_us / allowed.quota->period_us);
    allowed.usable = static_cast<int>(std::max<std::int64_t>(1, usable));
    return allowed;
}

}  // namespace graphsink
