// The cores this process may really use.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cgroup.h"

namespace graphsink {

struct AllowedCores {
    std::vector<int> affinity;      // operating-system core ids, ascending; never empty
    std::optional<CpuQuota> quota;  // tightest cgroup quota, if there is one
    // Threads worth starting: the affinity list, capped by the whole cores in the quota (at least 1).
    // The quota is rounded down: workers wait for each other at barriers, so with 2 workers on 1.5
    // cores both stand still for a quarter of every period, while one worker is never throttled.
    int usable = 1;
};

// `proc_self`: see cgroup.h. Throws std::system_error if the kernel does not give the affinity.
AllowedCores allowed_cores(const std::string& proc_self);

}  // namespace graphsink
