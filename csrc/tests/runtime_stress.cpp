// Stress of the runtime for the thread and address sanitizers: random graphs and control flow against a
// sequential interpreter, calls, faults, time-outs, aborts, several threads and devices.
//
//     runtime_stress SECONDS [SEED]
//
// Kernels touch plain memory, so a wait that is missing is a data race that the thread sanitizer reports.
// Exits with 1, and says why, at the first wrong result.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/device.h"
#include "runtime/program.h"

namespace {

using namespace graphsink;
using Random = std::mt19937;

constexpr std::uint32_t kLength = 16;
constexpr std::uint32_t kArrays = 4;
constexpr std::chrono::nanoseconds kNoTimeout{-1};

std::uint32_t below(Random& random, std::uint32_t limit) {
    return static_cast<std::uint32_t>(random() % limit);
}

void check(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "runtime_stress: %s\n", what);
    std::exit(1);
}

// ---- kernels and calls

// [target, a, b, constant]: the same as the kernel `combine`.
void combine(const gs_args* args, std::uint32_t block, std::uint32_t block_dim) {
    auto* target = static_cast<std::uint64_t*>(args->slots[0].address);
    const auto* a = static_cast<const std::uint64_t*>(args->slots[1].address);
    const auto* b = static_cast<const std::uint64_t*>(args->slots[2].address);
    for (std::uint32_t i = kLength * block / block_dim; i < kLength * (block + 1) / block_dim; ++i) {
        target[i] = 31 * a[i] + 17 * b[kLength - 1 - i] + args->slots[3].u64;
    }
}

// [address, value]
void add(const gs_args* args, std::uint32_t block, std::uint32_t) {
    if (block == 0) *static_cast<std::int64_t*>(args->slots[0].address) += args->slots[1].i64;
}

void fail_on_last_core(const gs_args* args, std::uint32_t, std::uint32_t) {
    if (args->core == args->slots[0].u64) *args->error = GS_ERROR_USER;
}

std::int32_t count_call(void* context, char*, std::uint64_t) {
    ++*static_cast<std::int64_t*>(context);
    return 0;
}

SlotSpec slot(const void* address) {
    SlotSpec spec;
    spec.value.address = const_cast<void*>(address);
    return spec;
}

SlotSpec slot(std::int64_t value) {
    SlotSpec spec;
    spec.value.i64 = value;
    return spec;
}

TaskSpec kernel_task(gs_kernel kernel, std::vector<SlotSpec> slots, std::uint32_t blocks,
                     std::uint32_t index) {
    TaskSpec task;
    task.name = "kernel";
    task.kernel = kernel;
    task.block_dim = blocks;
    task.slots = std::move(slots);
    if (index > 0) task.depends_on = {index - 1};
    return task;
}

TaskSpec call_task(std::int64_t* counter) {
    TaskSpec task;
    task.kind = TaskKind::call;
    task.name = "call";
    task.call = &count_call;
    task.call_context = counter;
    return task;
}

std::shared_ptr<Instance> load(const Device& device, const TaskBody& body) {
    return std::make_shared<Instance>(lower(body, device.num_cores(), 0), 0, 1);
}

RunResult run(Device& device, Instance& instance, std::chrono::nanoseconds timeout = kNoTimeout) {
    check(instance.begin_run() == InstanceState::ready, "an instance was not ready");
    const Outcome outcome = device.execute(instance, timeout, 0);
    instance.end_run({});
    return outcome.result;
}

// ---- random graphs

using Arrays = std::vector<std::vector<std::uint64_t>>;

struct Node {
    std::uint32_t target, a, b, constant;
    bool calls;
    bool touches(const Node& other) const {
        return other.target == a || other.target == b || other.target == target || target == other.a ||
               target == other.b;
    }
};

Node random_node(Random& random) {
    Node node{below(random, kArrays), 0, 0, below(random, 100), below(random, 8) == 0};
    node.a = (node.target + 1 + below(random, kArrays - 1)) % kArrays;
    node.b = (node.target + 1 + below(random, kArrays - 1)) % kArrays;
    return node;
}

