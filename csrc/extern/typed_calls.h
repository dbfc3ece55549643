// Calls to C functions whose parameter types are known only as a word.
//
// One letter per parameter: P a pointer, L an int64_t, I an int32_t, D a double. There is one instance of a
// function template for every word in typed_signatures.inc, so each call has exactly the type of the callee;
// nothing depends on calling conventions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace graphsink {

union CallSlot {
    void* pointer;
    std::int64_t integer;
    std::int32_t small;
    double real;
};

using TypedCall = std::int32_t (*)(void* function, const CallSlot* slots);

// Null for a word that was not built in.
TypedCall find_typed_call(const std::string& signature);

// All words that were built in.
std::vector<std::string> typed_call_signatures();

}  // namespace graphsink
