// Python face of the device and of graph instances. Conversion only; the rules are in csrc/runtime/.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
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
            std::strncpy(message, "it raised an exception", capacity - 1);
            self->error_ = nb::borrow(error.value());
            if (error.traceback().is_valid())
                PyException_SetTraceback(error.value().ptr(), error.traceback().ptr());
        } catch (const std::exception& error) {
            std::strncpy(message, error.what(), capacity - 1);
        }
        return -1;
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

// Whether Python wants the run to end: Ctrl-C, for example. Only the main thread gets signals; elsewhere the
// answer is no.
bool python_interrupts() {
    nb::gil_scoped_acquire gil;
    return PyErr_CheckSignals() != 0;
}

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

// In slices, so that Ctrl-C is seen.
bool wait_for_instance(Instance& instance, double spin_s, double timeout_s) {
    constexpr std::chrono::milliseconds kSlice{100};
    const std::int64_t deadline = timeout_s < 0 ? INT64_MAX : now_ns() + nanoseconds(timeout_s).count();
    for (;;) {
        const std::chrono::nanoseconds left{std::max<std::int64_t>(0, deadline - now_ns())};
        bool ended = false;
        {
            nb::gil_scoped_release release;
            ended = instance.wait(nanoseconds(spin_s), std::min<std::chrono::nanoseconds>(left, kSlice));
        }
        if (ended) return true;
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        if (now_ns() >= deadline) return false;
    }
}

// None after a good run, else an Outcome. After a fault the instance stays RUNNING until `end_run`: so the
// caller can fetch what belongs to the fault before anybody else starts it again.
nb::object execute(Device& device, Instance& instance, double timeout_s) {
    const InstanceState found = instance.begin_run();
    if (found != InstanceState::ready) {
        return nb::cast(Outcome{RunResult::refused, 0, 0, static_cast<std::uint32_t>(found), {}});
    }
    const std::int64_t submit_ns = device.tracing() ? now_ns() : 0;
    Outcome outcome;
    {
        nb::gil_scoped_release release;
        outcome = device.execute(instance, nanoseconds(timeout_s), submit_ns, &python_interrupts);
    }
    if (PyErr_Occurred() != nullptr) {
        instance.end_run({});
        throw nb::python_error();
    }
    if (outcome.result != RunResult::ok) return nb::cast(std::move(outcome));
    instance.end_run({});
    return nb::none();
}

// These wait for the run in progress, and that may need Python's lock for a host function.
auto step_events(Device& device) {
    using Row = std::tuple<std::uint64_t, std::uint32_t, std::uint32_t, std::uint32_t, std::int64_t,
                           std::int64_t, std::int64_t, std::int64_t>;
    const nb::gil_scoped_release release;
    std::vector<Row> rows;
    for (const StepEvent& e : device.step_events()) {
        const std::int64_t waited_for =
            e.waited_for == kNoTask ? -1 : static_cast<std::int64_t>(e.waited_for);
        rows.emplace_back(e.run, e.instance, e.task_id, e.core, e.ready_ns, e.begin_ns, e.end_ns, waited_for);
    }
    return rows;
}

auto host_events(Device& device) {
    using Row = std::tuple<std::uint64_t, std::uint32_t, std::int64_t, std::int64_t, std::int64_t>;
    const nb::gil_scoped_release release;
    std::vector<Row> rows;
    for (const HostEvent& e : device.host_events()) {
        rows.emplace_back(e.run, e.instance, e.submit_ns, e.start_ns, e.end_ns);
    }
    return rows;
}

