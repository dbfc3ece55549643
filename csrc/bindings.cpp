// Python face of the native core: `graphsink._native`. Conversion only; no logic lives here.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "allowed_cores.h"
#include "cgroup.h"
#include "cpu_features.h"
#include "read_bandwidth.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace graphsink {

namespace {

void bind_processor(nb::module_& m) {
    nb::class_<CpuFeatures>(m, "CpuFeatures", "What this processor and operating system can run.")
        .def_ro("architecture", &CpuFeatures::architecture)
        .def_ro("vendor", &CpuFeatures::vendor)
        .def_ro("brand", &CpuFeatures::brand)
        .def_ro("features", &CpuFeatures::features,
                "Extensions that the processor has and the system enables.")
        .def_prop_ro(
            "isa_level", [](const CpuFeatures& f) { return std::string(isa_level_name(f.level)); },
            "Highest level whose code runs here.");
    m.def("cpu_features", &cpu_features, nb::rv_policy::reference,
          "Detected once per process. The first call asks Linux for permission to use AMX tiles.");
    m.def(
        "isa_level_runs_here",
        [](const std::string& level) { return isa_level_runs_here(isa_level_from_name(level)); }, "level"_a,
        "Whether code built for a level runs here. ValueError for a name that is not a level.");

    nb::class_<CacheSizes>(m, "CacheSizes", "Data cache sizes in bytes; 0 where unknown.")
        .def_ro("l1d_bytes", &CacheSizes::l1d_bytes)
        .def_ro("l2_bytes", &CacheSizes::l2_bytes)
        .def_ro("l3_bytes", &CacheSizes::l3_bytes)
        .def_ro("last_level_total_bytes", &CacheSizes::last_level_total_bytes,
                "Last level, summed over the instances behind the cores.");
    m.def("cache_sizes", &cache_sizes, "cores"_a, "sysfs_cpu"_a = "/sys/devices/system/cpu",
          "Caches behind the cores, from sysfs, else from the processor itself.");
}

void bind_limits(nb::module_& m) {
    nb::class_<CpuQuota>(m, "CpuQuota", "CPU time per period that a control group allows, in microseconds.")
        .def_ro("quota_us", &CpuQuota::quota_us)
        .def_ro("period_us", &CpuQuota::period_us)
        .def_ro("directory", &CpuQuota::directory, "The group that sets it.");
    nb::class_<MemoryLimit>(m, "MemoryLimit", "Memory limit of a control group, in bytes.")
        .def_ro("limit_bytes", &MemoryLimit::limit_bytes)
        .def_ro("used_bytes", &MemoryLimit::used_bytes,
                "Charged now, without file cache that can be dropped.")
        .def_ro("directory", &MemoryLimit::directory, "The group that sets it.");
    nb::class_<AllowedCores>(m, "AllowedCores", "The cores this process may use.")
        .def_ro("affinity", &AllowedCores::affinity, "Core ids, ascending.")
        .def_ro("quota", &AllowedCores::quota, "Tightest CPU quota, or None.")
        .def_ro("usable", &AllowedCores::usable,
                "Threads worth starting: affinity capped by the quota, at least 1.");
    m.def("allowed_cores", &allowed_cores, "proc_self"_a = "/proc/self",
          "Affinity of the calling thread and the tightest quota of its control groups.\n\n"
          "proc_self is the directory with `cgroup` and `mountinfo`; tests give a fake one.");
    m.def("tightest_memory_limit", &tightest_memory_limit, "proc_self"_a = "/proc/self",
          "The memory limit with the least left, over the process's control group and its ancestors.");
}

void bind_measurements(nb::module_& m) {
    nb::class_<ReadBandwidth>(m, "ReadBandwidth", "Result of `measure_read_bandwidth`; 1 GB is 1e9 bytes.")
        .def_ro("best_gbps", &ReadBandwidth::best_gbps)
        .def_ro("median_gbps", &ReadBandwidth::median_gbps)
        .def_ro("bytes_per_round", &ReadBandwidth::bytes_per_round)
        .def_ro("huge_pages_requested", &ReadBandwidth::huge_pages_requested);
    m.def(
        "measure_read_bandwidth",
        [](const std::vector<int>& cores, std::int64_t buffer_bytes, int rounds, const std::string& level) {
            return measure_read_bandwidth({cores, buffer_bytes, rounds, isa_level_from_name(level)});
        },
        "cores"_a, "buffer_bytes"_a, "rounds"_a, "level"_a, nb::call_guard<nb::gil_scoped_release>(),
        "Read a buffer with one pinned thread per core and time each round.\n\n"
        "Raises ValueError for a request that makes no sense, MemoryError if the buffer cannot be\n"
        "mapped, RuntimeError if a thread cannot be created or pinned. Releases the GIL.");
}

}  // namespace

void bind_extern(nb::module_& m);
void bind_kernels(nb::module_& m);
void bind_runtime(nb::module_& m);

}  // namespace graphsink

NB_MODULE(_native, m) {
    m.doc() = "Native core of graphsink: processor facts, limits of this process, measurements.";
    graphsink::bind_processor(m);
    graphsink::bind_limits(m);
    graphsink::bind_measurements(m);
    graphsink::bind_extern(m);
    graphsink::bind_kernels(m);
    graphsink::bind_runtime(m);
}
