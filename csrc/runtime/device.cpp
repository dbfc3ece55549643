// Threads of a device, launching, and how a run ends. What a core does in a run is in core_loop.cpp.
#include "runtime/device.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "pinned_team.h"

namespace graphsink {

namespace {

constexpr std::chrono::nanoseconds kForever{-1};
constexpr std::uint32_t kSpinsPerCheck = 256;
// Asking takes Python's lock, so it is done rarely; a decode step ends before it is asked at all.
constexpr std::int64_t kInterruptPeriodNs = 300'000'000;

// The devices that the calling thread runs tasks for: a call may run a graph of another device.
struct RunOnThread {
    const Device* device;
    const RunOnThread* outer;
};
thread_local const RunOnThread* innermost_run = nullptr;

void pin(std::thread& thread, int core) {
    const int code = pin_thread(thread.native_handle(), core);
    if (code != 0)
        throw std::system_error(code, std::generic_category(),
                                "pin a thread to core " + std::to_string(core));
}

}  // namespace

Device::Device(DeviceOptions options)
    : options_(std::move(options)),
      progress_(options_.cores.size()),
      contexts_(options_.cores.size()),
      owner_pid_(::getpid()) {
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
            if (options_.pin) pin(workers_.back(), options_.cores[core]);
        }
    } catch (...) {
        shutdown();
        throw;
    }
}

Device::~Device() {
    shutdown();
}

bool Device::belongs_to_this_process() const {
    return ::getpid() == owner_pid_;
}

bool Device::runs_on_this_thread() const {
    const RunOnThread* run = innermost_run;
    while (run != nullptr && run->device != this) run = run->outer;
    return run != nullptr;
}

void Device::shutdown() {
    if (!belongs_to_this_process()) {
        // A forked child has no such threads: joining them would wait for ever, and their handles are void.
        new std::vector<std::thread>(std::move(workers_));
        new std::thread(std::move(dispatcher_));
        workers_.clear();
        return;
    }
    abort_everything();
    {
        const std::lock_guard lock(run_mutex_);
        workers_quit_ = true;
    }
    launch_.bump();
    queue_changed_.bump();
    join_threads();
}

void Device::abort_everything() {
    std::vector<std::shared_ptr<Instance>> queued;
    {
        const std::lock_guard lock(queue_mutex_);
        for (const QueuedRun& run : queue_) queued.push_back(run.instance);
    }
    for (const auto& instance : queued) abort(*instance);
    const std::lock_guard lock(outcome_mutex_);
    quit_.store(true);
    if (instance_ == nullptr || stop_.load(std::memory_order_relaxed) != 0) return;
    outcome_ = {RunResult::aborted, progress_[0].task_id.load(std::memory_order_relaxed), 0, 0,
                "the device was closed"};
    stop_.store(1, std::memory_order_release);
    calls_ended_.bump();
}

void Device::join_threads() {
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
    std::thread dispatcher;
    {
        const std::lock_guard lock(queue_mutex_);
        dispatcher.swap(dispatcher_);
    }
    if (dispatcher.joinable()) dispatcher.join();
}

void Device::work(std::uint32_t core) {
    std::uint32_t seen = 0;
    for (;;) {
        seen = launch_.wait_while(seen, options_.idle_spin, kForever);
        if (workers_quit_) return;
        if (options_.pin) keep_apart(core);
        run_core(core);
        cores_done_.fetch_add(1, std::memory_order_release);
    }
}

// The system may put the calling thread on the core of one of ours, and both would take turns there while
// another core is free. That one then takes the first core of the device, where the caller was expected.
void Device::keep_apart(std::uint32_t core) {
    const int own = options_.cores[core];
    const int target = own == caller_core_ ? options_.cores[0] : own;
    CoreContext& context = contexts_[core];
    if (target == context.bound_to) return;
    // It was bound when the device was made; if the system no longer allows the other core, it stays.
    if (pin_thread(::pthread_self(), target) == 0) context.bound_to = target;
}

Outcome Device::execute(Instance& instance, std::chrono::nanoseconds timeout, std::int64_t submit_ns,
                        Interrupt interrupt) {
    const std::int64_t deadline =
        timeout.count() < 0 ? 0 : std::max<std::int64_t>(1, now_ns() + timeout.count());
    std::unique_lock lock(run_mutex_, std::defer_lock);
    if (deadline == 0) {
        lock.lock();
    } else if (!lock.try_lock_for(timeout)) {
        return {RunResult::timed_out, 0, 0, 0, "another instance holds the device"};
    }
    Outcome refused;
    if (!take_device(instance, deadline, interrupt, refused)) return refused;
    const std::int64_t start_ns = tracing() ? now_ns() : 0;
    if (num_cores() > 1) launch_.bump();
    const RunOnThread run{this, innermost_run};
    innermost_run = &run;
    run_core(0);
    wait_for_cores();
    innermost_run = run.outer;
    if (tracing()) host_events_.add({submit_ns, start_ns, now_ns(), runs(), instance.id()});
    return release_device();
}

