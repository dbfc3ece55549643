// What a device did and when; recorded only while a trace is on.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace graphsink {

// Nanoseconds of the steady clock: the same for all cores and the host.
inline std::int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// One step of one core: it was ready to look at its dependencies, then began, then ended.
struct StepEvent {
    std::int64_t ready_ns, begin_ns, end_ns;
    std::uint64_t run;  // number of the execution
    std::uint32_t instance;
    std::uint32_t task_id;
    std::uint32_t waited_for;  // id of the last task that it waited for, or kNoTask
    std::uint32_t core;
};

constexpr std::uint32_t kNoTask = 0xffffffffU;

// What the host did: one execution from its submission to the end of its wait.
struct HostEvent {
    std::int64_t submit_ns, start_ns, end_ns;
    std::uint64_t run;
    std::uint32_t instance;
};

// A ring that keeps the newest events. One writer; read when nothing runs.
template <typename Event>
class EventRing {
  public:
    void reset(std::size_t capacity) {
        events_.assign(capacity, Event{});
        written_ = 0;
    }
    void add(const Event& event) {
        if (!events_.empty()) events_[static_cast<std::size_t>(written_++ % events_.size())] = event;
    }
    std::uint64_t written() const { return written_; }
    std::uint64_t dropped() const { return written_ > events_.size() ? written_ - events_.size() : 0; }
    std::vector<Event> in_order() const {
        std::vector<Event> result;
        for (std::uint64_t i = dropped(); i < written_; ++i)
            result.push_back(events_[static_cast<std::size_t>(i % events_.size())]);
        return result;
    }

  private:
    std::vector<Event> events_;
    std::uint64_t written_ = 0;
};

}  // namespace graphsink
