// The tensors of one extern call: handles of the shim over memory of the plan.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "extern_description.h"
#include "shim_library.h"

namespace graphsink {

// Why a call failed: a code and a text for the caller.
struct ExternFailure {
    std::int32_t code = 0;
    std::string text;
};

enum : std::int32_t {
    kExternOk = 0,
    kExternOperatorFailed = 1,   // ATen threw; the text is its own
    kExternResultMismatch = 2,   // a result has another shape or dtype than the plan says
    kExternInternalFailure = 3,  // out of memory, or a shim failed where it never should
};

class TensorTable {
  public:
    // Throws std::invalid_argument for a tensor that makes no sense, naming its index.
    TensorTable(std::shared_ptr<const ShimLibrary> library, const std::vector<ExternTensor>& tensors);
    ~TensorTable();
    TensorTable(const TensorTable&) = delete;
    TensorTable& operator=(const TensorTable&) = delete;

    std::size_t size() const { return entries_.size(); }

    // Stays valid, and at one address, until set_address.
    ShimTensor& handle(std::int64_t index) { return entries_.at(static_cast<std::size_t>(index)).handle; }

    std::uint64_t address(std::int64_t index) const;

    // Throws std::invalid_argument for address 0 where there are elements, and std::out_of_range.
    void set_address(std::int64_t index, std::uint64_t address);

    // Copies a result to its planned place. False, with the failure filled in, if it does not fit.
    bool copy_out(ShimTensor result, std::int64_t index, ExternFailure& failure);

    // Whether the operator left the tensor where and as large as it was; makes it anew if not.
    bool check_unmoved(std::int64_t index, ExternFailure& failure);

  private:
    struct Entry {
        void* data = nullptr;
        std::uint64_t constant = 0;
        bool is_constant = false;
        std::int32_t dtype = 0;
        std::vector<std::int64_t> sizes;
        std::vector<std::int64_t> strides;
        std::size_t bytes = 0;  // of all elements
        bool is_contiguous = false;
        ShimTensor handle = nullptr;
    };

    void make_handle(Entry& entry);
    bool has_sizes(ShimTensor tensor, const Entry& entry) const;
    std::string describe(ShimTensor tensor) const;

    std::shared_ptr<const ShimLibrary> library_;
    const ShimFunctions& shim_;
    std::vector<Entry> entries_;
};

}  // namespace graphsink
