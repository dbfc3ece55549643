// Python face of extern calls: ATen operators that native code calls. Conversion only.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "extern/extern_call.h"
#include "extern/typed_calls.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace graphsink {

namespace {

using Integers = std::vector<std::int64_t>;

constexpr std::size_t kMessageBytes = 4096;

void add_argument(ExternDescription& d, ExternKind kind, bool is_optional, Integers integers = {},
                  std::vector<double> reals = {}, std::string text = {}) {
    d.arguments.push_back({kind, is_optional, std::move(integers), std::move(reals), std::move(text)});
}

std::size_t add_constant(ExternDescription& d, const std::string& dtype, const nb::object& value) {
    ExternTensor tensor;
    tensor.dtype = dtype;
    tensor.is_constant = true;
    const auto store = [&tensor](auto number) { std::memcpy(&tensor.constant_bits, &number, sizeof number); };
    if (dtype == "float64") {
        store(nb::cast<double>(value));
    } else if (dtype == "float32") {
        store(static_cast<float>(nb::cast<double>(value)));
    } else if (dtype == "int64") {
        store(nb::cast<std::int64_t>(value));
    } else if (dtype == "bool") {
        store(nb::cast<bool>(value));
    } else {
        throw nb::value_error("a constant is float64, float32, int64 or bool");
    }
    d.tensors.push_back(std::move(tensor));
    return d.tensors.size() - 1;
}

void bind_library(nb::module_& m) {
    nb::class_<ShimLibrary>(m, "ShimLibrary", "The C interface of the libtorch that this process has loaded.")
        .def(nb::init<const std::string&>(), "path"_a,
             "`path` is that of libtorch_cpu.so. RuntimeError if it is not loaded or lacks symbols.")
        .def_prop_ro(
            "version", [](const ShimLibrary& library) { return std::pair(library.major(), library.minor()); },
            "Major and minor version of torch as the library reports them.")
        .def(
            "has_symbol",
            [](const ShimLibrary& library, const std::string& name) { return library.find(name) != nullptr; },
            "name"_a);
    m.def("extern_signatures", &typed_call_signatures, "Signatures of typed shims that can be called.");
}

void bind_numbers_and_tensors(nb::class_<ExternDescription>& description) {
    description
        .def(
            "add_tensor",
            [](ExternDescription& d, std::uint64_t address, const std::string& dtype, Integers sizes,
               Integers strides) {
                d.tensors.push_back({address, dtype, std::move(sizes), std::move(strides), false, 0});
                return d.tensors.size() - 1;
            },
            "address"_a, "dtype"_a, "sizes"_a, "strides"_a,
            "A tensor over memory of the caller. Returns its index.")
        .def("add_constant", &add_constant, "dtype"_a, "value"_a,
             "A 0-dimensional tensor that the call owns. Returns its index.")
        .def("none", [](ExternDescription& d) { add_argument(d, ExternKind::kNone, true); })
        .def("no_list", [](ExternDescription& d) { add_argument(d, ExternKind::kNoList, true); })
        .def("no_device", [](ExternDescription& d) { add_argument(d, ExternKind::kNoDevice, true); })
        .def(
            "tensor",
            [](ExternDescription& d, std::int64_t index, bool optional) {
                add_argument(d, ExternKind::kTensor, optional, {index});
            },
            "index"_a, "optional"_a)
        .def(
            "integer",
            [](ExternDescription& d, std::int64_t value, bool optional) {
                add_argument(d, ExternKind::kInteger, optional, {value});
            },
            "value"_a, "optional"_a)
        .def(
            "boolean",
            [](ExternDescription& d, bool value, bool optional) {
                add_argument(d, ExternKind::kBoolean, optional, {value ? 1 : 0});
            },
            "value"_a, "optional"_a)
        .def(
            "real",
            [](ExternDescription& d, double value, bool optional) {
                add_argument(d, ExternKind::kReal, optional, {}, {value});
            },
            "value"_a, "optional"_a)
        .def(
            "string",
            [](ExternDescription& d, const std::string& value, bool optional) {
                add_argument(d, ExternKind::kString, optional, {}, {}, value);
            },
            "value"_a, "optional"_a)
        .def(
            "constant",
            [](ExternDescription& d, const std::string& name, bool optional) {
                add_argument(d, ExternKind::kConstant, optional, {}, {}, name);
            },
            "name"_a, "optional"_a, "A number that only the library knows, such as `dtype_float32`.");
}

void bind_lists_and_returns(nb::class_<ExternDescription>& description) {
    description
        .def(
            "integers",
            [](ExternDescription& d, Integers values, bool optional) {
                add_argument(d, ExternKind::kIntegers, optional, std::move(values));
            },
            "values"_a, "optional"_a)
        .def(
            "booleans",
            [](ExternDescription& d, Integers values, bool optional) {
                add_argument(d, ExternKind::kBooleans, optional, std::move(values));
            },
            "values"_a, "optional"_a)
        .def(
            "reals",
            [](ExternDescription& d, std::vector<double> values, bool optional) {
                add_argument(d, ExternKind::kReals, optional, {}, std::move(values));
            },
            "values"_a, "optional"_a)
        .def(
            "tensor_list",
            [](ExternDescription& d, Integers indices) {
                add_argument(d, ExternKind::kTensors, false, std::move(indices));
            },
            "indices"_a)
        .def(
            "optional_tensor_list",
            [](ExternDescription& d, Integers indices) {
                add_argument(d, ExternKind::kOptionalTensors, false, std::move(indices));
            },
            "indices"_a, "-1 stands for None.")
        .def("returns_alias",
             [](ExternDescription& d) { d.returns.push_back({ExternReturnKind::kAlias, {}}); })
        .def(
            "returns_tensor",
            [](ExternDescription& d, std::int64_t index) {
                d.returns.push_back({ExternReturnKind::kTensor, {index}});
            },
            "index"_a, "-1 ignores the value.")
        .def(
            "returns_list",
            [](ExternDescription& d, Integers indices) {
                d.returns.push_back({ExternReturnKind::kTensors, std::move(indices)});
            },
            "indices"_a)
        .def(
            "writes", [](ExternDescription& d, std::int64_t index) { d.written.push_back(index); }, "index"_a,
            "The operator writes this tensor itself.");
}

void bind_call(nb::module_& m) {
    nb::class_<ExternCall>(m, "ExternCall", "One ATen operator with its arguments, callable without Python.")
        .def(nb::init<std::shared_ptr<const ShimLibrary>, const ExternDescription&>(), "library"_a,
             "description"_a, "ValueError for a description that cannot be called.")
        .def("set_address", &ExternCall::set_address, "tensor"_a, "address"_a,
             "Moves a tensor. ValueError for address 0 and for a constant, IndexError for an unknown tensor.")
        .def("address", &ExternCall::address, "tensor"_a)
        .def_prop_ro("tensor_count", &ExternCall::tensor_count)
        .def_prop_ro(
            "context", [](ExternCall& call) { return reinterpret_cast<std::uintptr_t>(&call); },
            "First argument of `function`; valid as long as this object.")
        .def_prop_ro_static(
            "function", [](nb::handle) { return reinterpret_cast<std::uintptr_t>(&ExternCall::run_entry); },
            "Address of int32_t run(void* context, char* message, uint64_t capacity).")
        .def(
            "run",
            [](ExternCall& call) {
                std::array<char, kMessageBytes> message{};
                std::int32_t code = 0;
                {
                    nb::gil_scoped_release release;
                    code = call.run(message.data(), message.size());
                }
                return std::pair(code, std::string(message.data()));
            },
            "Runs once, without the GIL. Returns a code, 0 for success, and a text.")
        .def(
            "time",
            [](ExternCall& call, int rounds) {
                nb::gil_scoped_release release;
                const auto start = std::chrono::steady_clock::now();
                for (int i = 0; i < rounds; ++i) {
                    if (call.run(nullptr, 0) != kExternOk) throw std::runtime_error("the call failed");
                }
                return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
                       rounds;
            },
            "rounds"_a, "Mean seconds per call over `rounds` calls from native code.");
}

}  // namespace

void bind_extern(nb::module_& m) {
    bind_library(m);
    nb::class_<ExternDescription> description(m, "ExternDescription",
                                              "Arguments and results of an extern call.");
    description.def(
        "__init__",
        [](ExternDescription* self, const std::string& symbol, const std::string& signature,
           const std::string& op, const std::string& overload) {
            new (self) ExternDescription{symbol, signature, op, overload, {}, {}, {}, {}};
        },
        "symbol"_a, "signature"_a, "op"_a, "overload"_a, "An empty symbol means the dispatcher.");
    bind_numbers_and_tensors(description);
    bind_lists_and_returns(description);
    bind_call(m);
}

}  // namespace graphsink
