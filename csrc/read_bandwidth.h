// How fast N threads read memory: the limit that decode speed is judged by.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu_features.h"

namespace graphsink {

struct ReadBandwidthRequest {
    std::vector<int> cores;         // one pinned thread per entry
    std::int64_t buffer_bytes = 0;  // whole buffer, split evenly over the threads
    int rounds = 0;                 // timed rounds; one more runs first, untimed
    IsaLevel level = IsaLevel::scalar;
};

struct ReadBandwidth {
    double best_gbps = 0;  // 1e9 bytes per second
    double median_gbps = 0;
    std::int64_t bytes_per_round = 0;
    bool huge_pages_requested = false;
};

// Reads the buffer once per round with all threads and times each round from the first start to the
// last end. Throws std::invalid_argument for a request that makes no sense (no core, no round, less
// than 2 MiB per thread, a level that does not run here), std::bad_alloc if the buffer cannot be had,
// std::system_error if a thread cannot be created or pinned.
ReadBandwidth measure_read_bandwidth(const ReadBandwidthRequest& request);

}  // namespace graphsink
