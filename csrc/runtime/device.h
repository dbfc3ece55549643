// A device: a set of cores that run graph instances one after another, each instance on all cores.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "huge_buffer.h"
#include "runtime/instance.h"
#include "runtime/parking.h"
#include "runtime/trace.h"
#include "runtime/turn.h"

namespace graphsink {

struct DeviceOptions {
    std::vector<int> cores;  // operating-system ids; core 0 of the device is also the caller's in `execute`
    // Bind the device's threads, each to its own core. The caller's thread is left alone; where it happens to
    // run, the thread of that core makes way.
    bool pin = false;
    std::chrono::nanoseconds idle_spin{200'000};  // how long an idle core spins before it sleeps
    std::chrono::nanoseconds call_spin{
        0};  // the same while another core runs a call (docs/design/threads.md)
    std::uint64_t scratch_bytes = 1 << 20;  // per core
};

class Device {
  public:
    // Starts one thread per core but the first. Throws std::system_error if one cannot be started or pinned.
    explicit Device(DeviceOptions options);
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    std::uint32_t num_cores() const { return static_cast<std::uint32_t>(options_.cores.size()); }
    const DeviceOptions& options() const { return options_; }

    // Asked now and then by core 0 during a run; true ends the run as aborted.
    using Interrupt = bool (*)();

    // Runs an instance that `begin_run` has marked as running; the calling thread is core 0. Returns how it
    // ended; the instance stays marked until the caller calls `end_run`. The time-out (negative: none) is
    // looked at between tasks and while waiting: a kernel that runs is not interrupted. Must not be called by
    // a task of this device (see `runs_on_this_thread`).
    Outcome execute(Instance& instance, std::chrono::nanoseconds timeout, std::int64_t submit_ns,
                    Interrupt interrupt = nullptr);
    // The same on a thread of the device, after those submitted before. Marks the instance itself, and
    // returns the state that it found: nothing was queued unless that is `ready`. The outcome is in the
    // instance.
    InstanceState submit(std::shared_ptr<Instance> instance);
    // Ends the run of `instance` if it runs; one that is queued ends when its turn comes.
    void abort(Instance& instance);
    // True if the calling thread is in the middle of a run of this device, in a call. What waits for the
    // device would then wait for itself.
    bool runs_on_this_thread() const;

    // Aborts what runs and what is queued, then ends the threads. A later run ends at once, as aborted.
    // Called by the destructor. In a forked child, where the threads do not exist, it only forgets them.
    void shutdown();
    // False in a process that was forked after the device was made.
    bool belongs_to_this_process() const;

    // Returns false if a trace is on already.
    bool start_trace(std::size_t events_per_core);
    void stop_trace();
    bool tracing() const { return tracing_.load(std::memory_order_relaxed); }
    // Of the last trace. They wait until nothing runs.
    std::vector<StepEvent> step_events();
    std::vector<HostEvent> host_events();
    std::uint64_t dropped_events();

    // While set, every run begins with scratch full of 0x7f.
    void set_poison(bool poison) { poison_.store(poison, std::memory_order_relaxed); }
    std::uint64_t runs() const { return runs_.load(std::memory_order_relaxed); }
    // How often a core slept while another one ran a call.
    std::uint64_t parks() const { return parks_.load(std::memory_order_relaxed); }

  private:
    // One cache line that only its core writes.
    struct alignas(64) CoreProgress {
        std::atomic<std::uint64_t> steps{0};
        std::atomic<std::uint32_t> task_id{0};
        std::atomic<bool> waiting{false};
    };
    struct CoreContext {
        std::vector<std::uint64_t> base;  // steps of all cores in the regions that are behind us
        gs_args args{};
        std::uint32_t error = 0;
        std::uint64_t decisions = 0;
        std::uint32_t decided_by = kNoTask;  // control task since the last step, for the trace
        EventRing<StepEvent> events;
        int bound_to = -1;  // operating-system id of the core that its thread is bound to
    };

    struct QueuedRun {
        std::shared_ptr<Instance> instance;
        std::int64_t submit_ns;
    };

    void work(std::uint32_t core);
    void dispatch();
    void keep_apart(std::uint32_t core);
    bool take_device(Instance& instance, std::int64_t deadline_ns, Interrupt interrupt, Outcome& refused);
    Outcome release_device();
    void wait_for_cores();
    void abort_everything();
    void join_threads();
    void run_core(std::uint32_t core);
    bool run_body(std::uint32_t core, const Body& body);
    bool run_region(std::uint32_t core, const Region& region);
    bool run_control(std::uint32_t core, const Control& control);
    bool run_step(std::uint32_t core, const Step& step, const Region& region);
    bool run_blocks(CoreContext& context, std::uint32_t core, const Step& step, const TaskDescriptor& task);
    bool join_cores(std::uint32_t core);
    bool decide(std::uint32_t core, const Control& control, std::int64_t& value);
    bool wait_for(std::uint32_t core, std::uint32_t other, std::uint64_t target, const TaskDescriptor* next,
                  const Step* step);
    bool sleep_for(std::uint32_t core, std::uint32_t other, std::uint64_t target);
    bool stopped(std::uint32_t core);
    void stop(RunResult result, std::uint32_t task_id, std::uint32_t core, std::uint32_t code,
              std::string message);
    std::string what_cores_do() const;

    DeviceOptions options_;
    std::vector<std::unique_ptr<HugeBuffer>> scratch_;
    std::vector<CoreProgress> progress_;
    std::vector<CoreContext> contexts_;
    std::vector<std::thread> workers_;
    std::thread dispatcher_;
    long owner_pid_;

    // The run in progress; written before `launch_` changes, read by the cores after.
    Turn run_mutex_;
    bool workers_quit_ = false;
    Instance* instance_ = nullptr;
    Interrupt interrupt_ = nullptr;
    int caller_core_ = -1;
    std::int64_t next_interrupt_ns_ = 0;
    std::int64_t deadline_ns_ = 0;  // 0: none
    std::atomic<std::uint32_t> stop_{0};
    std::mutex outcome_mutex_;
    Outcome outcome_;
    alignas(64) std::atomic<std::uint64_t> decisions_made_{0};
    std::int64_t decision_ = 0;
    alignas(64) std::atomic<std::uint32_t> cores_done_{0};
    ParkingWord launch_;
    ParkingWord calls_ended_;
    std::atomic<bool> quit_{false};  // no run begins any more

    std::mutex queue_mutex_;
    std::deque<QueuedRun> queue_;
    ParkingWord queue_changed_;

    std::atomic<bool> tracing_{false};
    EventRing<HostEvent> host_events_;
    std::atomic<bool> poison_{false};
    std::atomic<std::uint64_t> runs_{0};
    std::atomic<std::uint64_t> parks_{0};
};

}  // namespace graphsink
