// A word that threads wait on: first by spinning, then asleep in the kernel (futex).
//
// Spinning answers in well under a microsecond but burns the core; sleeping costs a wake-up of 5 to 50
// microseconds. A device that replays step after step finds its cores still spinning.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>

namespace graphsink {

inline void cpu_relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

class ParkingWord {
  public:
    std::uint32_t load() const { return value_.load(std::memory_order_acquire); }

    // Changes the value and wakes every sleeper.
    void store_and_wake(std::uint32_t value) {
        value_.store(value, std::memory_order_seq_cst);
        // Dekker: a waiter announces itself before it looks at the value for the last time.
        if (sleepers_.load(std::memory_order_seq_cst) != 0) {
            ::syscall(SYS_futex, &value_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
        }
    }

    // Returns the value once it differs from `seen`, or after `timeout` (negative: never). Spins for `spin`
    // before it sleeps. The caller compares: a time-out returns `seen`.
    std::uint32_t wait_while(std::uint32_t seen, std::chrono::nanoseconds spin, std::chrono::nanoseconds timeout) {
        using Clock = std::chrono::steady_clock;
        const auto start = Clock::now();
        for (std::uint32_t round = 1;; ++round) {
            const std::uint32_t value = load();
            if (value != seen) return value;
            cpu_relax();
            if (round % 64 == 0 && Clock::now() - start >= spin) break;
        }
        for (;;) {
            sleepers_.fetch_add(1, std::memory_order_seq_cst);
            timespec limit{};
            timespec* limit_pointer = nullptr;
            if (timeout.count() >= 0) {
                const auto left = timeout - (Clock::now() - start);
                const auto ns = left.count() > 0 ? std::chrono::duration_cast<std::chrono::nanoseconds>(left).count() : 0;
                limit = {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
                limit_pointer = &limit;
            }
            if (value_.load(std::memory_order_seq_cst) == seen) {
                ::syscall(SYS_futex, &value_, FUTEX_WAIT_PRIVATE, seen, limit_pointer, nullptr, 0);
            }
            sleepers_.fetch_sub(1, std::memory_order_seq_cst);
            const std::uint32_t value = load();
            if (value != seen) return value;
            if (timeout.count() >= 0 && Clock::now() - start >= timeout) return seen;
        }
    }

  private:
    std::atomic<std::uint32_t> value_{0};
    std::atomic<std::uint32_t> sleepers_{0};
};

}  // namespace graphsink
