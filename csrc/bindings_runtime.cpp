// Python face of the device and of graph instances. Conversion only; the rules are in csrc/runtime/.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/arena.h"
#include "runtime/device.h"
#include "runtime/instance.h"
#include "runtime/program.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace graphsink {

namespace {

// A Python callable as a `call` task. What it raises is kept, and raised again by whoever waits.
class HostCall {
  public:
    explicit HostCall(nb::callable function) : function_(std::move(function)) {}

    static std::int32_t run(void* context, char* message, std::uint64_t capacity) {
        auto* self = static_cast<HostCall*>(context);
        nb::gil_scoped_acquire gil;
        try {
            self->function_();
            return 0;
        } catch (nb::python_error& error) {
            std::strncpy(message, error.what(), capacity - 1);
            self->error_ = nb::borrow(error.value());
            return -1;
        }
    }

    // For Python's cycle collector: a function usually refers to the module that holds the graph.
    static int traverse(PyObject* object, visitproc visit, void* arg) {
        Py_VISIT(Py_TYPE(object));
        if (!nb::inst_ready(object)) return 0;
        const auto* self = nb::inst_ptr<HostCall>(object);
        Py_VISIT(self->function_.ptr());
        Py_VISIT(self->error_.ptr());
        return 0;
    }
    static int clear(PyObject* object) {
        auto* self = nb::inst_ptr<HostCall>(object);
        const nb::object function = std::move(self->function_);
        const nb::object error = std::move(self->error_);
        return 0;
    }

    nb::object take_error() {
        nb::object error = error_.is_valid() ? error_ : nb::none();
        error_ = nb::object();
        return error;
    }

  private:
    nb::object function_;
    nb::object error_;
};

PyType_Slot host_call_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(&HostCall::traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(&HostCall::clear)},
    {0, nullptr},
};

gs_slot slot_value(nb::handle value) {
    gs_slot slot{};
    if (nb::isinstance<nb::float_>(value)) {
        slot.f64 = nb::cast<double>(value);
    } else {
        slot.i64 = nb::cast<std::int64_t>(value);
    }
    return slot;
}

// A slot is an int, a float, or a tuple (parameter index, default value).
SlotSpec slot_from_python(nb::handle value) {
    if (!nb::isinstance<nb::tuple>(value)) return {slot_value(value), -1};
    const auto pair = nb::cast<nb::tuple>(value);
    return {slot_value(pair[1]), nb::cast<std::int32_t>(pair[0])};
}

TaskBody body_from_python(const nb::list& tasks);

// The dictionaries that graphsink.runtime.tasks makes.
TaskSpec task_from_python(const nb::dict& task) {
    TaskSpec spec;
    spec.kind = static_cast<TaskKind>(nb::cast<int>(task["kind"]));
    spec.name = nb::cast<std::string>(task["name"]);
    spec.module_path = nb::cast<std::string>(task["module_path"]);
    const auto entry = nb::cast<std::uintptr_t>(task["entry"]);
    spec.kernel = reinterpret_cast<gs_kernel>(entry);
    spec.call = reinterpret_cast<CallFunction>(entry);
    spec.call_context = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(task["context"]));
    spec.block_dim = nb::cast<std::uint32_t>(task["block_dim"]);
    for (nb::handle slot : nb::cast<nb::list>(task["slots"])) spec.slots.push_back(slot_from_python(slot));
    spec.depends_on = nb::cast<std::vector<std::uint32_t>>(task["depends_on"]);
    spec.cores = nb::cast<std::vector<std::uint32_t>>(task["cores"]);
    spec.prefetch_address = nb::cast<std::uintptr_t>(task["prefetch_address"]);
    spec.prefetch_bytes = nb::cast<std::uint64_t>(task["prefetch_bytes"]);
    spec.condition = reinterpret_cast<const std::int64_t*>(nb::cast<std::uintptr_t>(task["condition"]));
    for (nb::handle body : nb::cast<nb::list>(task["bodies"])) {
        spec.bodies.push_back(body_from_python(nb::cast<nb::list>(body)));
    }
    return spec;
}

