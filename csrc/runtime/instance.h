// A graph instance: a program bound to memory, its parameters, and how its last execution ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/parking.h"
#include "runtime/program.h"

namespace graphsink {

enum class InstanceState : std::uint32_t {
    none = 0,     // destroyed
    ready = 1,    // may be executed and changed
    running = 2,  // submitted or running
    fault = 3,    // ended with an error that nobody has taken yet
};

const char* instance_state_name(InstanceState state);

// refused: nothing ran; the code is the state that forbids it.
enum class RunResult : std::uint32_t { ok = 0, failed = 1, aborted = 2, timed_out = 3, refused = 4 };

// How an execution ended. The first fault wins; later ones are not recorded.
struct Outcome {
    RunResult result = RunResult::ok;
    std::uint32_t task_id = 0;  // of the faulty task, or the one that was waited for
    std::uint32_t core = 0;
    std::uint32_t code = 0;  // what the kernel or call reported
    std::string message;     // text of a call, or what every core was doing at a time-out
};

// Shared: a run that was queued keeps its instance alive, whoever else lets go of it.
class Instance : public std::enable_shared_from_this<Instance> {
  public:
    Instance(std::unique_ptr<Program> program, std::uint32_t num_parameters, std::uint32_t id);

    const Program& program() const { return *program_; }
    std::uint32_t id() const { return id_; }
    InstanceState state() const { return static_cast<InstanceState>(state_.load(std::memory_order_acquire)); }

    // Writes a scalar parameter into every slot that uses it. False, and nothing is written, while it runs.
    bool set_parameter(std::uint32_t parameter, gs_slot value);

    // ready -> running. Returns the state it found; anything but `ready` means that nothing was changed.
    InstanceState begin_run();
    // running -> ready or fault, and wakes who waits.
    void end_run(Outcome outcome);
    // The fault that nobody has taken yet; `ok` if there is none.
    Outcome fault();
    // fault -> ready. False if there was none: somebody else has taken it.
    bool clear_fault();
    // Asks the run in progress, or the one that is queued, to end. Nothing happens if there is none.
    void request_abort();
    bool abort_requested() const { return abort_requested_.load(std::memory_order_acquire); }
    // ready or fault -> none. False while it runs.
    bool destroy();

    // Waits until it no longer runs; false after `timeout` (negative: never).
    bool wait(std::chrono::nanoseconds spin, std::chrono::nanoseconds timeout);

  private:
    std::unique_ptr<Program> program_;
    std::vector<std::vector<std::uint64_t>> slots_of_parameter_;
    std::uint32_t id_;
    // Held while a run begins, so that parameters and requests to abort fall clearly before or after that.
    std::mutex change_mutex_;
    std::atomic<bool> abort_requested_{false};
    std::atomic<std::uint32_t> state_{static_cast<std::uint32_t>(InstanceState::ready)};
    ParkingWord runs_ended_;
    std::mutex outcome_mutex_;
    Outcome outcome_;
};

}  // namespace graphsink
