// The linear kernel as plain loops: the reference that the other levels are compared with.
#pragma once

#include "linear_store.h"

namespace graphsink {
namespace {

template <class Format>
void linear_scalar(const gs_args* args, uint32_t block, uint32_t block_dim) {
    using Element = typename Format::Element;
    constexpr int64_t group = Format::kInputsPerLine;
    LinearProblem problem;
    if (!read_linear_problem<Format>(args, problem)) {
        *args->error = GS_ERROR_BAD_ARGUMENT;
        return;
    }
    const Share share = share_of(problem, 1, block, block_dim);
    for (int64_t panel = share.first_panel; panel < share.last_panel; ++panel) {
        const auto* weights = reinterpret_cast<const Element*>(problem.panels + panel * problem.panel_bytes);
        float bias[kPanelOutputs];
        load_bias<Element>(problem, panel, bias);
        for (int64_t row = share.first_row; row < share.last_row; ++row) {
            const auto* x = reinterpret_cast<const Element*>(problem.x + row * problem.x_row_bytes);
            float sums[kPanelOutputs] = {};
            for (int64_t k = 0; k < problem.inputs; ++k) {
                const Element* line = weights + k / group * group * kPanelOutputs + k % group;
                const float value = widen(x[k]);
                for (int64_t i = 0; i < kPanelOutputs; ++i) sums[i] += value * widen(line[i * group]);
            }
            store_panel<Element>(problem, row, panel, sums, bias);
        }
    }
}

}  // namespace
}  // namespace graphsink
