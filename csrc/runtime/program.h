// Lowering: a task list becomes one static program per core.
//
// Tasks between two control tasks form a region. Within it every core has a list of steps that it runs in
// order. The only communication is one progress counter per core: it says how many steps of the core are
// done, and a step that depends on another core's work waits until that counter is high enough. So there
// is no scheduler while a graph runs, and no atomic read-modify-write.
//
// Which waits are needed is known at load: a step knows, for each core, how far it must have come (a
// vector clock), and what earlier waits of the same core have proved already is not waited for again.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/task.h"

namespace graphsink {

// "Core `core` has finished its first `steps` steps of this region."
struct Wait {
    std::uint32_t core;
    std::uint32_t steps;
};

struct Step {
    std::uint32_t descriptor;  // index into Program::descriptors
    std::uint32_t block_begin;
    std::uint32_t block_end;  // equal to block_begin: wait only (another core runs the task alone)
    std::uint32_t first_wait;
    std::uint32_t wait_count;
    bool publish;    // some core waits for this step, or it is the last one
    bool long_wait;  // what it waits for runs alone and may take long: sleep instead of spinning
};

struct CoreProgram {
    std::vector<Step> steps;
    std::vector<Wait> waits;
};

struct Region {
    std::vector<CoreProgram> cores;
};

struct Control;

// A body is a sequence of regions and control tasks.
struct Node {
    std::int32_t region = -1;   // index into Program::regions, or
    std::int32_t control = -1;  // index into Program::controls
    // The region follows an IF or a SWITCH: cores leave its body one by one, so they meet before they go on.
    // (A WHILE ends with a decision, where they have met already.)
    bool joins = false;
};

struct Body {
    std::vector<Node> nodes;
};

struct Control {
    TaskKind kind;
    std::uint32_t task_id;
    const std::int64_t* condition;
    std::vector<Body> bodies;
};

struct TaskLabel {
    TaskKind kind;
    std::string name;
    std::string module_path;
};

// A scalar parameter that is used by a slot.
struct SlotPatch {
    std::uint64_t slot_index;
    std::uint32_t parameter;
};

struct Program {
    std::vector<TaskDescriptor> descriptors;  // addresses of `slots` are filled in
    std::vector<gs_slot> slots;
    std::vector<SlotPatch> patches;
    std::vector<TaskLabel> labels;  // by task id
    std::vector<Region> regions;
    std::vector<Control> controls;
    Body main;
    std::uint64_t num_steps = 0;
    std::uint64_t num_waits = 0;
};

// Lowers `body` for a device of `num_cores` cores.
// Throws std::invalid_argument, naming the task, for: a dependency on a task that does not come before it
// in the same body (nothing would ever signal it), block_dim 0, a core that the device does not have, a
// parameter index outside of `num_parameters`, a missing function, a misaligned condition variable, a wrong
// number of bodies, bodies nested too deep, or a copy between addresses that overlap or are 0.
std::unique_ptr<Program> lower(const TaskBody& body, std::uint32_t num_cores, std::uint32_t num_parameters);

}  // namespace graphsink
