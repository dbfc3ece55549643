// The two ways of calling an operator. Both are prepared once and run many times.
#pragma once

#include <memory>

#include "extern_description.h"
#include "tensor_table.h"

namespace graphsink {

class Invocation {
  public:
    virtual ~Invocation() = default;
    Invocation() = default;
    Invocation(const Invocation&) = delete;
    Invocation& operator=(const Invocation&) = delete;

    // Calls the operator and copies its results to their planned places.
    virtual bool run(ExternFailure& failure) = 0;

    // To be called when handles of the table have changed.
    virtual void refresh() = 0;
};

// Through the function of one operator: arguments are borrowed, so they are laid out once. Throws
// std::invalid_argument if the description does not fit the signature.
std::unique_ptr<Invocation> make_typed_invocation(std::shared_ptr<const ShimLibrary> library,
                                                  const ExternDescription& description, TensorTable& tensors);

// Through the dispatcher, which takes its arguments over: they are made for each call.
std::unique_ptr<Invocation> make_dispatcher_invocation(std::shared_ptr<const ShimLibrary> library,
                                                       const ExternDescription& description,
                                                       TensorTable& tensors);

}  // namespace graphsink
