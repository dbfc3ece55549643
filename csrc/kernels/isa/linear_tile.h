// What the driver (linear_driver.h) asks of the inner loops: one tile of the result over a run of lines.
#pragma once

#include <stdint.h>

namespace graphsink {
namespace {

// Some rows of x, from the first input of the run on.
struct Operand {
    const char* data;
    int64_t row_bytes;   // from one row to the next
    int64_t step_bytes;  // from one line to the next; for tile registers, from one 16 lines to the next
    int64_t tile_bytes;  // for tile registers: from rows 0-15 to rows 16-31
};

struct TileCall {
    Operand x;
    const char* weights;  // first line of the run in the first panel
    int64_t panel_bytes;
    int64_t lines;
    float* sums;  // [rows][panels * 16]; read unless `first`, then written
    // Weights to ask for while these are multiplied: from `weights + prefetch` on, `prefetch_lines` lines for
    // every 16 that are read; 0: none.
    int64_t prefetch;
    int64_t prefetch_lines;
    bool first;
};

using TileFunction = void (*)(const TileCall& call);

}  // namespace
}  // namespace graphsink
