#include "runtime/program.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <stdexcept>

namespace graphsink {

const char* task_kind_name(TaskKind kind) {
    static constexpr const char* kNames[] = {"kernel", "call", "copy", "fill", "if", "while", "switch"};
    return kNames[static_cast<std::size_t>(kind)];
}

namespace {

// Copies of at least this many bytes are divided among cores.
constexpr std::uint64_t kBytesPerCopyBlock = 256 << 10;
// Bodies within bodies: every level is a frame on the stack of every core.
constexpr std::size_t kDeepestNesting = 64;

struct Range {
    std::uint64_t begin, end;
};

Range share_of(std::uint64_t total, std::uint32_t block, std::uint32_t block_dim) {
    const std::uint64_t per_block = ((total + block_dim - 1) / block_dim + 63) / 64 * 64;
    const std::uint64_t begin = std::min(total, per_block * block);
    return {begin, std::min(total, begin + per_block)};
}

// A size may be a parameter, so it is known only when the task runs.
bool accepts_size(const gs_args* args) {
    if (args->slots[2].i64 >= 0) return true;
    *args->error = GS_ERROR_BAD_ARGUMENT;
    return false;
}

void copy_kernel(const gs_args* args, std::uint32_t block, std::uint32_t block_dim) {
    if (!accepts_size(args)) return;
    const Range range = share_of(args->slots[2].u64, block, block_dim);
    std::memcpy(static_cast<char*>(args->slots[0].address) + range.begin,
                static_cast<const char*>(args->slots[1].address) + range.begin, range.end - range.begin);
}

void fill_kernel(const gs_args* args, std::uint32_t block, std::uint32_t block_dim) {
    if (!accepts_size(args)) return;
    const Range range = share_of(args->slots[2].u64, block, block_dim);
    std::memset(static_cast<char*>(args->slots[0].address) + range.begin,
                static_cast<int>(args->slots[1].i64 & 0xff), range.end - range.begin);
}

std::string described(const TaskSpec& task, std::size_t index) {
    std::string text =
        std::string(task_kind_name(task.kind)) + " task " + std::to_string(index) + " '" + task.name + "'";
    return task.module_path.empty() ? text : text + " (" + task.module_path + ")";
}

[[noreturn]] void refuse(const TaskSpec& task, std::size_t index, const std::string& why) {
    throw std::invalid_argument(described(task, index) + ": " + why);
}

// How far each core has come, as far as one point of the program can be sure.
using Clock = std::vector<std::uint32_t>;

void advance(Clock& clock, const Clock& other) {
    for (std::size_t core = 0; core < clock.size(); ++core) clock[core] = std::max(clock[core], other[core]);
}

// Lowers the tasks between two control tasks.
class RegionBuilder {
  public:
    explicit RegionBuilder(std::uint32_t num_cores)
        : num_cores_(num_cores), known_(num_cores, Clock(num_cores, 0)) {
        region_.cores.resize(num_cores);
    }

    bool empty() const { return finished_.empty(); }

    // `local_dependencies` are positions within this region, in the order of `add`.
    void add(std::uint32_t descriptor, const TaskSpec& task, std::uint32_t block_dim,
             const std::vector<std::uint32_t>& local_dependencies) {
        Needs needs{Clock(num_cores_, 0), Clock(num_cores_, 0)};
        for (const std::uint32_t dependency : local_dependencies) {
            advance(needs.wait_for, own_steps_[dependency]);
            advance(needs.then_known, finished_[dependency]);
        }
        if (task.kind == TaskKind::call) {
            add_call(descriptor, needs);
        } else {
            add_blocks(descriptor, participants(task, block_dim), block_dim, needs);
        }
        is_call_.push_back(task.kind == TaskKind::call);
    }

    Region finish() {
        mark_published();
        return std::move(region_);
    }

  private:
    // What a step has to wait for, and what is certain after it: the tasks that it depends on have waited
    // for others in their turn.
    struct Needs {
        Clock wait_for;
        Clock then_known;
    };

