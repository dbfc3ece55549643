#include <deque>
#include <stdexcept>

#include "invocation.h"
#include "typed_calls.h"

namespace graphsink {

namespace {

// Lays arguments out as the C functions want them. What is passed by address lives in deques, whose
// elements do not move.
class SlotWriter {
  public:
    SlotWriter(const ShimLibrary& library, TensorTable& tensors) : library_(library), tensors_(tensors) {}

    void write(const ExternArgument& argument);
    void write_result(ShimTensor* result) { pointer(result); }

    std::vector<CallSlot> slots;
    std::string signature;

  private:
    void pointer(const void* value) {
        CallSlot slot{};
        slot.pointer = const_cast<void*>(value);
        push('P', slot);
    }
    void integer(std::int64_t value) {
        CallSlot slot{};
        slot.integer = value;
        push('L', slot);
    }
    void small(std::int32_t value) {
        CallSlot slot{};
        slot.small = value;
        push('I', slot);
    }
    void real(double value) {
        CallSlot slot{};
        slot.real = value;
        push('D', slot);
    }
    void push(char letter, CallSlot slot) {
        signature += letter;
        slots.push_back(slot);
    }

    void write_number(const ExternArgument& argument);
    void write_list(const ExternArgument& argument);
    void list(const void* first, std::size_t count, bool is_optional);

    const ShimLibrary& library_;
    TensorTable& tensors_;
    std::deque<std::int64_t> integers_;
    std::deque<std::int32_t> smalls_;
    std::deque<double> reals_;
    std::deque<std::string> texts_;
    std::deque<const void*> pointers_;
    std::deque<std::vector<std::int64_t>> integer_lists_;
    std::deque<std::vector<std::int32_t>> small_lists_;
    std::deque<std::vector<double>> real_lists_;
    std::deque<std::vector<void*>> handle_lists_;
};

void SlotWriter::write(const ExternArgument& argument) {
    switch (argument.kind) {
        case ExternKind::kNone:
            pointer(nullptr);
            break;
        case ExternKind::kNoDevice:
            pointer(nullptr);
            small(0);
            break;
        case ExternKind::kNoList:
            pointer(nullptr);
            integer(0);
            break;
        case ExternKind::kTensor: {
            ShimTensor& handle = tensors_.handle(argument.integers.at(0));
            pointer(argument.is_optional ? static_cast<const void*>(&handle) : handle);
            break;
        }
        case ExternKind::kString: {
            const char* const text = texts_.emplace_back(argument.text).c_str();
            pointer(argument.is_optional ? static_cast<const void*>(&pointers_.emplace_back(text)) : text);
            break;
        }
        case ExternKind::kInteger:
        case ExternKind::kBoolean:
        case ExternKind::kConstant:
        case ExternKind::kReal:
            write_number(argument);
            break;
        default:
            write_list(argument);
    }
}

void SlotWriter::write_number(const ExternArgument& argument) {
    if (argument.kind == ExternKind::kReal) {
        const double value = argument.reals.at(0);
        argument.is_optional ? pointer(&reals_.emplace_back(value)) : real(value);
    } else if (argument.kind == ExternKind::kInteger) {
        const std::int64_t value = argument.integers.at(0);
        argument.is_optional ? pointer(&integers_.emplace_back(value)) : integer(value);
    } else {
        const std::int32_t value = argument.kind == ExternKind::kConstant
                                       ? library_.constant(argument.text)
                                       : static_cast<std::int32_t>(argument.integers.at(0));
        argument.is_optional ? pointer(&smalls_.emplace_back(value)) : small(value);
    }
}

void SlotWriter::write_list(const ExternArgument& argument) {
    if (argument.kind == ExternKind::kIntegers) {
        const auto& values = integer_lists_.emplace_back(argument.integers);
        list(values.data(), values.size(), argument.is_optional);
    } else if (argument.kind == ExternKind::kReals) {
        const auto& values = real_lists_.emplace_back(argument.reals);
        list(values.data(), values.size(), argument.is_optional);
    } else if (argument.kind == ExternKind::kBooleans) {
        const auto& values = small_lists_.emplace_back(argument.integers.begin(), argument.integers.end());
        list(values.data(), values.size(), argument.is_optional);
    } else {
        // Optional elements are addresses of handles, plain elements are handles.
        std::vector<void*>& values = handle_lists_.emplace_back();
        const bool optional_elements = argument.kind == ExternKind::kOptionalTensors;
        for (const std::int64_t index : argument.integers) {
            ShimTensor* const handle = index < 0 ? nullptr : &tensors_.handle(index);
            values.push_back(optional_elements ? static_cast<void*>(handle) : *handle);
        }
        list(values.data(), values.size(), argument.is_optional);
    }
}

void SlotWriter::list(const void* first, std::size_t count, bool is_optional) {
    pointer(is_optional ? static_cast<const void*>(&pointers_.emplace_back(first)) : first);
    integer(static_cast<std::int64_t>(count));
}

class TypedInvocation final : public Invocation {
  public:
    TypedInvocation(std::shared_ptr<const ShimLibrary> library, const ExternDescription& description,
                    TensorTable& tensors)
        : library_(std::move(library)),
          tensors_(tensors),
          arguments_(description.arguments),
          returns_(description.returns),
          written_(description.written),
          results_(description.returns.size()),
          function_(library_->find(description.symbol)),
          call_(find_typed_call(description.signature)) {
        if (function_ == nullptr)
            throw std::invalid_argument("this torch has no symbol " + description.symbol);
        if (call_ == nullptr) {
            throw std::invalid_argument("no call was built for the signature " + description.signature +
                                        " of " + description.symbol);
        }
        for (const ExternReturn& value : returns_) {
            if (value.kind != ExternReturnKind::kTensor) {
                throw std::invalid_argument("a typed shim returns single tensors only");
            }
        }
        refresh();
        if (writer_->signature != description.signature) {
            throw std::invalid_argument("the arguments of " + description.symbol + " are " +
                                        writer_->signature + ", its signature is " + description.signature);
        }
    }

