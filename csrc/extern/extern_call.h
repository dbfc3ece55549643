// One ATen operator with its arguments, ready to be called from native code without Python.
#pragma once

#include <memory>

#include "invocation.h"

namespace graphsink {

class ExternCall {
  public:
    // Throws std::invalid_argument for a description that cannot be called.
    ExternCall(std::shared_ptr<const ShimLibrary> library, const ExternDescription& description);

    // Moves a tensor; its sizes, strides and dtype stay. Not while the call runs.
    void set_address(std::int64_t tensor, std::uint64_t address);
    std::uint64_t address(std::int64_t tensor) const { return tensors_.address(tensor); }
    std::size_t tensor_count() const { return tensors_.size(); }

    // 0, or a code of tensor_table.h with a text that ends with 0 within `capacity` bytes. Any thread may
    // call, one at a time. ATen may use its own threads meanwhile.
    std::int32_t run(char* message, std::uint64_t capacity) noexcept;

    // The same as a plain function over the address of an ExternCall: all that a runtime needs to know.
    static std::int32_t run_entry(void* context, char* message, std::uint64_t capacity) noexcept;

  private:
    TensorTable tensors_;
    std::unique_ptr<Invocation> invocation_;
};

}  // namespace graphsink
