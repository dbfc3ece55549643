// Memory of a device: large mappings on 2 MiB pages, cut into 64-byte aligned pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "huge_buffer.h"

namespace graphsink {

struct ArenaStatistics {
    std::uint64_t mapped_bytes;     // taken from the system
    std::uint64_t used_bytes;       // handed out now
    std::uint64_t peak_used_bytes;  // most that was handed out at one time
    std::uint64_t allocations;      // handed out now
    bool huge_pages;                // whether the system accepted 2 MiB pages for all mappings
};

class Arena {
  public:
    // `bytes` is rounded up to 64. New memory is zero; memory that was freed before is not. Throws
    // std::bad_alloc if the system gives no more, std::invalid_argument for 0 bytes.
    std::uintptr_t allocate(std::uint64_t bytes);
    // Throws std::invalid_argument for an address that is not allocated (a second free, for example).
    void free(std::uintptr_t address);
    // Fills everything that is not handed out with `byte`, so that a stale reader is noticed.
    void poison(int byte);
    ArenaStatistics statistics() const;

  private:
    using FreeMap = std::map<std::uintptr_t, std::uint64_t>;  // address -> bytes
    FreeMap::iterator find_free(std::uint64_t bytes);
    void merge(FreeMap::iterator piece);

    mutable std::mutex mutex_;
    std::vector<std::unique_ptr<HugeBuffer>> chunks_;
    FreeMap free_;
    FreeMap used_;
    std::uint64_t used_bytes_ = 0;
    std::uint64_t peak_used_bytes_ = 0;
};

}  // namespace graphsink