// Makes `instance` the one that runs; the caller holds `run_mutex_`.
bool Device::take_device(Instance& instance, std::int64_t deadline_ns, Interrupt interrupt,
                         Outcome& refused) {
    {
        // `abort` and `shutdown` look at these from other threads: they see either a run that they can stop,
        // or leave a request that is seen here.
        const std::lock_guard lock(outcome_mutex_);
        if (quit_.load() || instance.abort_requested()) {
            refused = {RunResult::aborted, 0, 0, 0,
                       quit_.load() ? "the device was closed" : "it had not started"};
            return false;
        }
        instance_ = &instance;
        outcome_ = Outcome{};
        stop_.store(0, std::memory_order_relaxed);
    }
    caller_core_ = options_.pin ? ::sched_getcpu() : -1;
    deadline_ns_ = deadline_ns;
    interrupt_ = interrupt;
    next_interrupt_ns_ = interrupt == nullptr ? 0 : now_ns() + kInterruptPeriodNs;
    decisions_made_.store(0, std::memory_order_relaxed);
    cores_done_.store(0, std::memory_order_relaxed);
    for (CoreProgress& progress : progress_) progress.steps.store(0, std::memory_order_relaxed);
    runs_.fetch_add(1, std::memory_order_relaxed);
    return true;
}

Outcome Device::release_device() {
    const std::lock_guard lock(outcome_mutex_);
    instance_ = nullptr;
    return std::exchange(outcome_, Outcome{});
}

// Between tasks a core sees a time-out by itself; here core 0 sees it for one that never reaches its end.
void Device::wait_for_cores() {
    for (std::uint32_t spin = 1; cores_done_.load(std::memory_order_acquire) + 1 < num_cores(); ++spin) {
        spin_once(spin);
        if (spin % kSpinsPerCheck == 0) stopped(0);
    }
}

InstanceState Device::submit(std::shared_ptr<Instance> instance) {
    const std::lock_guard lock(queue_mutex_);
    if (!dispatcher_.joinable() && !quit_.load()) {
        // Never pinned: calls run on it, and threads that they start inherit its affinity.
        dispatcher_ = std::thread([this] { dispatch(); });
    }
    const InstanceState found = instance->begin_run();
    if (found != InstanceState::ready) return found;
    if (quit_.load()) {
        instance->end_run({RunResult::aborted, 0, 0, 0, "the device was closed"});
        return found;
    }
    queue_.push_back({std::move(instance), now_ns()});
    queue_changed_.bump();
    return found;
}

void Device::dispatch() {
    for (;;) {
        const std::uint32_t seen = queue_changed_.load();
        QueuedRun run{};
        {
            const std::lock_guard lock(queue_mutex_);
            if (!queue_.empty()) {
                run = std::move(queue_.front());
                queue_.pop_front();
            }
        }
        if (run.instance != nullptr) {
            run.instance->end_run(execute(*run.instance, kForever, run.submit_ns));
        } else if (quit_.load()) {
            return;
        } else {
            queue_changed_.wait_while(seen, options_.idle_spin, kForever);
        }
    }
}

void Device::abort(Instance& instance) {
    const std::lock_guard lock(outcome_mutex_);
    instance.request_abort();
    if (instance_ != &instance || stop_.load(std::memory_order_relaxed) != 0) return;
    outcome_ = {RunResult::aborted, progress_[0].task_id.load(std::memory_order_relaxed), 0, 0,
                what_cores_do()};
    stop_.store(1, std::memory_order_release);
    calls_ended_.bump();
}

void Device::stop(RunResult result, std::uint32_t task_id, std::uint32_t core, std::uint32_t code,
                  std::string message) {
    const std::lock_guard lock(outcome_mutex_);
    if (stop_.load(std::memory_order_relaxed) != 0) return;
    outcome_ = {result, task_id, core, code, std::move(message)};
    stop_.store(1, std::memory_order_release);
    calls_ended_.bump();
}

bool Device::stopped(std::uint32_t core) {
    if (stop_.load(std::memory_order_acquire) != 0) return true;
    const bool asks = core == 0 && interrupt_ != nullptr;
    if (deadline_ns_ == 0 && !asks) return false;
    const std::int64_t now = now_ns();
    const std::uint32_t task_id = progress_[core].task_id.load(std::memory_order_relaxed);
    if (deadline_ns_ != 0 && now >= deadline_ns_) {
        stop(RunResult::timed_out, task_id, core, 0, what_cores_do());
        return true;
    }
    if (!asks || now < next_interrupt_ns_) return false;
    next_interrupt_ns_ = now + kInterruptPeriodNs;
    if (!interrupt_()) return false;
    stop(RunResult::aborted, task_id, core, 0, "a signal interrupted it");
    return true;
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

bool Device::start_trace(std::size_t events_per_core) {
    const std::lock_guard lock(run_mutex_);
    if (tracing()) return false;
    for (CoreContext& context : contexts_) context.events.reset(events_per_core);
    host_events_.reset(events_per_core);
    tracing_.store(true);
    return true;
}

void Device::stop_trace() {
    const std::lock_guard lock(run_mutex_);
    tracing_.store(false);
}

std::vector<StepEvent> Device::step_events() {
    const std::lock_guard lock(run_mutex_);
    std::vector<StepEvent> all;
    for (const CoreContext& context : contexts_) {
        const std::vector<StepEvent> events = context.events.in_order();
        all.insert(all.end(), events.begin(), events.end());
    }
    return all;
}

std::vector<HostEvent> Device::host_events() {
    const std::lock_guard lock(run_mutex_);
    return host_events_.in_order();
}

std::uint64_t Device::dropped_events() {
    const std::lock_guard lock(run_mutex_);
    std::uint64_t dropped = 0;
    for (const CoreContext& context : contexts_) dropped += context.events.dropped();
    return dropped;
}

}  // namespace graphsink
