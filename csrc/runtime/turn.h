// Who has the device. A mutex that can be waited for with a time-out.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace graphsink {

// Meets the requirements of a TimedLockable as far as std::unique_lock uses them. (Unlike std::timed_mutex it
// is understood by the thread sanitizers of all compilers: theirs does not know the call behind it.)
class Turn {
  public:
    void lock() {
        std::unique_lock guard(mutex_);
        ended_.wait(guard, [this] { return !taken_; });
        taken_ = true;
    }
    bool try_lock_for(std::chrono::nanoseconds timeout) {
        std::unique_lock guard(mutex_);
        if (!ended_.wait_for(guard, timeout, [this] { return !taken_; })) return false;
        taken_ = true;
        return true;
    }
    void unlock() {
        // Under the lock: whoever takes the device next may destroy it.
        const std::lock_guard guard(mutex_);
        taken_ = false;
        ended_.notify_one();
    }

  private:
    std::mutex mutex_;
    std::condition_variable ended_;
    bool taken_ = false;
};

}  // namespace graphsink
