#include "read_bandwidth.h"

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "huge_buffer.h"
#include "pinned_team.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace graphsink {

namespace {

// Each thread reads several runs of its share side by side. A core can keep more cache-line requests
// in flight than one sequential run triggers, because hardware prefetchers follow each run separately
// and stop at page boundaries.
constexpr std::size_t kStreams = 4;
constexpr std::size_t kStepBytes = 128;  // per stream and iteration: two cache lines
constexpr std::size_t kGranule = kStreams * kStepBytes;

// Sums all 64-bit words of [data, data + bytes). The sum is checked by the caller, so no compiler can
// drop a load. `bytes` is a multiple of kGranule. One function per instruction set, in one file built
// for the baseline: the target attribute enables the instructions for that function alone.
using SumWords = std::uint64_t (*)(const std::byte* data, std::size_t bytes);

std::uint64_t sum_words_scalar(const std::byte* data, std::size_t bytes) {
    const std::size_t stream_bytes = bytes / kStreams;
    std::array<std::uint64_t, kStreams> sums{};
    for (std::size_t at = 0; at < stream_bytes; at += kStepBytes) {
        for (std::size_t s = 0; s < kStreams; ++s) {
            const auto* words = reinterpret_cast<const std::uint64_t*>(data + s * stream_bytes + at);
            for (std::size_t i = 0; i < kStepBytes / 8; ++i) sums[s] += words[i];
        }
    }
    std::uint64_t total = 0;
    for (const std::uint64_t sum : sums) total += sum;
    return total;
}

#if defined(__x86_64__)

__attribute__((target("avx2"))) std::uint64_t sum_words_avx2(const std::byte* data, std::size_t bytes) {
    const std::size_t stream_bytes = bytes / kStreams;
    __m256i sums[kStreams] = {};
    for (std::size_t at = 0; at < stream_bytes; at += kStepBytes) {
        for (std::size_t s = 0; s < kStreams; ++s) {
            const auto* words = reinterpret_cast<const __m256i*>(data + s * stream_bytes + at);
            const __m256i low = _mm256_add_epi64(_mm256_load_si256(words), _mm256_load_si256(words + 1));
            const __m256i high = _mm256_add_epi64(_mm256_load_si256(words + 2), _mm256_load_si256(words + 3));
            sums[s] = _mm256_add_epi64(sums[s], _mm256_add_epi64(low, high));
        }
    }
    for (std::size_t s = 1; s < kStreams; ++s) sums[0] = _mm256_add_epi64(sums[0], sums[s]);
    alignas(32) std::uint64_t lanes[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sums[0]);
    return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}

__attribute__((target("avx512f"))) std::uint64_t sum_words_avx512(const std::byte* data, std::size_t bytes) {
    const std::size_t stream_bytes = bytes / kStreams;
    __m512i sums[kStreams] = {};
    for (std::size_t at = 0; at < stream_bytes; at += kStepBytes) {
        for (std::size_t s = 0; s < kStreams; ++s) {
            const auto* words = reinterpret_cast<const __m512i*>(data + s * stream_bytes + at);
            const __m512i pair = _mm512_add_epi64(_mm512_load_si512(words), _mm512_load_si512(words + 1));
            sums[s] = _mm512_add_epi64(sums[s], pair);
        }
    }
    for (std::size_t s = 1; s < kStreams; ++s) sums[0] = _mm512_add_epi64(sums[0], sums[s]);
    alignas(64) std::uint64_t lanes[8];
    _mm512_store_si512(lanes, sums[0]);
    std::uint64_t total = 0;
    for (const std::uint64_t lane : lanes) total += lane;
    return total;
}

SumWords sum_words_for(IsaLevel level) {
    if (level >= IsaLevel::avx512) return sum_words_avx512;
    if (level == IsaLevel::avx2) return sum_words_avx2;
    return sum_words_scalar;
}

#elif defined(__aarch64__)

std::uint64_t sum_words_neon(const std::byte* data, std::size_t bytes) {
    const std::size_t stream_bytes = bytes / kStreams;
    uint64x2_t sums[kStreams] = {};
    for (std::size_t at = 0; at < stream_bytes; at += kStepBytes) {
        for (std::size_t s = 0; s < kStreams; ++s) {
            const auto* words = reinterpret_cast<const std::uint64_t*>(data + s * stream_bytes + at);
            for (std::size_t i = 0; i < kStepBytes / 8; i += 2) {
                sums[s] = vaddq_u64(sums[s], vld1q_u64(words + i));
            }
        }
    }
    for (std::size_t s = 1; s < kStreams; ++s) sums[0] = vaddq_u64(sums[0], sums[s]);
    return vgetq_lane_u64(sums[0], 0) + vgetq_lane_u64(sums[0], 1);
}

SumWords sum_words_for(IsaLevel level) {
    return level == IsaLevel::neon ? sum_words_neon : sum_words_scalar;
}

#endif

using Clock = std::chrono::steady_clock;

// One thread's results, on its own cache lines so that writing them disturbs nobody.
struct alignas(128) Member {
    std::vector<Clock::time_point> starts, ends;
    std::uint64_t sum = 0;
};

void check(const ReadBandwidthRequest& request) {
    if (request.cores.empty()) throw std::invalid_argument("read bandwidth: no core given");
    if (request.rounds < 1) throw std::invalid_argument("read bandwidth: rounds must be at least 1");
    if (!isa_level_runs_here(request.level)) {
        throw std::invalid_argument(std::string("read bandwidth: this processor cannot run level ") +
                                    isa_level_name(request.level));
    }
    const auto least = static_cast<std::int64_t>(request.cores.size() * kHugePageBytes);
    if (request.buffer_bytes < least) {
        throw std::invalid_argument("read bandwidth: the buffer needs at least 2 MiB per thread, " +
                                    std::to_string(least) + " bytes; got " +
                                    std::to_string(request.buffer_bytes));
    }
}

std::vector<double> seconds_per_round(const std::vector<Member>& members, std::size_t rounds) {
    std::vector<double> seconds;
    for (std::size_t round = 0; round < rounds; ++round) {
        auto start = members[0].starts[round];
        auto end = members[0].ends[round];
        for (const auto& member : members) {
            start = std::min(start, member.starts[round]);
            end = std::max(end, member.ends[round]);
        }
        seconds.push_back(std::chrono::duration<double>(end - start).count());
    }
    std::sort(seconds.begin(), seconds.end());
    return seconds;
}

}  // namespace

