#include "runtime/arena.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace graphsink {

namespace {

constexpr std::uint64_t kAlignment = 64;
// Small requests share a mapping of this size.
constexpr std::uint64_t kChunkBytes = std::uint64_t{32} << 20;

}  // namespace

std::uintptr_t Arena::allocate(std::uint64_t bytes) {
    if (bytes == 0) throw std::invalid_argument("0 bytes were asked for");
    if (bytes > UINT64_MAX - kChunkBytes) throw std::bad_alloc();
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    const std::lock_guard lock(mutex_);
    auto piece = find_free(bytes);
    if (piece == free_.end()) {
        chunks_.push_back(std::make_unique<HugeBuffer>(std::max(bytes, kChunkBytes)));
        piece =
            free_.emplace(reinterpret_cast<std::uintptr_t>(chunks_.back()->data()), chunks_.back()->bytes())
                .first;
    }
    const auto [address, available] = *piece;
    free_.erase(piece);
    if (available > bytes) free_.emplace(address + bytes, available - bytes);
    used_.emplace(address, bytes);
    used_bytes_ += bytes;
    peak_used_bytes_ = std::max(peak_used_bytes_, used_bytes_);
    return address;
}

void Arena::free(std::uintptr_t address) {
    const std::lock_guard lock(mutex_);
    const auto found = used_.find(address);
    if (found == used_.end())
        throw std::invalid_argument("the address is not allocated; was it freed before?");
    used_bytes_ -= found->second;
    merge(free_.emplace(found->first, found->second).first);
    used_.erase(found);
}

void Arena::poison(int byte) {
    const std::lock_guard lock(mutex_);
    for (const auto& [address, bytes] : free_) std::memset(reinterpret_cast<void*>(address), byte, bytes);
}

ArenaStatistics Arena::statistics() const {
    const std::lock_guard lock(mutex_);
    ArenaStatistics statistics{0, used_bytes_, peak_used_bytes_, used_.size(), true};
    for (const auto& chunk : chunks_) {
        statistics.mapped_bytes += chunk->bytes();
        statistics.huge_pages = statistics.huge_pages && chunk->huge_pages_requested();
    }
    return statistics;
}

// The smallest piece that is large enough.
Arena::FreeMap::iterator Arena::find_free(std::uint64_t bytes) {
    auto best = free_.end();
    for (auto piece = free_.begin(); piece != free_.end(); ++piece) {
        if (piece->second >= bytes && (best == free_.end() || piece->second < best->second)) best = piece;
    }
    return best;
}

// Joins a free piece with free neighbours. Pieces of two mappings that happen to touch may join, too: both
// stay mapped as long as the arena lives.
void Arena::merge(FreeMap::iterator piece) {
    const auto next = std::next(piece);
    if (next != free_.end() && piece->first + piece->second == next->first) {
        piece->second += next->second;
        free_.erase(next);
    }
    if (piece == free_.begin()) return;
    const auto previous = std::prev(piece);
    if (previous->first + previous->second == piece->first) {
        previous->second += piece->second;
        free_.erase(piece);
    }
}

}  // namespace graphsink
