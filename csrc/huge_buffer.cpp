#include "huge_buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <limits>
#include <new>

namespace graphsink {

HugeBuffer::HugeBuffer(std::size_t bytes) {
    if (bytes == 0 || bytes > std::numeric_limits<std::size_t>::max() - 2 * kHugePageBytes) {
        throw std::bad_alloc();
    }
    bytes_ = (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
    mapping_bytes_ = bytes_ + kHugePageBytes;  // slack to start on a boundary
    mapping_ = mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping_ == MAP_FAILED) throw std::bad_alloc();
    const auto address = reinterpret_cast<std::uintptr_t>(mapping_);
    const auto aligned = (address + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
    data_ = reinterpret_cast<std::byte*>(aligned);
    huge_pages_requested_ = madvise(data_, bytes_, MADV_HUGEPAGE) == 0;
}

HugeBuffer::~HugeBuffer() {
    munmap(mapping_, mapping_bytes_);
}

}  // namespace graphsink
