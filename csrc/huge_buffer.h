// Anonymous memory on 2 MiB pages where the kernel gives them.
#pragma once

#include <cstddef>

namespace graphsink {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

// Owns a mapping that starts on a 2 MiB boundary. Pages are not touched here: the thread that will
// use a page should touch it first, so that the kernel places it near that thread.
class HugeBuffer {
  public:
    // `bytes` is rounded up to whole huge pages. Throws std::bad_alloc if the mapping is refused.
    explicit HugeBuffer(std::size_t bytes);
    ~HugeBuffer();
    HugeBuffer(const HugeBuffer&) = delete;
    HugeBuffer& operator=(const HugeBuffer&) = delete;

    std::byte* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }
    // Whether the kernel accepted the request for huge pages (it may still give small ones).
    bool huge_pages_requested() const { return huge_pages_requested_; }

  private:
    void* mapping_ = nullptr;
    std::size_t mapping_bytes_ = 0;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
    bool huge_pages_requested_ = false;
};

}  // namespace graphsink
