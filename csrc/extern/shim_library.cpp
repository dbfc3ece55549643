#include "shim_library.h"

#include <dlfcn.h>

#include <new>
#include <stdexcept>
#include <vector>

namespace graphsink {

namespace {

// Collects the names of what is missing, so that the error lists all of them at once.
class SymbolReader {
  public:
    explicit SymbolReader(void* handle) : handle_(handle) {}

    template <class Function>
    void require(Function& function, const char* symbol) {
        optional(function, symbol);
        if (function == nullptr) missing_ += (missing_.empty() ? "" : ", ") + std::string(symbol);
    }

    template <class Function>
    void optional(Function& function, const char* symbol) {
        function = reinterpret_cast<Function>(dlsym(handle_, symbol));
    }

    const std::string& missing() const { return missing_; }

  private:
    void* handle_;
    std::string missing_;
};

void read_tensor_functions(SymbolReader& reader, ShimFunctions& f) {
    reader.require(f.abi_version, "aoti_torch_abi_version");
    reader.require(f.create_tensor_from_blob, "aoti_torch_create_tensor_from_blob");
    reader.require(f.new_tensor_handle, "aoti_torch_new_tensor_handle");
    reader.require(f.delete_tensor_object, "aoti_torch_delete_tensor_object");
    reader.require(f.copy, "aoti_torch_copy_");
    reader.require(f.get_data_ptr, "aoti_torch_get_data_ptr");
    reader.require(f.get_dim, "aoti_torch_get_dim");
    reader.require(f.get_sizes, "aoti_torch_get_sizes");
    reader.require(f.get_dtype, "aoti_torch_get_dtype");
    reader.require(f.is_contiguous, "aoti_torch_is_contiguous");
    reader.require(f.is_defined, "aoti_torch_is_defined");
    reader.require(f.dtype_element_size, "aoti_torch_dtype_element_size");
    reader.require(f.device_type_cpu, "aoti_torch_device_type_cpu");
}

void read_dispatcher_functions(SymbolReader& reader, ShimFunctions& f) {
    reader.require(f.call_dispatcher, "torch_call_dispatcher");
    reader.require(f.new_list, "torch_new_list_reserve_size");
    reader.require(f.list_size, "torch_list_size");
    reader.require(f.list_get_item, "torch_list_get_item");
    reader.require(f.list_push_back, "torch_list_push_back");
    reader.require(f.delete_list, "torch_delete_list");
    reader.require(f.new_string, "torch_new_string_handle");
    reader.optional(f.exception_text, "torch_exception_get_what_without_backtrace");
    reader.optional(f.new_value, "torch_new_stable_ivalue");
}

}  // namespace

ShimLibrary::ShimLibrary(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD)) {
    if (handle_ == nullptr) throw std::runtime_error("this process has not loaded " + path);
    SymbolReader reader(handle_);
    read_tensor_functions(reader, functions_);
    read_dispatcher_functions(reader, functions_);
    if (!reader.missing().empty()) throw std::runtime_error(path + " lacks the symbols " + reader.missing());
}

void* ShimLibrary::find(const std::string& symbol) const {
    return dlsym(handle_, symbol.c_str());
}

std::int32_t ShimLibrary::constant(const std::string& name) const {
    // Two dtypes that torch 2.11 added are spelled without the prefix in some versions.
    for (const char* prefix : {"aoti_torch_", "torch_"}) {
        void* const symbol = find(prefix + name);
        if (symbol != nullptr) return reinterpret_cast<std::int32_t (*)()>(symbol)();
    }
    throw std::invalid_argument("this torch has no constant '" + name + "' in its C interface");
}

const char* ShimLibrary::last_error() const {
    if (functions_.exception_text == nullptr)
        return "an ATen operator failed; this torch does not pass the text on";
    return functions_.exception_text();
}

ShimValue* ShimLibrary::new_value() const {
    // Before torch 2.13 the callee frees the cell with the operator delete of the process.
    if (functions_.new_value == nullptr) return new ShimValue{0};
    ShimValue* made = nullptr;
    if (functions_.new_value(&made) != 0) throw std::bad_alloc();
    return made;
}

}  // namespace graphsink