TaskBody body_from_python(const nb::list& tasks) {
    TaskBody body;
    for (nb::handle task : tasks) body.push_back(task_from_python(nb::cast<nb::dict>(task)));
    return body;
}

std::chrono::nanoseconds nanoseconds(double seconds) {
    return seconds < 0 ? std::chrono::nanoseconds(-1)
                       : std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(seconds, 1e9) * 1e9));
}

void bind_instance(nb::module_& m) {
    nb::class_<HostCall>(m, "HostCall", nb::type_slots(host_call_slots), "A Python callable as a task.")
        .def(nb::init<nb::callable>(), "function"_a)
        .def_prop_ro("entry", [](const HostCall&) { return reinterpret_cast<std::uintptr_t>(&HostCall::run); })
        .def_prop_ro("context", [](HostCall& self) { return reinterpret_cast<std::uintptr_t>(&self); })
        .def("take_error", &HostCall::take_error, "The exception of the last run, or None; clears it.");

    nb::class_<Outcome>(m, "Outcome", "How an execution ended.")
        .def_prop_ro("result", [](const Outcome& o) { return static_cast<int>(o.result); },
                     "0 ok, 1 failed, 2 aborted, 3 timed out.")
        .def_ro("task_id", &Outcome::task_id)
        .def_ro("core", &Outcome::core)
        .def_ro("code", &Outcome::code)
        .def_ro("message", &Outcome::message);

    nb::class_<Instance>(m, "Instance", "A lowered program with its parameters.")
        .def_prop_ro("state", [](const Instance& i) { return instance_state_name(i.state()); })
        .def_prop_ro("num_steps", [](const Instance& i) { return i.program().num_steps; })
        .def_prop_ro("num_waits", [](const Instance& i) { return i.program().num_waits; })
        .def_prop_ro("num_regions", [](const Instance& i) { return i.program().regions.size(); })
        .def_prop_ro("id", &Instance::id)
        .def("label",
             [](const Instance& i, std::uint32_t task_id) {
                 const TaskLabel& label = i.program().labels.at(task_id);
                 return std::make_tuple(std::string(task_kind_name(label.kind)), label.name, label.module_path);
             }, "task_id"_a, "(kind, name, module path) of a task; ids count all tasks, bodies included.")
        .def_prop_ro("num_tasks", [](const Instance& i) { return i.program().labels.size(); })
        .def("set_parameter",
             [](Instance& i, std::uint32_t index, nb::handle value) { i.set_parameter(index, slot_value(value)); },
             "index"_a, "value"_a, "RuntimeError while the instance runs.")
        .def("take_outcome", &Instance::take_outcome)
        .def("destroy", &Instance::destroy, "False while the instance runs.")
        .def("wait",
             [](Instance& i, double spin_s, double timeout_s) {
                 nb::gil_scoped_release release;
                 return i.wait(nanoseconds(spin_s), nanoseconds(timeout_s));
             }, "spin_s"_a, "timeout_s"_a, "False after the time-out; a negative one never ends.");

    m.def("lower_tasks",
          [](const nb::list& tasks, std::uint32_t num_cores, std::uint32_t num_parameters, std::uint32_t id) {
              return std::make_unique<Instance>(lower(body_from_python(tasks), num_cores, num_parameters), num_parameters, id);
          }, "tasks"_a, "num_cores"_a, "num_parameters"_a, "id"_a,
          "Turn a task list into an instance. ValueError, naming the task, for a list that cannot run.");
}