    std::vector<std::uint32_t> participants(const TaskSpec& task, std::uint32_t block_dim) const {
        std::vector<std::uint32_t> cores = task.cores;
        if (cores.empty()) {
            cores.resize(num_cores_);
            std::iota(cores.begin(), cores.end(), 0U);
        }
        if (cores.size() > block_dim) cores.resize(block_dim);
        return cores;
    }

    void add_blocks(std::uint32_t descriptor, const std::vector<std::uint32_t>& cores,
                    std::uint32_t block_dim, const Needs& needs) {
        Clock finished(num_cores_, 0);
        Clock own_steps(num_cores_, 0);
        const auto count = static_cast<std::uint64_t>(cores.size());
        for (std::uint64_t member = 0; member < count; ++member) {
            const std::uint32_t core = cores[member];
            const auto begin = static_cast<std::uint32_t>(block_dim * member / count);
            const auto end = static_cast<std::uint32_t>(block_dim * (member + 1) / count);
            append_step(core, descriptor, begin, end, needs, false);
            own_steps[core] = step_count(core);
            advance(finished, known_[core]);
        }
        own_steps_.push_back(own_steps);
        finished_.push_back(finished);
    }

    // A call owns the device: core 0 starts it when every other core has stopped, and the others go on when
    // it has ended. Calls in a row share one stop.
    void add_call(std::uint32_t descriptor, Needs needs) {
        const bool continues = !is_call_.empty() && is_call_.back();
        if (continues) {
            // The others still sleep in the step of the call before: let that step wait for this one, too.
            append_step(0, descriptor, 0, 1, needs, false);
            extend_stops();
        } else {
            for (std::uint32_t core = 1; core < num_cores_; ++core) needs.wait_for[core] = step_count(core);
            append_step(0, descriptor, 0, 1, needs, false);
            Needs end_of_call{Clock(num_cores_, 0), known_[0]};
            end_of_call.wait_for[0] = step_count(0);
            for (std::uint32_t core = 1; core < num_cores_; ++core) {
                append_step(core, descriptor, 0, 0, end_of_call, true);
            }
        }
        Clock own_steps(num_cores_, 0);
        own_steps[0] = step_count(0);
        own_steps_.push_back(own_steps);
        finished_.push_back(known_[0]);
    }

    void extend_stops() {
        for (std::uint32_t core = 1; core < num_cores_; ++core) {
            CoreProgram& program = region_.cores[core];
            program.waits[program.steps.back().first_wait].steps = step_count(0);
            advance(known_[core], known_[0]);
        }
    }

    std::uint32_t step_count(std::uint32_t core) const {
        return static_cast<std::uint32_t>(region_.cores[core].steps.size());
    }

    void append_step(std::uint32_t core, std::uint32_t descriptor, std::uint32_t begin, std::uint32_t end,
                     const Needs& needs, bool long_wait) {
        CoreProgram& program = region_.cores[core];
        Clock& known = known_[core];
        const auto first_wait = static_cast<std::uint32_t>(program.waits.size());
        for (std::uint32_t other = 0; other < num_cores_; ++other) {
            if (other == core || needs.wait_for[other] <= known[other]) continue;
            program.waits.push_back({other, needs.wait_for[other]});
            known[other] = needs.wait_for[other];
        }
        advance(known, needs.then_known);
        const auto count = static_cast<std::uint32_t>(program.waits.size()) - first_wait;
        program.steps.push_back({descriptor, begin, end, first_wait, count, false, long_wait});
        known[core] = step_count(core);
    }

    // A store to a shared line costs the reader a miss, so progress is published only where it is read.
    void mark_published() {
        for (CoreProgram& program : region_.cores) {
            if (!program.steps.empty()) program.steps.back().publish = true;
            for (const Wait& wait : program.waits)
                region_.cores[wait.core].steps[wait.steps - 1].publish = true;
        }
    }

    std::uint32_t num_cores_;
    Region region_;
    std::vector<Clock> known_;      // per core, at the end of its steps so far
    std::vector<Clock> own_steps_;  // per task: the steps that make it up
    std::vector<Clock> finished_;   // per task: what is certain once it has ended
    std::vector<bool> is_call_;
};

class Lowering {
  public:
    Lowering(Program& program, std::uint32_t num_cores, std::uint32_t num_parameters)
        : program_(program), num_cores_(num_cores), num_parameters_(num_parameters) {}

