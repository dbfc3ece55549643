#include "extern_call.h"

#include <algorithm>
#include <cstring>
#include <exception>

namespace graphsink {

namespace {

void write_message(const char* text, char* message, std::uint64_t capacity) {
    if (message == nullptr || capacity == 0) return;
    const std::uint64_t length = std::min<std::uint64_t>(std::strlen(text), capacity - 1);
    std::memcpy(message, text, length);
    message[length] = '\0';
}

}  // namespace

ExternCall::ExternCall(std::shared_ptr<const ShimLibrary> library, const ExternDescription& description)
    : tensors_(library, description.tensors),
      invocation_(description.symbol.empty() ? make_dispatcher_invocation(library, description, tensors_)
                                             : make_typed_invocation(library, description, tensors_)) {}

void ExternCall::set_address(std::int64_t tensor, std::uint64_t address) {
    tensors_.set_address(tensor, address);
    invocation_->refresh();
}

std::int32_t ExternCall::run(char* message, std::uint64_t capacity) noexcept {
    try {
        ExternFailure failure;
        if (invocation_->run(failure)) return kExternOk;
        write_message(failure.text.c_str(), message, capacity);
        return failure.code;
    } catch (const std::exception& error) {
        write_message(error.what(), message, capacity);
        return kExternInternalFailure;
    }
}

std::int32_t ExternCall::run_entry(void* context, char* message, std::uint64_t capacity) noexcept {
    return static_cast<ExternCall*>(context)->run(message, capacity);
}

}  // namespace graphsink