    void refresh() override {
        auto writer = std::make_unique<SlotWriter>(*library_, tensors_);
        for (const ExternArgument& argument : arguments_) writer->write(argument);
        for (ShimTensor& result : results_) writer->write_result(&result);
        writer_ = std::move(writer);
    }

    bool run(ExternFailure& failure) override {
        if (call_(function_, writer_->slots.data()) != 0) {
            failure = {kExternOperatorFailed, library_->last_error()};
            return false;
        }
        bool ok = true;
        for (std::size_t i = 0; i < results_.size(); ++i) {
            // An output that its mask turns off may come as no handle at all.
            if (results_[i] == nullptr) continue;
            const std::int64_t tensor = returns_[i].tensors.at(0);
            if (ok && tensor >= 0) ok = tensors_.copy_out(results_[i], tensor, failure);
            library_->functions().delete_tensor_object(results_[i]);
            results_[i] = nullptr;
        }
        for (const std::int64_t tensor : written_) ok = ok && tensors_.check_unmoved(tensor, failure);
        return ok;
    }

  private:
    std::shared_ptr<const ShimLibrary> library_;
    TensorTable& tensors_;
    std::vector<ExternArgument> arguments_;
    std::vector<ExternReturn> returns_;
    std::vector<std::int64_t> written_;
    std::vector<ShimTensor> results_;
    void* function_;
    TypedCall call_;
    std::unique_ptr<SlotWriter> writer_;
};

}  // namespace

std::unique_ptr<Invocation> make_typed_invocation(std::shared_ptr<const ShimLibrary> library,
                                                  const ExternDescription& description,
                                                  TensorTable& tensors) {
    return std::make_unique<TypedInvocation>(std::move(library), description, tensors);
}

}  // namespace graphsink
