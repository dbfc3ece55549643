// What one core does in a run: regions step by step, control tasks together with the others.
#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/device.h"

namespace graphsink {

namespace {

// How often a loop looks at things that rarely change: a power of two.
constexpr std::uint32_t kSpinsPerCheck = 256;
constexpr std::uint32_t kStepsPerCheck = 16;
constexpr std::uint64_t kCacheLineBytes = 64;
// So that a time-out is noticed while another core runs a call.
constexpr std::chrono::milliseconds kLongestSleep{100};

}  // namespace

void Device::run_core(std::uint32_t core) {
    CoreContext& context = contexts_[core];
    std::fill(context.base.begin(), context.base.end(), 0);
    context.error = 0;
    context.decisions = 0;
    context.decided_by = kNoTask;
    if (poison_.load(std::memory_order_relaxed)) {
        std::memset(context.args.scratch, 0x7f, static_cast<std::size_t>(context.args.scratch_bytes));
    }
    run_body(core, instance_->program().main);
}

// All functions below return false when the run was stopped; the core then leaves it.
bool Device::run_body(std::uint32_t core, const Body& body) {
    const Program& program = instance_->program();
    for (const Node& node : body.nodes) {
        if (node.joins && !join_cores(core)) return false;
        const bool goes_on =
            node.region >= 0 ? run_region(core, program.regions[static_cast<std::size_t>(node.region)])
                             : run_control(core, program.controls[static_cast<std::size_t>(node.control)]);
        if (!goes_on) return false;
    }
    return true;
}

bool Device::run_region(std::uint32_t core, const Region& region) {
    CoreContext& context = contexts_[core];
    const CoreProgram& program = region.cores[core];
    std::uint32_t until_check = kStepsPerCheck;
    for (std::uint32_t index = 0; index < program.steps.size(); ++index) {
        const Step& step = program.steps[index];
        if (stop_.load(std::memory_order_relaxed) != 0) return false;
        if (--until_check == 0 || deadline_ns_ != 0) {
            if (stopped(core)) return false;
            until_check = kStepsPerCheck;
        }
        if (!run_step(core, step, region)) return false;
        if (step.publish) {
            progress_[core].steps.store(context.base[core] + index + 1, std::memory_order_release);
            const auto kind = static_cast<TaskKind>(instance_->program().descriptors[step.descriptor].kind);
            if (kind == TaskKind::call && core == 0) calls_ended_.bump();
        }
    }
    for (std::uint32_t other = 0; other < num_cores(); ++other)
        context.base[other] += region.cores[other].steps.size();
    return true;
}

bool Device::run_step(std::uint32_t core, const Step& step, const Region& region) {
    CoreContext& context = contexts_[core];
    const auto& descriptors = instance_->program().descriptors;
    const TaskDescriptor& task = descriptors[step.descriptor];
    progress_[core].task_id.store(task.task_id, std::memory_order_relaxed);
    const bool trace = tracing();
    StepEvent event{};
    if (trace)
        event = {
            now_ns(), 0, 0, runs(), instance_->id(), task.task_id, std::exchange(context.decided_by, kNoTask),
            core};
    for (std::uint32_t i = 0; i < step.wait_count; ++i) {
        const Wait& wait = region.cores[core].waits[step.first_wait + i];
        const std::uint64_t target = context.base[wait.core] + wait.steps;
        if (progress_[wait.core].steps.load(std::memory_order_acquire) >= target) continue;
        event.waited_for = descriptors[region.cores[wait.core].steps[wait.steps - 1].descriptor].task_id;
        const bool reached = step.long_wait ? sleep_for(core, wait.core, target)
                                            : wait_for(core, wait.core, target, &task, &step);
        if (!reached) return false;
    }
    if (trace) event.begin_ns = now_ns();
    const bool goes_on = run_blocks(context, core, step, task);
    if (trace && step.block_begin != step.block_end) {
        event.end_ns = now_ns();
        context.events.add(event);
    }
    return goes_on;
}

bool Device::run_blocks(CoreContext& context, std::uint32_t core, const Step& step,
                        const TaskDescriptor& task) {
    if (static_cast<TaskKind>(task.kind) == TaskKind::call) {
        if (step.block_begin == step.block_end) return true;
        char message[1024] = {};
        const auto call = reinterpret_cast<CallFunction>(task.entry);
        const std::int32_t code = call(reinterpret_cast<void*>(task.context), message, sizeof message);
        if (code == 0) return true;
        message[sizeof message - 1] = '\0';
        stop(RunResult::failed, task.task_id, core, static_cast<std::uint32_t>(code), message);
        return false;
    }
    const auto kernel = reinterpret_cast<gs_kernel>(task.entry);
    context.args.slots = reinterpret_cast<const gs_slot*>(task.slots);
    context.args.slot_count = task.slot_count;
    for (std::uint32_t block = step.block_begin; block < step.block_end; ++block)
        kernel(&context.args, block, task.block_dim);
    if (context.error == 0) return true;
    stop(RunResult::failed, task.task_id, core, context.error, {});
    return false;
}

bool Device::run_control(std::uint32_t core, const Control& control) {
    std::int64_t value = 0;
    progress_[core].task_id.store(control.task_id, std::memory_order_relaxed);
    if (!decide(core, control, value)) return false;
    switch (control.kind) {
        case TaskKind::branch_if: {
            const std::size_t body = value != 0 ? 0 : 1;
            return body >= control.bodies.size() || run_body(core, control.bodies[body]);
        }
        case TaskKind::branch_switch: {
            // Unsigned: a negative index is as much out of range as one that is too large.
            const auto body = static_cast<std::uint64_t>(value);
            return body >= control.bodies.size() ||
                   run_body(core, control.bodies[static_cast<std::size_t>(body)]);
        }
        default:
            while (value != 0) {
                if (!run_body(core, control.bodies[0]) || !decide(core, control, value)) return false;
            }
            return true;
    }
}

// Waits until every core has come this far.
bool Device::join_cores(std::uint32_t core) {
    for (std::uint32_t other = 0; other < num_cores(); ++other) {
        if (other != core && !wait_for(core, other, contexts_[core].base[other], nullptr, nullptr))
            return false;
    }
    return true;
}

// Core 0 reads the variable when every core has reached this point, and tells the others; so all take the
// same way, whatever happens to the variable afterwards.
bool Device::decide(std::uint32_t core, const Control& control, std::int64_t& value) {
    CoreContext& context = contexts_[core];
    const std::uint64_t number = ++context.decisions;
    context.decided_by = control.task_id;
    if (core != 0) {
        for (std::uint32_t spin = 1; decisions_made_.load(std::memory_order_acquire) < number; ++spin) {
            if (spin % kSpinsPerCheck == 0 && stopped(core)) return false;
            spin_once(spin);
        }
        value = decision_;
        // Core 0 may only decide again when this value has been read: arrive with one step more.
        progress_[core].steps.store(++context.base[core], std::memory_order_release);
        for (std::uint32_t other = 0; other < num_cores(); ++other) context.base[other] += other != core;
        return true;
    }
    if (stopped(core)) return false;
    for (std::uint32_t other = 1; other < num_cores(); ++other) {
        if (!wait_for(core, other, context.base[other], nullptr, nullptr)) return false;
    }
    value = *static_cast<const volatile std::int64_t*>(control.condition);
    decision_ = value;
    decisions_made_.store(number, std::memory_order_release);
    for (std::uint64_t& base : context.base) ++base;
    progress_[core].steps.store(context.base[core], std::memory_order_release);
    return true;
}

bool Device::wait_for(std::uint32_t core, std::uint32_t other, std::uint64_t target,
                      const TaskDescriptor* next, const Step* step) {
    progress_[core].waiting.store(true, std::memory_order_relaxed);
    const char* line = nullptr;
    const char* end = nullptr;
    if (next != nullptr && next->prefetch_bytes != 0) {
        // Time that would be spent spinning brings this core's share of the next operand closer.
        const std::uint64_t share = next->prefetch_bytes / next->block_dim;
        line = reinterpret_cast<const char*>(next->prefetch_address) + share * step->block_begin;
        end = line + share * (step->block_end - step->block_begin);
    }
    bool reached = true;
    for (std::uint32_t spin = 1; progress_[other].steps.load(std::memory_order_acquire) < target; ++spin) {
        if (spin % kSpinsPerCheck == 0 && stopped(core)) {
            reached = false;
            break;
        }
        if (line < end) {
            __builtin_prefetch(line, 0, 1);
            line += kCacheLineBytes;
        } else {
            spin_once(spin);
        }
    }
    progress_[core].waiting.store(false, std::memory_order_relaxed);
    return reached;
}

// Another core runs a call that may bring threads of its own: give the core away after a short spin.
bool Device::sleep_for(std::uint32_t core, std::uint32_t other, std::uint64_t target) {
    progress_[core].waiting.store(true, std::memory_order_relaxed);
    bool reached = false;
    for (;;) {
        const std::uint32_t seen = calls_ended_.load();
        reached = progress_[other].steps.load(std::memory_order_acquire) >= target;
        if (reached || stopped(core)) break;
        calls_ended_.wait_while(seen, options_.call_spin, kLongestSleep, &parks_);
    }
    progress_[core].waiting.store(false, std::memory_order_relaxed);
    return reached;
}

}  // namespace graphsink
