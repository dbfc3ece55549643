#include <algorithm>
#include <bit>
#include <stdexcept>

#include "invocation.h"

namespace graphsink {

namespace {

template <class Handle>
ShimValue bits(Handle handle) {
    return reinterpret_cast<ShimValue>(handle);
}

class DispatcherInvocation final : public Invocation {
  public:
    DispatcherInvocation(std::shared_ptr<const ShimLibrary> library, const ExternDescription& description,
                         TensorTable& tensors)
        : library_(std::move(library)),
          shim_(library_->functions()),
          tensors_(tensors),
          op_(description.op),
          overload_(description.overload),
          arguments_(description.arguments),
          returns_(description.returns),
          written_(description.written),
          stack_(std::max(arguments_.size(), returns_.size())),
          version_(shim_.abi_version()) {
        for (ExternArgument& argument : arguments_) resolve(argument);
    }

    void refresh() override {}

    bool run(ExternFailure& failure) override {
        for (std::size_t i = 0; i < arguments_.size(); ++i) stack_[i] = make(arguments_[i]);
        if (shim_.call_dispatcher(op_.c_str(), overload_.c_str(), stack_.data(), version_) != 0) {
            failure = {kExternOperatorFailed, library_->last_error()};
            return false;
        }
        bool ok = true;
        for (std::size_t i = 0; i < returns_.size(); ++i) ok = take(returns_[i], stack_[i], ok, failure);
        for (const std::int64_t tensor : written_) ok = ok && tensors_.check_unmoved(tensor, failure);
        return ok;
    }

  private:
    // Names become numbers once, and mistakes in the description show before the first call.
    void resolve(ExternArgument& argument) {
        switch (argument.kind) {
            case ExternKind::kConstant:
                argument.integers = {library_->constant(argument.text)};
                argument.kind = ExternKind::kInteger;
                break;
            case ExternKind::kNoDevice:
            case ExternKind::kNoList:
                argument.kind = ExternKind::kNone;
                break;
            case ExternKind::kTensor:
            case ExternKind::kTensors:
            case ExternKind::kOptionalTensors:
                for (const std::int64_t index : argument.integers) {
                    if (index >= 0) tensors_.handle(index);
                }
                break;
            default:
                break;
        }
    }

    ShimValue make(const ExternArgument& argument) {
        if (argument.kind == ExternKind::kNone) return 0;
        const ShimValue value = make_plain(argument);
        return argument.is_optional ? boxed(value) : value;
    }

    ShimValue make_plain(const ExternArgument& argument) {
        switch (argument.kind) {
            case ExternKind::kTensor:
                return reference(argument.integers[0]);
            case ExternKind::kInteger:
            case ExternKind::kBoolean:
                return static_cast<ShimValue>(argument.integers[0]);
            case ExternKind::kReal:
                return std::bit_cast<ShimValue>(argument.reals[0]);
            case ExternKind::kString: {
                ShimString made = nullptr;
                expect(shim_.new_string(argument.text.data(), argument.text.size(), &made));
                return bits(made);
            }
            default:
                return make_list(argument);
        }
    }

    ShimValue make_list(const ExternArgument& argument) {
        ShimList made = nullptr;
        const std::size_t count = std::max(argument.integers.size(), argument.reals.size());
        expect(shim_.new_list(count, &made));
        for (const double value : argument.reals) {
            expect(shim_.list_push_back(made, std::bit_cast<ShimValue>(value)));
        }
        for (const std::int64_t value : argument.integers) {
            ShimValue item = static_cast<ShimValue>(value);
            if (argument.kind == ExternKind::kTensors) item = reference(value);
            if (argument.kind == ExternKind::kOptionalTensors) item = value < 0 ? 0 : boxed(reference(value));
            expect(shim_.list_push_back(made, item));
        }
        return bits(made);
    }

    ShimValue reference(std::int64_t index) {
        ShimTensor made = nullptr;
        expect(shim_.new_tensor_handle(tensors_.handle(index), &made));
        return bits(made);
    }

    ShimValue boxed(ShimValue value) {
        ShimValue* const cell = library_->new_value();
        *cell = value;
        return bits(cell);
    }

    // These fail only for want of memory; ExternCall::run turns that into a code.
    void expect(std::int32_t code) const {
        if (code != 0) throw std::runtime_error(library_->last_error());
    }

    bool take(const ExternReturn& value, ShimValue bits_of_value, bool ok, ExternFailure& failure) {
        if (value.kind == ExternReturnKind::kTensors) {
            return take_list(value, reinterpret_cast<ShimList>(bits_of_value), ok, failure);
        }
        const std::int64_t tensor = value.kind == ExternReturnKind::kAlias ? -1 : value.tensors.at(0);
        return take_tensor(tensor, bits_of_value, ok, failure);
    }

    bool take_tensor(std::int64_t tensor, ShimValue value, bool ok, ExternFailure& failure) {
        const auto result = reinterpret_cast<ShimTensor>(value);
        if (result == nullptr) return ok;
        if (ok && tensor >= 0) ok = tensors_.copy_out(result, tensor, failure);
        shim_.delete_tensor_object(result);
        return ok;
    }

    bool take_list(const ExternReturn& value, ShimList list, bool ok, ExternFailure& failure) {
        std::size_t size = 0;
        shim_.list_size(list, &size);
        if (ok && size != value.tensors.size()) {
            failure = {kExternResultMismatch, "the operator returned " + std::to_string(size) +
                                                  " tensors, the plan has " +
                                                  std::to_string(value.tensors.size())};
            ok = false;
        }
        for (std::size_t i = 0; i < size; ++i) {
            ShimValue item = 0;
            shim_.list_get_item(list, i, &item);
            ok = take_tensor(i < value.tensors.size() ? value.tensors[i] : -1, item, ok, failure);
        }
        shim_.delete_list(list);
        return ok;
    }

    std::shared_ptr<const ShimLibrary> library_;
    const ShimFunctions& shim_;
    TensorTable& tensors_;
    std::string op_;
    std::string overload_;
    std::vector<ExternArgument> arguments_;
    std::vector<ExternReturn> returns_;
    std::vector<std::int64_t> written_;
    std::vector<ShimValue> stack_;
    std::uint64_t version_;
};

}  // namespace

std::unique_ptr<Invocation> make_dispatcher_invocation(std::shared_ptr<const ShimLibrary> library,
                                                       const ExternDescription& description,
                                                       TensorTable& tensors) {
    return std::make_unique<DispatcherInvocation>(std::move(library), description, tensors);
}

}  // namespace graphsink
