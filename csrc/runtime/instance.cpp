#include "runtime/instance.h"

#include <stdexcept>
#include <utility>

namespace graphsink {

const char* instance_state_name(InstanceState state) {
    static constexpr const char* kNames[] = {"NONE", "READY", "RUNNING", "FAULT"};
    return kNames[static_cast<std::size_t>(state)];
}

Instance::Instance(std::unique_ptr<Program> program, std::uint32_t num_parameters, std::uint32_t id)
    : program_(std::move(program)), slots_of_parameter_(num_parameters), id_(id) {
    for (const SlotPatch& patch : program_->patches) slots_of_parameter_[patch.parameter].push_back(patch.slot_index);
}

void Instance::set_parameter(std::uint32_t parameter, gs_slot value) {
    if (state() == InstanceState::running) throw std::logic_error("the instance is running");
    for (const std::uint64_t index : slots_of_parameter_.at(parameter)) program_->slots[index] = value;
}

InstanceState Instance::begin_run() {
    auto expected = static_cast<std::uint32_t>(InstanceState::ready);
    state_.compare_exchange_strong(expected, static_cast<std::uint32_t>(InstanceState::running));
    return static_cast<InstanceState>(expected);
}

void Instance::end_run(Outcome outcome) {
    const bool ok = outcome.result == RunResult::ok;
    {
        const std::lock_guard lock(outcome_mutex_);
        outcome_ = std::move(outcome);
    }
    const InstanceState next = ok ? InstanceState::ready : InstanceState::fault;
    state_.store(static_cast<std::uint32_t>(next), std::memory_order_release);
    runs_ended_.store_and_wake(runs_ended_.load() + 1);
}

Outcome Instance::take_outcome() {
    const std::lock_guard lock(outcome_mutex_);
    auto expected = static_cast<std::uint32_t>(InstanceState::fault);
    if (!state_.compare_exchange_strong(expected, static_cast<std::uint32_t>(InstanceState::ready))) return {};
    return std::exchange(outcome_, Outcome{});
}

bool Instance::destroy() {
    for (const InstanceState from : {InstanceState::ready, InstanceState::fault}) {
        auto expected = static_cast<std::uint32_t>(from);
        if (state_.compare_exchange_strong(expected, static_cast<std::uint32_t>(InstanceState::none))) return true;
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
