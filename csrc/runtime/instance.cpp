#include "runtime/instance.h"

#include <utility>

namespace graphsink {

const char* instance_state_name(InstanceState state) {
    static constexpr const char* kNames[] = {"NONE", "READY", "RUNNING", "FAULT"};
    return kNames[static_cast<std::size_t>(state)];
}

Instance::Instance(std::unique_ptr<Program> program, std::uint32_t num_parameters, std::uint32_t id)
    : program_(std::move(program)), slots_of_parameter_(num_parameters), id_(id) {
    for (const SlotPatch& patch : program_->patches)
        slots_of_parameter_[patch.parameter].push_back(patch.slot_index);
}

bool Instance::set_parameter(std::uint32_t parameter, gs_slot value) {
    const std::lock_guard lock(change_mutex_);
    if (state() == InstanceState::running) return false;
    for (const std::uint64_t index : slots_of_parameter_.at(parameter)) program_->slots[index] = value;
    return true;
}

InstanceState Instance::begin_run() {
    const std::lock_guard lock(change_mutex_);
    auto expected = static_cast<std::uint32_t>(InstanceState::ready);
    if (state_.compare_exchange_strong(expected, static_cast<std::uint32_t>(InstanceState::running))) {
        abort_requested_.store(false, std::memory_order_relaxed);
    }
    return static_cast<InstanceState>(expected);
}

void Instance::request_abort() {
    const std::lock_guard lock(change_mutex_);
    if (state() == InstanceState::running) abort_requested_.store(true, std::memory_order_release);
}

void Instance::end_run(Outcome outcome) {
    const bool ok = outcome.result == RunResult::ok;
    {
        const std::lock_guard lock(outcome_mutex_);
        outcome_ = std::move(outcome);
    }
    const InstanceState next = ok ? InstanceState::ready : InstanceState::fault;
    state_.store(static_cast<std::uint32_t>(next), std::memory_order_release);
    runs_ended_.bump();
}

Outcome Instance::fault() {
    const std::lock_guard lock(outcome_mutex_);
    return state() == InstanceState::fault ? outcome_ : Outcome{};
}

bool Instance::clear_fault() {
    auto expected = static_cast<std::uint32_t>(InstanceState::fault);
    return state_.compare_exchange_strong(expected, static_cast<std::uint32_t>(InstanceState::ready));
}

bool Instance::destroy() {
    for (const InstanceState from : {InstanceState::ready, InstanceState::fault}) {
        auto expected = static_cast<std::uint32_t>(from);
        if (state_.compare_exchange_strong(expected, static_cast<std::uint32_t>(InstanceState::none)))
            return true;
    }
    return state() == InstanceState::none;
}

bool Instance::wait(std::chrono::nanoseconds spin, std::chrono::nanoseconds timeout) {
    const auto start = std::chrono::steady_clock::now();
    for (;;) {
        const std::uint32_t seen = runs_ended_.load();
        if (state() != InstanceState::running) return true;
        std::chrono::nanoseconds left = timeout;
        if (timeout.count() >= 0) {
            left = timeout - (std::chrono::steady_clock::now() - start);
            if (left.count() <= 0) return false;
        }
        runs_ended_.wait_while(seen, spin, left);
    }
}

}  // namespace graphsink