void bind_instance(nb::module_& m) {
    nb::class_<HostCall>(m, "HostCall", nb::type_slots(host_call_slots), "A Python callable as a task.")
        .def(nb::init<nb::callable>(), "function"_a,
             nb::sig("def __init__(self, function: collections.abc.Callable[[], object]) -> None"))
        .def_prop_ro("entry",
                     [](const HostCall&) { return reinterpret_cast<std::uintptr_t>(&HostCall::run); })
        .def_prop_ro("context", [](HostCall& self) { return reinterpret_cast<std::uintptr_t>(&self); })
        .def("take_error", &HostCall::take_error, "The exception of the last run, or None; clears it.");

    nb::class_<Outcome>(m, "Outcome", "How an execution ended.")
        .def_prop_ro(
            "result", [](const Outcome& o) { return static_cast<int>(o.result); },
            "0 ok, 1 failed, 2 aborted, 3 timed out, 4 refused (`code` is the state that forbids it).")
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
        .def(
            "label",
            [](const Instance& i, std::uint32_t task_id) {
                const TaskLabel& label = i.program().labels.at(task_id);
                return std::make_tuple(std::string(task_kind_name(label.kind)), label.name,
                                       label.module_path);
            },
            "task_id"_a, "(kind, name, module path) of a task; ids count all tasks, bodies included.")
        .def_prop_ro("num_tasks", [](const Instance& i) { return i.program().labels.size(); })
        .def(
            "set_parameter",
            [](Instance& i, std::uint32_t index, nb::handle value) {
                return i.set_parameter(index, slot_value(value));
            },
            "index"_a, "value"_a, "False, without a change, while the instance runs.")
        .def("fault", &Instance::fault, "The fault of a submitted run that nobody has taken yet.")
        .def("clear_fault", &Instance::clear_fault, "FAULT -> READY; False if somebody else has done it.")
        .def(
            "end_run", [](Instance& i) { i.end_run({}); },
            "RUNNING -> READY, after `Device.execute` gave a fault.")
        .def("destroy", &Instance::destroy, "False while the instance runs.")
        .def(
            "wait",
            [](Instance& i, double spin_s, double timeout_s) {
                return wait_for_instance(i, spin_s, timeout_s);
            },
            "spin_s"_a, "timeout_s"_a,
            "False after the time-out; a negative one never ends. Signals are seen.");

    m.def(
        "lower_tasks",
        [](const nb::list& tasks, std::uint32_t num_cores, std::uint32_t num_parameters, std::uint32_t id) {
            return std::make_shared<Instance>(lower(body_from_python(tasks), num_cores, num_parameters),
                                              num_parameters, id);
        },
        "tasks"_a, "num_cores"_a, "num_parameters"_a, "id"_a,
        nb::sig("def lower_tasks(tasks: list[dict[str, typing.Any]], num_cores: int, num_parameters: int, "
                "id: int) -> Instance"),
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
        .def(
            "__init__",
            [](Device* self, std::vector<int> cores, bool pin, double idle_spin_s, double call_spin_s,
               std::uint64_t scratch_bytes) {
                new (self) Device({std::move(cores), pin, nanoseconds(idle_spin_s), nanoseconds(call_spin_s),
                                   scratch_bytes});
            },
            "cores"_a, "pin"_a, "idle_spin_s"_a, "call_spin_s"_a, "scratch_bytes"_a)
        .def_prop_ro("num_cores", &Device::num_cores)
        .def_prop_ro("runs", &Device::runs, "Executions so far.")
        .def_prop_ro("parks", &Device::parks, "How often a core slept while another ran a call.")
        .def_prop_ro("belongs_to_this_process", &Device::belongs_to_this_process)
        .def_prop_ro("runs_on_this_thread", &Device::runs_on_this_thread,
                     "True inside of a call that a run of this device makes on this thread.")
        .def("execute", &execute, "instance"_a, "timeout_s"_a,
             nb::sig("def execute(self, instance: Instance, timeout_s: float) -> Outcome | None"),
             "Run on all cores, this thread included. None after a good run. After a fault the instance "
             "stays\n"
             "RUNNING until `Instance.end_run`; a refused run changes nothing.")
        .def(
            "submit",
            [](Device& device, std::shared_ptr<Instance> instance) {
                return static_cast<int>(device.submit(std::move(instance)));
            },
            "instance"_a, nb::call_guard<nb::gil_scoped_release>(),
            "Queue a run; 1 if it was queued, else the state that forbids it.")
        .def("abort", &Device::abort, "instance"_a, nb::call_guard<nb::gil_scoped_release>())
        .def("shutdown", &Device::shutdown, nb::call_guard<nb::gil_scoped_release>())
        .def("start_trace", &Device::start_trace, "events_per_core"_a,
             nb::call_guard<nb::gil_scoped_release>(), "False if a trace is on already.")
        .def("stop_trace", &Device::stop_trace, nb::call_guard<nb::gil_scoped_release>())
        .def("set_poison", &Device::set_poison, "poison"_a)
        .def("step_events", &step_events,
             "(run, instance, task id, core, ready, begin, end in ns, task waited for or -1), per core in "
             "order.")
        .def("host_events", &host_events, "(run, instance, submit, start, end in ns).")
        .def("dropped_events", &Device::dropped_events, nb::call_guard<nb::gil_scoped_release>(),
             "Older events that made room for newer ones.");
}

}  // namespace graphsink
