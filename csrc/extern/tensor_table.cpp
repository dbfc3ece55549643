#include "tensor_table.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace graphsink {

namespace {

// Above this, ATen's copy, which uses several threads, beats one memmove in spite of its higher fixed cost.
constexpr std::size_t kLargestPlainCopy = std::size_t{256} << 10U;

std::string list_text(const std::int64_t* values, std::size_t count) {
    std::string text = "[";
    for (std::size_t i = 0; i < count; ++i) text += (i == 0 ? "" : ", ") + std::to_string(values[i]);
    return text + "]";
}

bool is_contiguous(const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& strides) {
    std::int64_t expected = 1;
    for (std::size_t i = sizes.size(); i-- > 0;) {
        if (sizes[i] != 1 && strides[i] != expected) return false;
        expected *= sizes[i];
    }
    return true;
}

void check(const ExternTensor& tensor, std::size_t index) {
    const std::string name = "tensor " + std::to_string(index);
    if (tensor.sizes.size() != tensor.strides.size()) {
        throw std::invalid_argument(name + " has " + std::to_string(tensor.sizes.size()) + " sizes but " +
                                    std::to_string(tensor.strides.size()) + " strides");
    }
    for (std::size_t i = 0; i < tensor.sizes.size(); ++i) {
        if (tensor.sizes[i] < 0 || tensor.strides[i] < 0) {
            throw std::invalid_argument(name + " has a negative size or stride in dimension " +
                                        std::to_string(i));
        }
    }
}

}  // namespace

TensorTable::TensorTable(std::shared_ptr<const ShimLibrary> library, const std::vector<ExternTensor>& tensors)
    : library_(std::move(library)), shim_(library_->functions()), entries_(tensors.size()) {
    // All entries are complete before the first handle exists, so a throw leaves nothing behind.
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        check(tensors[i], i);
        Entry& entry = entries_[i];
        entry.dtype = library_->constant("dtype_" + tensors[i].dtype);
        entry.sizes = tensors[i].sizes;
        entry.strides = tensors[i].strides;
        entry.bytes = shim_.dtype_element_size(entry.dtype);
        for (const std::int64_t size : entry.sizes) entry.bytes *= static_cast<std::size_t>(size);
        entry.is_contiguous = graphsink::is_contiguous(entry.sizes, entry.strides);
        entry.is_constant = tensors[i].is_constant;
        entry.constant = tensors[i].constant_bits;
        entry.data = entry.is_constant ? &entry.constant : reinterpret_cast<void*>(tensors[i].address);
        if (entry.data == nullptr && entry.bytes > 0) {
            throw std::invalid_argument("tensor " + std::to_string(i) + " has elements but no address");
        }
    }
    try {
        for (Entry& entry : entries_) make_handle(entry);
    } catch (...) {
        for (Entry& entry : entries_) {
            if (entry.handle != nullptr) shim_.delete_tensor_object(entry.handle);
        }
        throw;
    }
}

TensorTable::~TensorTable() {
    for (Entry& entry : entries_) shim_.delete_tensor_object(entry.handle);
}

void TensorTable::make_handle(Entry& entry) {
    ShimTensor made = nullptr;
    const auto dim = static_cast<std::int64_t>(entry.sizes.size());
    const std::int32_t code =
        shim_.create_tensor_from_blob(entry.data, dim, entry.sizes.data(), entry.strides.data(), 0,
                                      entry.dtype, shim_.device_type_cpu(), -1, &made);
    if (code != 0) throw std::invalid_argument(library_->last_error());
    if (entry.handle != nullptr) shim_.delete_tensor_object(entry.handle);
    entry.handle = made;
}

std::uint64_t TensorTable::address(std::int64_t index) const {
    return reinterpret_cast<std::uint64_t>(entries_.at(static_cast<std::size_t>(index)).data);
}

void TensorTable::set_address(std::int64_t index, std::uint64_t address) {
    Entry& entry = entries_.at(static_cast<std::size_t>(index));
    if (entry.is_constant) {
        throw std::invalid_argument("tensor " + std::to_string(index) + " is a constant of the call");
    }
    if (address == 0 && entry.bytes > 0) {
        throw std::invalid_argument("tensor " + std::to_string(index) + " has elements but no address");
    }
    void* const before = entry.data;
    entry.data = reinterpret_cast<void*>(address);
    try {
        make_handle(entry);
    } catch (...) {
        entry.data = before;
        throw;
    }
}

bool TensorTable::has_sizes(ShimTensor tensor, const Entry& entry) const {
    std::int64_t dim = 0;
    std::int64_t* sizes = nullptr;
    shim_.get_dim(tensor, &dim);
    shim_.get_sizes(tensor, &sizes);
    return static_cast<std::size_t>(dim) == entry.sizes.size() &&
           std::equal(entry.sizes.begin(), entry.sizes.end(), sizes);
}

std::string TensorTable::describe(ShimTensor tensor) const {
    std::int64_t dim = 0;
    std::int64_t* sizes = nullptr;
    std::int32_t dtype = 0;
    shim_.get_dim(tensor, &dim);
    shim_.get_sizes(tensor, &sizes);
    shim_.get_dtype(tensor, &dtype);
    return "sizes " + list_text(sizes, static_cast<std::size_t>(dim)) + " and dtype code " +
           std::to_string(dtype);
}

bool TensorTable::copy_out(ShimTensor result, std::int64_t index, ExternFailure& failure) {
    Entry& entry = entries_.at(static_cast<std::size_t>(index));
    bool defined = false;
    shim_.is_defined(result, &defined);
    if (!defined) {
        failure = {kExternResultMismatch,
                   "the operator returned None for planned tensor " + std::to_string(index)};
        return false;
    }
    std::int32_t dtype = 0;
    shim_.get_dtype(result, &dtype);
    if (dtype != entry.dtype || !has_sizes(result, entry)) {
        failure = {kExternResultMismatch, "the result has " + describe(result) + "; planned tensor " +
                                              std::to_string(index) + " has " + describe(entry.handle)};
        return false;
    }
    bool contiguous = false;
    shim_.is_contiguous(result, &contiguous);
    if (contiguous && entry.is_contiguous && entry.bytes <= kLargestPlainCopy) {
        void* from = nullptr;
        shim_.get_data_ptr(result, &from);
        // A result may be a view of memory of the plan, so the two may overlap.
        if (entry.bytes > 0) std::memmove(entry.data, from, entry.bytes);
        return true;
    }
    if (shim_.copy(entry.handle, result, 0) == 0) return true;
    failure = {kExternOperatorFailed, library_->last_error()};
    return false;
}

bool TensorTable::check_unmoved(std::int64_t index, ExternFailure& failure) {
    Entry& entry = entries_.at(static_cast<std::size_t>(index));
    void* data = nullptr;
    shim_.get_data_ptr(entry.handle, &data);
    if ((data == entry.data || entry.bytes == 0) && has_sizes(entry.handle, entry)) return true;
    failure = {kExternResultMismatch, "the operator resized planned tensor " + std::to_string(index) +
                                          " to " + describe(entry.handle) + "; the plan has sizes " +
                                          list_text(entry.sizes.data(), entry.sizes.size())};
    make_handle(entry);
    return false;
}

}  // namespace graphsink
