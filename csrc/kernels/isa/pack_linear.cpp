// Packing of linear weights: pack_linear_f32, pack_linear_bf16.
//
//     pack_linear  [rows, packed, first, last, N, K, row_stride]
//
//   rows        address of row `first` of W[N, K]; only rows first .. last-1 are read, so a caller can stream
//               a large matrix through a small buffer
//   packed      the whole packed form, 64-byte aligned
//   first, last rows to pack; first is a multiple of 16, last is one too or equals N
//   row_stride  elements from one row to the next
// Blocks divide the panels. The call with first == 0 also writes the header.
#include <string.h>

#include "level.h"
#include "linear_layout.h"

namespace graphsink {
namespace {

struct PackRequest {
    const char* rows;
    char* packed;
    int64_t first, last, outputs, inputs, row_bytes;
};

// One panel: line l holds element group l of each of its rows. Rows and inputs that do not exist are zero.
template <class Format>
void pack_panel(const char* rows, int64_t row_bytes, int64_t row_count, int64_t inputs, int64_t lines,
                char* panel) {
    constexpr int64_t group_bytes =
        Format::kInputsPerLine * static_cast<int64_t>(sizeof(typename Format::Element));
    static_assert(group_bytes == 4);
    const int64_t whole = inputs / Format::kInputsPerLine;
    if (row_count < kPanelOutputs || whole < lines) memset(panel, 0, static_cast<size_t>(lines * kLineBytes));
    for (int64_t line = 0; line < whole; ++line) {
        for (int64_t row = 0; row < row_count; ++row) {
            memcpy(panel + line * kLineBytes + row * group_bytes, rows + row * row_bytes + line * group_bytes,
                   group_bytes);
        }
    }
    const int64_t rest_bytes =
        (inputs - whole * Format::kInputsPerLine) * static_cast<int64_t>(sizeof(typename Format::Element));
    for (int64_t row = 0; rest_bytes > 0 && row < row_count; ++row) {
        memcpy(panel + whole * kLineBytes + row * group_bytes, rows + row * row_bytes + whole * group_bytes,
               static_cast<size_t>(rest_bytes));
    }
}

bool valid(const PackRequest& request) {
    const bool order = 0 <= request.first && request.first <= request.last && request.last <= request.outputs;
    const bool whole_panels = request.first % kPanelOutputs == 0 &&
                              (request.last % kPanelOutputs == 0 || request.last == request.outputs);
    return order && whole_panels && request.inputs >= 0 &&
           reinterpret_cast<uintptr_t>(request.packed) % 64 == 0;
}

template <class Format>
void pack_linear(const gs_args* args, uint32_t block, uint32_t block_dim) {
    const gs_slot* slots = args->slots;
    const PackRequest request{static_cast<const char*>(slots[0].address),
                              static_cast<char*>(slots[1].address),
                              slots[2].i64,
                              slots[3].i64,
                              slots[4].i64,
                              slots[5].i64,
                              slots[6].i64 * static_cast<int64_t>(sizeof(typename Format::Element))};
    if (!valid(request)) {
        *args->error = GS_ERROR_BAD_ARGUMENT;
        return;
    }
    const PackedHeader header = packed_header<Format>(request.outputs, request.inputs);
    if (request.first == 0 && block == 0) memcpy(request.packed, &header, sizeof header);
    const int64_t first_panel = request.first / kPanelOutputs;
    const int64_t panels = ceil_div(request.last, kPanelOutputs) - first_panel;
    for (int64_t panel = panels * block / block_dim; panel < panels * (block + 1) / block_dim; ++panel) {
        const int64_t row = panel * kPanelOutputs;
        const int64_t left = request.last - request.first - row;
        pack_panel<Format>(
            request.rows + row * request.row_bytes, request.row_bytes,
            left < kPanelOutputs ? left : kPanelOutputs, request.inputs, header.lines,
            request.packed + header.panels_offset + (first_panel + panel) * header.panel_bytes);
    }
}

constexpr KernelEntry kEntries[] = {
    {"pack_linear_f32", pack_linear<F32Format>},
    {"pack_linear_bf16", pack_linear<Bf16Format>},
};

}  // namespace

extern const KernelTable GS_TABLE(pack_linear);
const KernelTable GS_TABLE(pack_linear){kEntries, sizeof kEntries / sizeof kEntries[0]};

}  // namespace graphsink
