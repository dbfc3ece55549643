// A word that threads wait on: first by spinning, then asleep in the kernel (futex).
//
// Spinning answers in well under a microsecond but burns the core; sleeping costs a wake-up of 5 to 50
// microseconds. A device that replays step after step finds its cores still spinning.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
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

// One turn of a loop that waits for another core. Where other processes want the cores, too, the thread that
// is waited for may be the one that this thread keeps from running: so after some 5 microseconds give way.
inline void spin_once(std::uint32_t round) {
    constexpr std::uint32_t kSpinsPerYield = 128;
    if (round % kSpinsPerYield == 0) {
        ::sched_yield();
    } else {
        cpu_relax();
    }
}

class ParkingWord {
  public:
    std::uint32_t load() const { return value_.load(std::memory_order_acquire); }

    // Adds one and wakes every sleeper. Several threads may do so at once: each makes a value of its own.
    void bump() {
        value_.fetch_add(1, std::memory_order_seq_cst);
        // Dekker: a waiter announces itself before it looks at the value for the last time.
        if (sleepers_.load(std::memory_order_seq_cst) != 0) {
            ::syscall(SYS_futex, &value_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
        }
    }

    // Returns the value once it differs from `seen`, or after `timeout` (negative: never). Spins for `spin`
    // before it sleeps. The caller compares: a time-out returns `seen`. `slept` counts the sleeps.
    std::uint32_t wait_while(std::uint32_t seen, std::chrono::nanoseconds spin,
                             std::chrono::nanoseconds timeout, std::atomic<std::uint64_t>* slept = nullptr) {
        const auto start = Clock::now();
        if (timeout.count() >= 0) spin = std::min(spin, timeout);
        for (std::uint32_t round = 1;; ++round) {
            const std::uint32_t value = load();
            if (value != seen) return value;
            spin_once(round);
            if (round % kSpinsPerClock == 0 && Clock::now() - start >= spin) break;
        }
        for (;;) {
            const std::chrono::nanoseconds left =
                timeout.count() < 0 ? timeout : timeout - (Clock::now() - start);
            if (timeout.count() >= 0 && left.count() <= 0) return load();
            if (slept != nullptr) slept->fetch_add(1, std::memory_order_relaxed);
            sleep_while(seen, left);
            const std::uint32_t value = load();
            if (value != seen) return value;
        }
    }

  private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::uint32_t kSpinsPerClock = 64;

    // One sleep; it may end for no reason.
    void sleep_while(std::uint32_t seen, std::chrono::nanoseconds left) {
        constexpr std::int64_t kSecond = 1'000'000'000;
        const timespec limit{static_cast<time_t>(left.count() / kSecond),
                             static_cast<long>(left.count() % kSecond)};
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        if (value_.load(std::memory_order_seq_cst) == seen) {
            ::syscall(SYS_futex, &value_, FUTEX_WAIT_PRIVATE, seen, left.count() < 0 ? nullptr : &limit,
                      nullptr, 0);
        }
        sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    }

    std::atomic<std::uint32_t> value_{0};
    std::atomic<std::uint32_t> sleepers_{0};
};

}  // namespace graphsink