ReadBandwidth measure_read_bandwidth(const ReadBandwidthRequest& request) {
    check(request);
    const std::size_t threads = request.cores.size();
    const auto rounds = static_cast<std::size_t>(request.rounds);
    // Equal shares of whole huge pages: what does not divide is left unread and not counted.
    const std::size_t share =
        static_cast<std::size_t>(request.buffer_bytes) / threads / kHugePageBytes * kHugePageBytes;
    static_assert(kHugePageBytes % kGranule == 0);
    const HugeBuffer buffer(share * threads);
    const SumWords sum_words = sum_words_for(request.level);

    std::vector<Member> members(threads);
    for (auto& member : members) {
        member.starts.resize(rounds);
        member.ends.resize(rounds);
    }
    std::barrier line(static_cast<std::ptrdiff_t>(threads));
    run_pinned(request.cores, [&](int index) {
        Member& member = members[static_cast<std::size_t>(index)];
        std::byte* data = buffer.data() + static_cast<std::size_t>(index) * share;
        // First touch by the reader, with every word 1, so that the sum is known: the number of words.
        std::fill_n(reinterpret_cast<std::uint64_t*>(data), share / 8, std::uint64_t{1});
        member.sum = sum_words(data, share);
        for (std::size_t round = 0; round < rounds; ++round) {
            line.arrive_and_wait();
            member.starts[round] = Clock::now();
            member.sum += sum_words(data, share);
            member.ends[round] = Clock::now();
        }
    });

    for (const auto& member : members) {
        if (member.sum != (rounds + 1) * (share / 8)) {
            throw std::runtime_error("read bandwidth: wrong checksum; the buffer was not read completely");
        }
    }
    const auto seconds = seconds_per_round(members, rounds);
    ReadBandwidth result;
    result.bytes_per_round = static_cast<std::int64_t>(share * threads);
    const double gigabytes = static_cast<double>(result.bytes_per_round) / 1e9;
    const double median = (seconds[(rounds - 1) / 2] + seconds[rounds / 2]) / 2;
    result.best_gbps = gigabytes / seconds.front();
    result.median_gbps = gigabytes / median;
    result.huge_pages_requested = buffer.huge_pages_requested();
    return result;
}

}  // namespace graphsink