void bind_arena(nb::module_& m) {
    nb::class_<ArenaStatistics>(m, "ArenaStatistics", "Memory of a device, in bytes.")
        .def_ro("mapped_bytes", &ArenaStatistics::mapped_bytes)
        .def_ro("used_bytes", &ArenaStatistics::used_bytes)
        .def_ro("peak_used_bytes", &ArenaStatistics::peak_used_bytes)
        .def_ro("allocations", &ArenaStatistics::allocations)
        .def_ro("huge_pages", &ArenaStatistics::huge_pages);
    nb::class_<Arena>(m, "Arena", "64-byte aligned memory on 2 MiB pages.")
        .def(nb::init<>())
        .def("allocate", &Arena::allocate, "bytes"_a, "Address; MemoryError if the system gives no more.")
        .def("free", &Arena::free, "address"_a, "ValueError for an address that is not allocated.")
        .def("poison", &Arena::poison, "byte"_a, "Fill everything that is not handed out.")
        .def("statistics", &Arena::statistics);
}

}  // namespace

void bind_runtime(nb::module_& m) {
    bind_instance(m);
    bind_arena(m);
    nb::class_<Device>(m, "Device", "Cores that run instances one after another.")
        .def("__init__",
             [](Device* self, std::vector<int> cores, bool pin, double idle_spin_s, double call_spin_s, std::uint64_t scratch_bytes) {
                 new (self) Device({std::move(cores), pin, nanoseconds(idle_spin_s), nanoseconds(call_spin_s), scratch_bytes});
             }, "cores"_a, "pin"_a, "idle_spin_s"_a, "call_spin_s"_a, "scratch_bytes"_a)
        .def_prop_ro("num_cores", &Device::num_cores)
        .def_prop_ro("runs", &Device::runs, "Executions so far.")
        .def_prop_ro("parks", &Device::parks, "How often a core slept while another ran a call.")
        .def_prop_ro("belongs_to_this_process", &Device::belongs_to_this_process)
        .def("execute",
             [](Device& device, Instance& instance, double timeout_s) {
                 const InstanceState found = instance.begin_run();
                 if (found != InstanceState::ready) return static_cast<int>(found);
                 const std::int64_t submit_ns = device.tracing() ? now_ns() : 0;
                 nb::gil_scoped_release release;
                 device.execute(instance, nanoseconds(timeout_s), submit_ns);
                 return static_cast<int>(instance.state());
             }, "instance"_a, "timeout_s"_a,
             "Run on all cores, this thread included. Returns 1 if it is ready again, 3 after a fault, and without\n"
             "running it the state that forbids it.")
        .def("submit",
             [](Device& device, Instance& instance) {
                 const InstanceState found = instance.begin_run();
                 if (found == InstanceState::ready) device.submit(instance);
                 return static_cast<int>(found);
             }, "instance"_a, nb::call_guard<nb::gil_scoped_release>(), "Queue a run; 1 if it was queued, else the state that forbids it.")
        .def("abort", &Device::abort, "instance"_a, nb::call_guard<nb::gil_scoped_release>())
        .def("shutdown", &Device::shutdown, nb::call_guard<nb::gil_scoped_release>())
        .def("start_trace", &Device::start_trace, "events_per_core"_a, nb::call_guard<nb::gil_scoped_release>())
        .def("stop_trace", &Device::stop_trace, nb::call_guard<nb::gil_scoped_release>())
        .def("set_poison", &Device::set_poison, "poison"_a)
        .def("step_events",
             [](const Device& device) {
                 nb::list events;
                 for (const StepEvent& e : device.step_events()) {
                     events.append(nb::make_tuple(e.run, e.instance, e.task_id, e.core, e.ready_ns, e.begin_ns, e.end_ns,
                                                  e.waited_for == kNoTask ? -1 : static_cast<int>(e.waited_for)));
                 }
                 return events;
             }, "(run, instance, task id, core, ready, begin, end in ns, task waited for or -1), per core in order.")
        .def("host_events",
             [](const Device& device) {
                 nb::list events;
                 for (const HostEvent& e : device.host_events()) {
                     events.append(nb::make_tuple(e.run, e.instance, e.submit_ns, e.start_ns, e.end_ns));
                 }
                 return events;
             }, "(run, instance, submit, start, end in ns).")
        .def_prop_ro("dropped_events", &Device::dropped_events);
}

}  // namespace graphsink
