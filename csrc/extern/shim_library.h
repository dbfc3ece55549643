// The C interface of the libtorch that Python has loaded, found at run time: graphsink is neither linked
// against torch nor built with its headers. Only what is called is declared here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace graphsink {

using ShimTensor = struct ShimTensorObject*;
using ShimList = struct ShimListObject*;
using ShimString = struct ShimStringObject*;
// How the dispatcher's shim passes any value: its bits, or the address of something that it takes over.
using ShimValue = std::uint64_t;

// Every function but the getters returns 0 for success.
struct ShimFunctions {
    std::uint64_t (*abi_version)();

    std::int32_t (*create_tensor_from_blob)(void* data, std::int64_t dim, const std::int64_t* sizes,
                                            const std::int64_t* strides, std::int64_t storage_offset,
                                            std::int32_t dtype, std::int32_t device_type,
                                            std::int32_t device_index, ShimTensor* made);
    std::int32_t (*new_tensor_handle)(ShimTensor tensor, ShimTensor* made);
    std::int32_t (*delete_tensor_object)(ShimTensor tensor);
    std::int32_t (*copy)(ShimTensor to, ShimTensor from, std::int32_t non_blocking);

    std::int32_t (*get_data_ptr)(ShimTensor tensor, void** data);
    std::int32_t (*get_dim)(ShimTensor tensor, std::int64_t* dim);
    std::int32_t (*get_sizes)(ShimTensor tensor, std::int64_t** sizes);
    std::int32_t (*get_dtype)(ShimTensor tensor, std::int32_t* dtype);
    std::int32_t (*is_contiguous)(ShimTensor tensor, bool* contiguous);
    std::int32_t (*is_defined)(ShimTensor tensor, bool* defined);
    std::size_t (*dtype_element_size)(std::int32_t dtype);
    std::int32_t (*device_type_cpu)();

    std::int32_t (*call_dispatcher)(const char* op, const char* overload, ShimValue* stack,
                                    std::uint64_t build_version);
    std::int32_t (*new_list)(std::size_t capacity, ShimList* made);
    std::int32_t (*list_size)(ShimList list, std::size_t* size);
    std::int32_t (*list_get_item)(ShimList list, std::size_t index, ShimValue* item);
    std::int32_t (*list_push_back)(ShimList list, ShimValue item);
    std::int32_t (*delete_list)(ShimList list);
    std::int32_t (*new_string)(const char* data, std::size_t length, ShimString* made);

    // From torch 2.13 on; null before. See ShimLibrary::last_error and ShimLibrary::new_value.
    const char* (*exception_text)();
    std::int32_t (*new_value)(ShimValue** made);
};

class ShimLibrary {
  public:
    // `path` is that of libtorch_cpu.so. Throws std::runtime_error if this process has not loaded it or if
    // symbols are missing, which are then named.
    explicit ShimLibrary(const std::string& path);

    const ShimFunctions& functions() const { return functions_; }

    // Major and minor version of torch as the library reports them.
    int major() const { return static_cast<int>(functions_.abi_version() >> 56U); }
    int minor() const { return static_cast<int>((functions_.abi_version() >> 48U) & 0xFFU); }

    // Null if the library has no such symbol.
    void* find(const std::string& symbol) const;

    // The library's number for "dtype_float32", "memory_format_channels_last" and so on. Throws
    // std::invalid_argument for a name that it does not know.
    std::int32_t constant(const std::string& name) const;

    // Text of the newest exception in this thread; a fixed sentence where torch does not tell.
    const char* last_error() const;

    // A cell for an optional value, which the callee frees.
    ShimValue* new_value() const;

  private:
    void* handle_;
    ShimFunctions functions_{};
};

}  // namespace graphsink