// Declares only the dependencies that the data ask for. A call depends on the node before it.
TaskBody tasks_of(const std::vector<Node>& nodes, Arrays& arrays, std::int64_t* calls, Random& random,
                  std::uint32_t cores) {
    TaskBody body;
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
        const Node& node = nodes[i];
        TaskSpec task =
            kernel_task(&combine,
                        {slot(arrays[node.target].data()), slot(arrays[node.a].data()),
                         slot(arrays[node.b].data()), slot(static_cast<std::int64_t>(node.constant))},
                        1 + below(random, 4), 0);
        if (node.calls) task = call_task(calls);
        for (std::uint32_t earlier = 0; earlier < i; ++earlier) {
            const bool data = !node.calls && !nodes[earlier].calls && node.touches(nodes[earlier]);
            const bool counted = node.calls && nodes[earlier].calls;
            if (data || counted) task.depends_on.push_back(earlier);
        }
        if (!node.calls && below(random, 2) == 0) task.cores = {below(random, cores)};
        body.push_back(task);
    }
    return body;
}

void interpret(const std::vector<Node>& nodes, Arrays& arrays) {
    for (const Node& node : nodes) {
        if (node.calls) continue;
        for (std::uint32_t i = 0; i < kLength; ++i) {
            arrays[node.target][i] =
                31 * arrays[node.a][i] + 17 * arrays[node.b][kLength - 1 - i] + node.constant;
        }
    }
}

void random_graph(Device& device, Random& random) {
    std::vector<Node> nodes(1 + below(random, 40));
    for (Node& node : nodes) node = random_node(random);
    Arrays arrays(kArrays, std::vector<std::uint64_t>(kLength, 1));
    Arrays expected = arrays;
    std::int64_t calls = 0, expected_calls = 0;
    const auto instance = load(device, tasks_of(nodes, arrays, &calls, random, device.num_cores()));
    for (int round = 0; round < 3; ++round) {
        check(run(device, *instance) == RunResult::ok, "a random graph failed");
        interpret(nodes, expected);
        for (const Node& node : nodes) expected_calls += node.calls;
    }
    check(arrays == expected, "a random graph gave a wrong result");
    check(calls == expected_calls, "a call was lost");
}

// ---- control flow: a loop with an IF and a SWITCH inside, all cores in turn

TaskSpec control(TaskKind kind, const std::int64_t* variable, std::vector<TaskBody> bodies,
                 std::uint32_t index) {
    TaskSpec task;
    task.kind = kind;
    task.name = "control";
    task.condition = variable;
    task.bodies = std::move(bodies);
    if (index > 0) task.depends_on = {index - 1};
    return task;
}

void random_loop(Device& device, Random& random) {
    const std::int64_t rounds = 1 + below(random, 20);
    alignas(8) std::int64_t left = rounds, odd = 1, taken = 0, cases[2] = {0, 0}, calls = 0;
    const auto on = [&](TaskSpec task) {
        task.cores = {below(random, device.num_cores())};
        return task;
    };
    const auto adds = [&](std::int64_t* target, std::int64_t value, std::uint32_t index) {
        return on(kernel_task(&add, {slot(target), slot(value)}, 2, index));
    };
    TaskBody flip{adds(&taken, 1, 0), adds(&odd, -1, 1)}, flop{adds(&odd, 1, 0)};
    TaskBody body{control(TaskKind::branch_if, &odd, {flip, flop}, 0),
                  control(TaskKind::branch_switch, &odd,
                          {{adds(&cases[0], 1, 0)}, {adds(&cases[1], 1, 0), call_task(&calls)}}, 1),
                  adds(&left, -1, 2)};
    const auto instance = load(device, {control(TaskKind::loop_while, &left, {body}, 0), adds(&left, 0, 1)});
    check(run(device, *instance) == RunResult::ok, "a loop failed");
    check(left == 0 && taken == (rounds + 1) / 2 && cases[0] == taken && cases[1] == rounds / 2,
          "a loop went wrong");
    check(calls <= rounds / 2, "a call ran too often");
}

