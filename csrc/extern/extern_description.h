// What an extern call is made from: plain data, filled in by Python.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace graphsink {

// A tensor over memory that somebody else owns, or a 0-dimensional constant.
struct ExternTensor {
    std::uint64_t address = 0;
    std::string dtype;  // "float32", as torch spells it
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;  // in elements
    bool is_constant = false;
    std::uint64_t constant_bits = 0;  // the value of a constant, in its dtype, at the lowest address
};

enum class ExternKind {
    kNone,
    kTensor,    // integers[0]: index of the tensor
    kInteger,   // integers[0]; also dtypes and memory formats
    kBoolean,   // integers[0]
    kConstant,  // text: name of a number that only the library knows ("dtype_float32")
    kReal,      // reals[0]
    kString,    // text
    kIntegers,
    kBooleans,  // integers
    kReals,
    kTensors,          // integers: indices
    kOptionalTensors,  // integers: indices, -1 for None
    kNoDevice,         // a device that is not given: a typed shim takes an address and an index
    kNoList,           // a list that is not given: a typed shim takes an address and a length
};

struct ExternArgument {
    ExternKind kind = ExternKind::kNone;
    bool is_optional = false;  // of the schema: passed by address, and may be none
    std::vector<std::int64_t> integers;
    std::vector<double> reals;
    std::string text;
};

// One value that the operator returns.
enum class ExternReturnKind {
    kAlias,    // one of the arguments: nothing to do
    kTensor,   // copied to tensors[0], or ignored if that is -1
    kTensors,  // a list: copied to `tensors`, -1 for those to ignore
};

struct ExternReturn {
    ExternReturnKind kind = ExternReturnKind::kAlias;
    std::vector<std::int64_t> tensors;
};

struct ExternDescription {
    std::string symbol;     // of the typed shim; empty for the dispatcher
    std::string signature;  // of the typed shim, see typed_calls.h
    std::string op;         // "aten::mul"
    std::string overload;   // "out"; empty for the default
    std::vector<ExternTensor> tensors;
    std::vector<ExternArgument> arguments;  // in the order of the function that is called
    std::vector<ExternReturn> returns;
    std::vector<std::int64_t> written;  // tensors that the operator itself writes: it must not resize them
};

}  // namespace graphsink