    Body lower_body(const TaskBody& tasks, std::size_t depth) {
        Body body;
        RegionBuilder builder(num_cores_);
        std::size_t region_start = 0;
        for (std::size_t index = 0; index < tasks.size(); ++index) {
            const TaskSpec& task = tasks[index];
            check(task, index);
            const std::uint32_t task_id = add_label(task);
            if (is_control(task.kind)) {
                close_region(builder, body);
                builder = RegionBuilder(num_cores_);
                region_start = index + 1;
                if (depth == kDeepestNesting)
                    refuse(task, index, "is nested " + std::to_string(depth) + " levels deep");
                add_control(task, task_id, body, depth);
                continue;
            }
            std::vector<std::uint32_t> local;
            for (const std::uint32_t dependency : task.depends_on) {
                // A control task and everything before it has ended before the region starts.
                if (dependency >= region_start)
                    local.push_back(static_cast<std::uint32_t>(dependency - region_start));
            }
            const std::uint32_t block_dim = blocks_of(task);
            builder.add(add_descriptor(task, task_id, block_dim), task, block_dim, local);
        }
        close_region(builder, body);
        return body;
    }

  private:
    void check(const TaskSpec& task, std::size_t index) const {
        for (const std::uint32_t dependency : task.depends_on) {
            if (dependency >= index) {
                refuse(task, index,
                       "depends on task " + std::to_string(dependency) +
                           ", which does not come before it; nothing would ever signal it");
            }
        }
        std::set<std::uint32_t> seen;
        for (const std::uint32_t core : task.cores) {
            if (core >= num_cores_) {
                refuse(task, index,
                       "core " + std::to_string(core) + " of a device with " + std::to_string(num_cores_) +
                           " cores");
            }
            if (!seen.insert(core).second)
                refuse(task, index, "core " + std::to_string(core) + " is named twice");
        }
        for (const SlotSpec& slot : task.slots) {
            if (slot.parameter >= 0 && static_cast<std::uint32_t>(slot.parameter) >= num_parameters_) {
                refuse(task, index, "a slot names a parameter that the instance does not have");
            }
        }
        check_kind(task, index);
    }

    static void check_kind(const TaskSpec& task, std::size_t index) {
        if (task.kind == TaskKind::kernel && task.kernel == nullptr) refuse(task, index, "has no function");
        if (task.kind == TaskKind::call && task.call == nullptr) refuse(task, index, "has no function");
        if (task.kind == TaskKind::kernel && task.block_dim == 0) refuse(task, index, "block_dim is 0");
        if (task.kind == TaskKind::copy || task.kind == TaskKind::fill) check_memory(task, index);
        if (is_control(task.kind)) check_control(task, index);
    }

    static void check_memory(const TaskSpec& task, std::size_t index) {
        if (task.slots.size() != 3) refuse(task, index, "needs exactly 3 slots");
        const std::size_t num_addresses = task.kind == TaskKind::copy ? 2 : 1;
        for (std::size_t i = 0; i < num_addresses; ++i) {
            if (task.slots[i].parameter < 0 && task.slots[i].value.u64 == 0)
                refuse(task, index, "an address is 0");
        }
        const bool known =
            task.slots[0].parameter < 0 && task.slots[1].parameter < 0 && task.slots[2].parameter < 0;
        if (task.kind == TaskKind::fill || !known) return;
        const std::uint64_t destination = task.slots[0].value.u64, source = task.slots[1].value.u64;
        const std::uint64_t distance = destination < source ? source - destination : destination - source;
        if (distance < task.slots[2].value.u64) refuse(task, index, "source and destination overlap");
    }

    static void check_control(const TaskSpec& task, std::size_t index) {
        const auto address = reinterpret_cast<std::uintptr_t>(task.condition);
        if (address == 0 || address % alignof(std::int64_t) != 0) {
            refuse(task, index, "its variable must be an address that is a multiple of 8");
        }
        const std::size_t most = task.kind == TaskKind::branch_if ? 2 : 1;
        const bool wrong =
            task.bodies.empty() || (task.kind != TaskKind::branch_switch && task.bodies.size() > most);
        if (wrong) refuse(task, index, "has " + std::to_string(task.bodies.size()) + " bodies");
    }

