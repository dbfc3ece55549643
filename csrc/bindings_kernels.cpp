// Python face of prebuilt kernels: listing, single calls for tests, timing. Conversion only.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "kernels/kernel_call.h"
#include "kernels/registry.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace graphsink {

// An int is an address or an integer, a float is a double: the two things that a slot can be.
std::vector<gs_slot> slots_from_python(const nb::list& values) {
    std::vector<gs_slot> slots;
    slots.reserve(values.size());
    for (nb::handle value : values) {
        gs_slot slot{};
        if (nb::isinstance<nb::float_>(value)) {
            slot.f64 = nb::cast<double>(value);
        } else {
            slot.i64 = nb::cast<std::int64_t>(value);
        }
        slots.push_back(slot);
    }
    return slots;
}

void bind_kernels(nb::module_& m) {
    m.attr("KERNEL_ABI_VERSION") = GS_KERNEL_ABI_VERSION;
    m.def(
        "kernel_levels",
        [](const std::string& level) {
            nb::dict levels;
            for (const KernelBuild& build : kernels_at(isa_level_from_name(level))) {
                levels[build.name.c_str()] = isa_level_name(build.level);
            }
            return levels;
        },
        "level"_a, nb::sig("def kernel_levels(level: str) -> dict[str, str]"),
        "Prebuilt kernels to use at a level: name -> level that it was built for.");
    m.def(
        "kernel_address",
        [](const std::string& name, const std::string& level) {
            return reinterpret_cast<std::uintptr_t>(find_kernel(name, isa_level_from_name(level)).function);
        },
        "name"_a, "level"_a, "Address of the build to use at a level. IndexError for an unknown name.");
    m.def(
        "call_kernel",
        [](const std::string& name, const std::string& level, const nb::list& slots, std::uint32_t block_dim,
           std::uint64_t scratch_bytes) {
            const KernelBuild kernel = find_kernel(name, isa_level_from_name(level));
            const std::vector<gs_slot> arguments = slots_from_python(slots);
            nb::gil_scoped_release release;
            return call_kernel(kernel, arguments, block_dim, scratch_bytes);
        },
        "name"_a, "level"_a, "slots"_a, "block_dim"_a = 1, "scratch_bytes"_a = 1 << 20,
        nb::sig("def call_kernel(name: str, level: str, slots: list[int | float], block_dim: int = 1, "
                "scratch_bytes: int = 1048576) -> int"),
        "Run all blocks of a kernel on this thread; slots are ints and floats. Returns the error code.");
    m.def(
        "time_kernel",
        [](const std::string& name, const std::string& level, const nb::list& slots, std::uint32_t block_dim,
           const std::vector<int>& cores, int rounds, std::uint64_t scratch_bytes) {
            const KernelBuild kernel = find_kernel(name, isa_level_from_name(level));
            const std::vector<gs_slot> arguments = slots_from_python(slots);
            nb::gil_scoped_release release;
            return time_kernel(kernel, arguments, block_dim, scratch_bytes, cores, rounds);
        },
        "name"_a, "level"_a, "slots"_a, "block_dim"_a, "cores"_a, "rounds"_a, "scratch_bytes"_a = 1 << 20,
        nb::sig("def time_kernel(name: str, level: str, slots: list[int | float], block_dim: int, cores: "
                "Sequence[int], rounds: int, scratch_bytes: int = 1048576) -> list[float]"),
        "Seconds of each of `rounds` runs with one pinned thread per core.");
}

}  // namespace graphsink
