// Tasks as a plan describes them, and as the device keeps them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graphsink/kernel_abi.h"

namespace graphsink {

enum class TaskKind : std::uint8_t {
    kernel = 0,  // gs_kernel, once per block
    call = 1,    // CallFunction: an ATen operator or a Python callback, alone on the device
    copy = 2,    // memcpy of slots [destination, source, bytes]
    fill = 3,    // memset of slots [destination, byte value, bytes]
    branch_if = 4,
    loop_while = 5,
    branch_switch = 6,
};

const char* task_kind_name(TaskKind kind);

inline bool is_control(TaskKind kind) {
    return kind >= TaskKind::branch_if;
}

// A call outside of the kernel interface. Returns 0, or an error code with a text in `message` (zero
// terminated, at most `capacity` bytes). Must not throw.
using CallFunction = std::int32_t (*)(void* context, char* message, std::uint64_t capacity);

// A slot is a fixed value, or a scalar parameter of the instance that may change between executions.
struct SlotSpec {
    gs_slot value{};
    std::int32_t parameter = -1;  // index into the instance's scalars, or -1
};

struct TaskSpec;
using TaskBody = std::vector<TaskSpec>;

// One task of a plan. Which members count depends on the kind.
struct TaskSpec {
    TaskKind kind = TaskKind::kernel;
    std::string name;         // kernel or operator, for messages
    std::string module_path;  // where in the user's model it came from; may be empty
    gs_kernel kernel = nullptr;
    CallFunction call = nullptr;
    void* call_context = nullptr;
    std::uint32_t block_dim = 1;
    std::vector<SlotSpec> slots;
    std::vector<std::uint32_t> depends_on;  // earlier tasks of the same body
    std::vector<std::uint32_t> cores;       // empty: chosen at load
    std::uintptr_t prefetch_address = 0;    // read while waiting, each core its share
    std::uint64_t prefetch_bytes = 0;
    const std::int64_t* condition = nullptr;  // control tasks: 8-byte variable
    std::vector<TaskBody> bodies;             // control tasks
};

// What the device reads of a task: one cache line.
struct alignas(64) TaskDescriptor {
    std::uint8_t kind;
    std::uint8_t reserved0[3];
    std::uint32_t task_id;  // index into the instance's task names
    std::uint64_t entry;    // address of the function
    std::uint64_t context;  // call: its context; else 0
    std::uint64_t slots;    // address of the first slot
    std::uint32_t slot_count;
    std::uint32_t block_dim;
    std::uint64_t prefetch_address;
    std::uint64_t prefetch_bytes;
    std::uint64_t reserved1;
};
static_assert(sizeof(TaskDescriptor) == 64, "a descriptor is one cache line");

}  // namespace graphsink