    std::uint32_t add_label(const TaskSpec& task) {
        program_.labels.push_back({task.kind, task.name, task.module_path});
        return static_cast<std::uint32_t>(program_.labels.size() - 1);
    }

    std::uint32_t blocks_of(const TaskSpec& task) const {
        if (task.kind == TaskKind::call) return 1;
        if (task.kind == TaskKind::kernel) return task.block_dim;
        const SlotSpec& bytes = task.slots[2];
        if (bytes.parameter >= 0) return 1;
        const std::uint64_t blocks = bytes.value.u64 / kBytesPerCopyBlock;
        return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(blocks, 1, num_cores_));
    }

    std::uint32_t add_descriptor(const TaskSpec& task, std::uint32_t task_id, std::uint32_t block_dim) {
        TaskDescriptor descriptor{};
        descriptor.kind = static_cast<std::uint8_t>(task.kind);
        descriptor.task_id = task_id;
        descriptor.entry = entry_of(task);
        descriptor.context = reinterpret_cast<std::uint64_t>(task.call_context);
        descriptor.slots = program_.slots.size();  // an index until all slots have their place
        descriptor.slot_count = static_cast<std::uint32_t>(task.slots.size());
        descriptor.block_dim = block_dim;
        descriptor.prefetch_address = task.prefetch_address;
        descriptor.prefetch_bytes = task.prefetch_bytes;
        for (const SlotSpec& slot : task.slots) {
            if (slot.parameter >= 0) {
                program_.patches.push_back(
                    {program_.slots.size(), static_cast<std::uint32_t>(slot.parameter)});
            }
            program_.slots.push_back(slot.value);
        }
        program_.descriptors.push_back(descriptor);
        return static_cast<std::uint32_t>(program_.descriptors.size() - 1);
    }

    static std::uint64_t entry_of(const TaskSpec& task) {
        switch (task.kind) {
            case TaskKind::copy:
                return reinterpret_cast<std::uint64_t>(&copy_kernel);
            case TaskKind::fill:
                return reinterpret_cast<std::uint64_t>(&fill_kernel);
            case TaskKind::call:
                return reinterpret_cast<std::uint64_t>(task.call);
            default:
                return reinterpret_cast<std::uint64_t>(task.kernel);
        }
    }

    void close_region(RegionBuilder& builder, Body& body) {
        if (builder.empty()) return;
        program_.regions.push_back(builder.finish());
        for (const CoreProgram& core : program_.regions.back().cores) {
            program_.num_steps += core.steps.size();
            program_.num_waits += core.waits.size();
        }
        const bool joins = !body.nodes.empty() &&
                           program_.controls[static_cast<std::size_t>(body.nodes.back().control)].kind !=
                               TaskKind::loop_while;
        body.nodes.push_back({static_cast<std::int32_t>(program_.regions.size() - 1), -1, joins});
    }

    void add_control(const TaskSpec& task, std::uint32_t task_id, Body& body, std::size_t depth) {
        Control control{task.kind, task_id, task.condition, {}};
        for (const TaskBody& inner : task.bodies) control.bodies.push_back(lower_body(inner, depth + 1));
        program_.controls.push_back(std::move(control));
        body.nodes.push_back({-1, static_cast<std::int32_t>(program_.controls.size() - 1), false});
    }

    Program& program_;
    std::uint32_t num_cores_;
    std::uint32_t num_parameters_;
};

}  // namespace

std::unique_ptr<Program> lower(const TaskBody& body, std::uint32_t num_cores, std::uint32_t num_parameters) {
    auto program = std::make_unique<Program>();
    program->main = Lowering(*program, num_cores, num_parameters).lower_body(body, 0);
    for (TaskDescriptor& descriptor : program->descriptors) {
        descriptor.slots = reinterpret_cast<std::uint64_t>(program->slots.data() + descriptor.slots);
    }
    return program;
}

}  // namespace graphsink