// ---- ends that are no good ends

std::shared_ptr<Instance> endless(Device& device, std::int64_t* always, std::int64_t* counter) {
    const TaskBody body{kernel_task(&add, {slot(counter), slot(std::int64_t{1})}, 2, 0)};
    return load(device, {control(TaskKind::loop_while, always, {body}, 0)});
}

void faults_and_time_outs(Device& device) {
    alignas(8) std::int64_t always = 1, counter = 0;
    const auto last = static_cast<std::int64_t>(device.num_cores() - 1);
    const TaskBody body{kernel_task(&fail_on_last_core, {slot(last)}, device.num_cores(), 0),
                        kernel_task(&add, {slot(&counter), slot(std::int64_t{1})}, 1, 1)};
    check(run(device, *load(device, body)) == RunResult::failed, "a fault was lost");
    check(counter == 0, "a task ran after a fault");
    const auto loop = endless(device, &always, &counter);
    check(run(device, *loop, std::chrono::microseconds(300)) == RunResult::timed_out, "a time-out was lost");
}

void aborts(Device& device, Random& random) {
    alignas(8) std::int64_t always = 1, counter = 0, other_counter = 0;
    const auto first = endless(device, &always, &counter), second = endless(device, &always, &other_counter);
    check(device.submit(first) == InstanceState::ready, "submit was refused");
    check(device.submit(second) == InstanceState::ready, "submit was refused");
    std::this_thread::sleep_for(std::chrono::microseconds(below(random, 500)));
    if (below(random, 2) == 0) {
        device.abort(*second);
        device.abort(*first);
    } else {
        device.abort(*first);
        device.abort(*second);
    }
    for (const auto& instance : {first, second}) {
        instance->wait(std::chrono::nanoseconds(0), kNoTimeout);
        check(instance->fault().result == RunResult::aborted, "an abort was lost");
        check(instance->clear_fault(), "the fault was taken by somebody else");
    }
}

// ---- who does what

void worker(Device& device, unsigned seed, const std::atomic<bool>& over) {
    Random random(seed);
    while (!over.load()) {
        random_graph(device, random);
        random_loop(device, random);
        if (below(random, 4) == 0) faults_and_time_outs(device);
    }
}

// Devices come and go, the last one with a run in progress.
void short_lives(Random& random) {
    auto always = std::make_unique<std::int64_t>(1), counter = std::make_unique<std::int64_t>(0);
    Device device({{0, 1}, false, std::chrono::microseconds(below(random, 100))});
    random_graph(device, random);
    aborts(device, random);
    device.start_trace(64);
    random_loop(device, random);
    device.stop_trace();
    check(!device.step_events().empty(), "nothing was traced");
    device.submit(endless(device, always.get(), counter.get()));
    if (below(random, 2) == 0) std::this_thread::sleep_for(std::chrono::microseconds(below(random, 300)));
    device.shutdown();
}

}  // namespace

int main(int argc, char** argv) {
    const double seconds = argc > 1 ? std::atof(argv[1]) : 5;
    const unsigned seed = argc > 2 ? static_cast<unsigned>(std::atol(argv[2])) : std::random_device{}();
    std::printf("runtime_stress: %g s, seed %u\n", seconds, seed);
    std::fflush(stdout);
    std::atomic<bool> over{false};
    // More cores than the machine has: orders of events that two cores do not show.
    Device shared({{0, 1, 2}, false}), own({{0, 1}, false, std::chrono::nanoseconds(0)});
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 2; ++i) threads.emplace_back([&, i] { worker(shared, seed + i, over); });
    threads.emplace_back([&] { worker(own, seed + 2, over); });
    Random random(seed + 3);
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    std::uint64_t rounds = 0;
    for (; std::chrono::steady_clock::now() < end; ++rounds) short_lives(random);
    over.store(true);
    for (std::thread& thread : threads) thread.join();
    std::printf("runtime_stress: %llu runs on a shared device, %llu devices came and went\n",
                static_cast<unsigned long long>(shared.runs()), static_cast<unsigned long long>(rounds));
    return 0;
}
