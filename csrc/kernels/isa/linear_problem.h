// The arguments of a linear kernel, checked, and the share of the result that one block computes.
#pragma once

#include <stdint.h>

#include "linear_layout.h"

namespace graphsink {
namespace {

// Slots of linear_f32 and linear_bf16:
//   [x, packed, bias or 0, y, M, N, K, x_row_stride, y_row_stride]
// Strides count elements. x, bias and y have the dtype of the kernel.
struct LinearProblem {
    const char* x;
    const char* panels;
    const char* bias;
    char* y;
    int64_t rows, outputs, inputs;  // M, N, K
    int64_t x_row_bytes, y_row_bytes;
    int64_t lines, panel_bytes;
    int64_t panel_count;
};

// False if the sizes are negative, or `packed` was made for another dtype, N or K.
template <class Format>
bool read_linear_problem(const gs_args* args, LinearProblem& problem) {
    constexpr int64_t element_bytes = sizeof(typename Format::Element);
    const gs_slot* slots = args->slots;
    const auto* packed = static_cast<const char*>(slots[1].address);
    const int64_t rows = slots[4].i64, outputs = slots[5].i64, inputs = slots[6].i64;
    if (rows < 0 || outputs < 0 || inputs < 0) return false;
    const PackedHeader expected = packed_header<Format>(outputs, inputs);
    const auto* header = reinterpret_cast<const PackedHeader*>(packed);
    if (header->magic != kPackedMagic || header->version != kPackedVersion ||
        header->format != Format::kFormat || header->outputs != outputs || header->inputs != inputs ||
        header->lines != expected.lines || header->panel_bytes < expected.panel_bytes) {
        return false;
    }
    problem.x = static_cast<const char*>(slots[0].address);
    problem.panels = packed + header->panels_offset;
    problem.bias = static_cast<const char*>(slots[2].address);
    problem.y = static_cast<char*>(slots[3].address);
    problem.rows = rows;
    problem.outputs = outputs;
    problem.inputs = inputs;
    problem.x_row_bytes = slots[7].i64 * element_bytes;
    problem.y_row_bytes = slots[8].i64 * element_bytes;
    problem.lines = ceil_div(inputs, Format::kInputsPerLine);  // padding lines are not read
    problem.panel_bytes = header->panel_bytes;
    problem.panel_count = ceil_div(outputs, kPanelOutputs);
    return true;
}

// A rectangle of the result: panels [first_panel, last_panel) of rows [first_row, last_row).
struct Share {
    int64_t first_panel, last_panel, first_row, last_row;
};

// Splits the result into block_dim rectangles of nearly equal size: as many columns as leave the largest
// rectangle smallest. Of equal splits the one with most columns wins, because then fewest blocks read the
// same weights. Rows are divided in units of `row_unit`.
inline Share share_of(const LinearProblem& problem, int64_t row_unit, uint32_t block, uint32_t block_dim) {
    const int64_t row_units = ceil_div(problem.rows, row_unit);
    int64_t columns = block_dim, best = INT64_MAX;
    for (int64_t candidate = block_dim; candidate >= 1; --candidate) {
        if (block_dim % candidate != 0) continue;
        const int64_t largest =
            ceil_div(problem.panel_count, candidate) * ceil_div(row_units, block_dim / candidate);
        if (largest < best) {
            best = largest;
            columns = candidate;
        }
        if (row_units == 1) break;
    }
    const int64_t bands = block_dim / columns, column = block % columns, band = block / columns;
    Share share{};
    share.first_panel = problem.panel_count * column / columns;
    share.last_panel = problem.panel_count * (column + 1) / columns;
    share.first_row = row_units * band / bands * row_unit;
    share.last_row = row_units * (band + 1) / bands * row_unit;
    if (share.last_row > problem.rows) share.last_row = problem.rows;
    return share;
}

}  // namespace
}  // namespace graphsink
