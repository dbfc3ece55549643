// Threads of a device, launching, and how a run ends. What a core does in a run is in core_loop.cpp.
#include "runtime/device.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

namespace graphsink {

namespace {

constexpr std::chrono::nanoseconds kForever{-1};

void pin_thread(pthread_t thread, int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    const int code = pthread_setaffinity_np(thread, sizeof set, &set);
    if (code != 0) throw std::system_error(code, std::generic_category(), "pin a worker to core " + std::to_string(core));
}

}  // namespace

Device::Device(DeviceOptions options)
    : options_(std::move(options)), progress_(options_.cores.size()), contexts_(options_.cores.size()), owner_pid_(::getpid()) {
    for (std::uint32_t core = 0; core < num_cores(); ++core) {
        scratch_.push_back(std::make_unique<HugeBuffer>(options_.scratch_bytes));
        CoreContext& context = contexts_[core];
        context.base.assign(num_cores(), 0);
        context.args.scratch = scratch_.back()->data();
        context.args.scratch_bytes = options_.scratch_bytes;
        context.args.error = &context.error;
        context.args.core = core;
    }
    try {
        for (std::uint32_t core = 1; core < num_cores(); ++core) {
            workers_.emplace_back([this, core] { work(core); });
            if (options_.pin) pin_thread(workers_.back().native_handle(), options_.cores[core]);
        }
    } catch (...) {
        shutdown();
        throw;
    }
}

Device::~Device() { shutdown(); }

bool Device::belongs_to_this_process() const { return ::getpid() == owner_pid_; }

void Device::shutdown() {
    const bool own = belongs_to_this_process();
    if (own) {
        quit_.store(true);
        launch_.store_and_wake(launch_.load() + 1);
        queue_changed_.store_and_wake(queue_changed_.load() + 1);
    }
    for (std::thread& worker : workers_) {
        if (!worker.joinable()) continue;
        // A forked child has no such thread: joining it would wait for ever.
        if (own) {
            worker.join();
        } else {
            worker.detach();
        }
    }
    if (dispatcher_.joinable()) {
        if (own) {
            dispatcher_.join();
        } else {
            dispatcher_.detach();
        }
    }
    workers_.clear();
}

void Device::work(std::uint32_t core) {
    std::uint32_t seen = 0;
    for (;;) {
        const std::uint32_t now = launch_.wait_while(seen, options_.idle_spin, kForever);
        if (quit_.load(std::memory_order_relaxed)) return;
        seen = now;
        run_core(core);
        cores_done_.fetch_add(1, std::memory_order_release);
    }
}

void Device::execute(Instance& instance, std::chrono::nanoseconds timeout, std::int64_t submit_ns) {
    const std::int64_t deadline = timeout.count() < 0 ? 0 : std::max<std::int64_t>(1, now_ns() + timeout.count());
    std::unique_lock lock(run_mutex_, std::defer_lock);
    if (deadline == 0) {
        lock.lock();
    } else if (!lock.try_lock_for(timeout)) {
        instance.end_run({RunResult::timed_out, 0, 0, 0, "another instance holds the device"});
        return;
    }
    {
        const std::lock_guard outcome_lock(outcome_mutex_);  // `abort` looks at these from other threads
        instance_ = &instance;
        outcome_ = Outcome{};
        stop_.store(0, std::memory_order_relaxed);
    }
    deadline_ns_ = deadline;
    decisions_made_.store(0, std::memory_order_relaxed);
    cores_done_.store(0, std::memory_order_relaxed);
    for (CoreProgress& progress : progress_) progress.steps.store(0, std::memory_order_relaxed);
    ++runs_;
    const std::int64_t start_ns = tracing() ? now_ns() : 0;
    if (num_cores() > 1) launch_.store_and_wake(launch_.load() + 1);
    run_core(0);
    while (cores_done_.load(std::memory_order_acquire) + 1 < num_cores()) {
        cpu_relax();
        // Between tasks a core sees the time-out by itself; here one that waits for ever would not.
        if (deadline_ns_ != 0) stopped(0);
    }
    if (tracing()) host_events_.add({submit_ns, start_ns, now_ns(), runs_, instance.id()});
    Outcome outcome;
    {
        const std::lock_guard outcome_lock(outcome_mutex_);
        instance_ = nullptr;
        outcome = std::move(outcome_);
    }
    lock.unlock();
    instance.end_run(std::move(outcome));
}

void Device::submit(Instance& instance) {
    const std::lock_guard lock(queue_mutex_);
    if (!dispatcher_.joinable()) {
        dispatcher_ = std::thread([this] { dispatch(); });
        if (options_.pin) pin_thread(dispatcher_.native_handle(), options_.cores[0]);
    }
    queue_.push_back(&instance);
    queue_changed_.store_and_wake(queue_changed_.load() + 1);
}

void Device::dispatch() {
    for (;;) {
        const std::uint32_t seen = queue_changed_.load();
        Instance* instance = nullptr;
        bool aborted = false;
        {
            const std::lock_guard lock(queue_mutex_);
            if (!queue_.empty()) {
                instance = queue_.front();
                queue_.pop_front();
                aborted = std::erase(aborted_in_queue_, instance) != 0;
            }
        }
        if (instance == nullptr) {
            if (quit_.load()) return;
            queue_changed_.wait_while(seen, options_.idle_spin, kForever);
        } else if (aborted) {
            instance->end_run({RunResult::aborted, 0, 0, 0, "it had not started"});
        } else {
            execute(*instance, kForever, now_ns());
        }
    }
}

void Device::abort(Instance& instance) {
    const std::lock_guard lock(queue_mutex_);
    if (std::find(queue_.begin(), queue_.end(), &instance) != queue_.end()) {
        aborted_in_queue_.push_back(&instance);
        return;
    }
    const std::lock_guard outcome_lock(outcome_mutex_);
    if (instance_ != &instance || stop_.load() != 0) return;
    outcome_ = {RunResult::aborted, progress_[0].task_id.load(std::memory_order_relaxed), 0, 0, what_cores_do()};
    stop_.store(1, std::memory_order_release);
    calls_ended_.store_and_wake(calls_ended_.load() + 1);
}

void Device::stop(RunResult result, std::uint32_t task_id, std::uint32_t core, std::uint32_t code, std::string message) {
    const std::lock_guard lock(outcome_mutex_);
    if (stop_.load(std::memory_order_relaxed) != 0) return;
    outcome_ = {result, task_id, core, code, std::move(message)};
    stop_.store(1, std::memory_order_release);
    calls_ended_.store_and_wake(calls_ended_.load() + 1);
}

std::string Device::what_cores_do() const {
    std::string text;
    for (std::uint32_t core = 0; core < num_cores(); ++core) {
        const std::uint32_t task_id = progress_[core].task_id.load(std::memory_order_relaxed);
        const auto& labels = instance_->program().labels;
        if (task_id >= labels.size()) continue;
        text += (text.empty() ? "core " : "; core ") + std::to_string(core);
        text += progress_[core].waiting.load(std::memory_order_relaxed) ? " waits to run '" : " runs '";
        text += labels[task_id].name + "'";
    }
    return text;
}

void Device::start_trace(std::size_t events_per_core) {
    const std::lock_guard lock(run_mutex_);
    for (CoreContext& context : contexts_) context.events.reset(events_per_core);
    host_events_.reset(events_per_core);
    tracing_.store(true);
}

void Device::stop_trace() {
    const std::lock_guard lock(run_mutex_);
    tracing_.store(false);
}

std::vector<StepEvent> Device::step_events() const {
    std::vector<StepEvent> all;
    for (const CoreContext& context : contexts_) {
        const std::vector<StepEvent> events = context.events.in_order();
        all.insert(all.end(), events.begin(), events.end());
    }
    return all;
}

std::vector<HostEvent> Device::host_events() const { return host_events_.in_order(); }

std::uint64_t Device::dropped_events() const {
    std::uint64_t dropped = 0;
    for (const CoreContext& context : contexts_) dropped += context.events.dropped();
    return dropped;
}

}  // namespace graphsink
