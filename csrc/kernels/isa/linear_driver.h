// The loops around the inner loops, the same for every dtype and level.
//
//     rows in blocks ─ panels in blocks ─ lines in runs ─ row tiles ─ groups of panels ─ Tiles::tile
//
// Sums of a block of rows and panels stay in `scratch` as float32 between runs, which changes no bit. With
// few rows a block is one group of panels, so that weights stream from memory in order; with many rows a run
// of weights is used by all row tiles while it is in the cache.
#pragma once

#include <stdint.h>

#include "linear_store.h"
#include "linear_tile.h"

namespace graphsink {
namespace {

// What every linear kernel needs at least; more scratch makes larger blocks.
constexpr int64_t kLinearScratchBytes = 128 << 10;
constexpr int64_t kMaxBlockPanels = 32;
// How far ahead of the multiplication weights are asked for.
constexpr int64_t kPrefetchBytes = 2048;

inline int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

template <class Format, class Tiles>
class LinearDriver {
  public:
    LinearDriver(const gs_args* args, const LinearProblem& problem)
        : problem_(problem),
          prepared_(static_cast<char*>(args->scratch)),
          sums_(reinterpret_cast<float*>(prepared_ + Tiles::kPreparedBytes)),
          sum_panels_((static_cast<int64_t>(args->scratch_bytes) - Tiles::kPreparedBytes) / kLineBytes) {}

    void compute(const Share& share) {
        const int64_t rows = share.last_row - share.first_row;
        few_rows_ = rows <= Tiles::kMaxRows;
        Tiles::begin(rows);
        for (int64_t row = share.first_row; row < share.last_row; row += Tiles::kMaxBlockRows) {
            const int64_t block_rows = smaller(Tiles::kMaxBlockRows, share.last_row - row);
            const int64_t block_panels = panels_per_block(block_rows);
            for (int64_t panel = share.first_panel; panel < share.last_panel; panel += block_panels) {
                const int64_t panels = smaller(block_panels, share.last_panel - panel);
                compute_block({row, block_rows, panel, panels, panel + panels == share.last_panel});
            }
        }
        Tiles::end();
    }

  private:
    struct Block {
        int64_t row, rows, panel, panels;
        bool last_panels;
    };

    // Consecutive lines of all panels of a block.
    struct Run {
        int64_t line, lines;
        bool whole_steps;  // false: it ends in a part of a step, and x has to be padded
        bool first;
        int64_t prefetch;  // bytes from a line to the one to ask for; 0: nothing to ask for
    };

    static int64_t rounded(int64_t rows) { return ceil_div(rows, Tiles::kRowRound) * Tiles::kRowRound; }

    int64_t panels_per_block(int64_t rows) const {
        if (few_rows_) return Tiles::panels_for(rows);
        return smaller(kMaxBlockPanels, sum_panels_ / rounded(rows));
    }

    // Nearly equal row tiles: 9 rows are 5 + 4 rather than 8 + 1. Tile registers take their full size.
    static int64_t tile_start(int64_t rows, int64_t tile) {
        if (Tiles::kRowRound > 1) return smaller(rows, tile * Tiles::kMaxRows);
        return rows * tile / ceil_div(rows, Tiles::kMaxRows);
    }

    void compute_block(const Block& block) {
        constexpr int64_t step_inputs = Tiles::kStepLines * Format::kInputsPerLine;
        const int64_t whole_lines = problem_.inputs / step_inputs * Tiles::kStepLines;
        const int64_t all_lines = ceil_div(problem_.inputs, step_inputs) * Tiles::kStepLines;
        int64_t line = 0;
        while (line < whole_lines) {
            const Run run =
                few_rows_ ? streaming_run(block, line, whole_lines) : shared_run(block, line, whole_lines);
            compute_run(block, run);
            line += run.lines;
        }
        // Without inputs this run is empty and sets the sums to zero.
        if (line < all_lines || line == 0) compute_run(block, {line, all_lines - line, false, line == 0, 0});
        store_block(block);
    }

    // Few rows: as long as possible, and weights are asked for a fixed distance ahead. Near the end of a
    // panel these are the first lines of the next group of panels.
    Run streaming_run(const Block& block, int64_t line, int64_t whole_lines) const {
        constexpr int64_t step_bytes = Tiles::kStepLines * kLineBytes;
        const int64_t distance = smaller(kPrefetchBytes, problem_.panel_bytes) / step_bytes * step_bytes;
        const int64_t turn = whole_lines - distance / kLineBytes;
        const bool near_end = line >= turn;
        const int64_t longest = Tiles::prepares(true, true) ? Tiles::kRunLines : whole_lines;
        const int64_t lines = smaller(longest, (near_end ? whole_lines : turn) - line);
        const int64_t jump = near_end ? (block.panels - 1) * problem_.panel_bytes : 0;
        return {line, lines, true, line == 0, distance + jump};
    }

    // Many rows: what stays in the cache for all row tiles, while the next run is asked for: of the same
    // panels or, after the last run, of the next panels.
    Run shared_run(const Block& block, int64_t line, int64_t whole_lines) const {
        const int64_t lines = smaller(Tiles::kRunLines, whole_lines - line);
        const bool last = line + lines == whole_lines;
        const int64_t to_next_panels =
            block.last_panels ? 0 : block.panels * problem_.panel_bytes - line * kLineBytes;
        return {line, lines, true, line == 0, last ? to_next_panels : lines * kLineBytes};
    }

    void compute_run(const Block& block, const Run& run) {
        const int64_t tiles = ceil_div(block.rows, Tiles::kMaxRows);
        for (int64_t tile = 0; tile < tiles; ++tile) {
            const int64_t start = tile_start(block.rows, tile);
            const int64_t rows = tile_start(block.rows, tile + 1) - start;
            TileCall call{};
            call.x = operand(run, block.row + start, rows);
            call.panel_bytes = problem_.panel_bytes;
            call.lines = run.lines;
            call.first = run.first;
            ask_for_weights(run, tile, tiles, call);
            const int64_t group = Tiles::panels_for(rows);
            for (int64_t p = 0; p < block.panels; p += group) {
                call.weights =
                    problem_.panels + (block.panel + p) * problem_.panel_bytes + run.line * kLineBytes;
                call.sums = sums_of(start, rows, p, block.panels);
                Tiles::tile(rows, smaller(group, block.panels - p))(call);
            }
        }
    }

    // Row tiles that work on the same weights share the asking for the next ones: each asks for an equal
    // part.
    static void ask_for_weights(const Run& run, int64_t tile, int64_t tiles, TileCall& call) {
        const int64_t part = tiles >= 16 ? 1 : tiles >= 8 ? 2 : tiles >= 4 ? 4 : tiles >= 2 ? 8 : 16;
        if (run.prefetch == 0 || tile * part >= 16) return;
        call.prefetch = run.prefetch + tile * part * run.lines * kLineBytes / 16;
        call.prefetch_lines = part;
    }

    Operand operand(const Run& run, int64_t row, int64_t rows) {
        const char* x = problem_.x + row * problem_.x_row_bytes;
        const int64_t input = run.line * Format::kInputsPerLine;
        if (!Tiles::prepares(few_rows_, run.whole_steps))
            return Tiles::direct(x, problem_.x_row_bytes, input);
        const int64_t count = smaller(run.lines * Format::kInputsPerLine, problem_.inputs - input);
        return Tiles::prepare(x, problem_.x_row_bytes, rows, input, count, prepared_);
    }

    // Sums of one row tile are contiguous, and within them those of one group of panels.
    float* sums_of(int64_t start, int64_t rows, int64_t panel, int64_t panels) const {
        return sums_ + (start * panels + panel * rounded(rows)) * kPanelOutputs;
    }

    void store_block(const Block& block) {
        float bias[kMaxBlockPanels * kPanelOutputs];
        for (int64_t p = 0; p < block.panels; ++p) {
            load_bias<typename Format::Element>(problem_, block.panel + p, bias + p * kPanelOutputs);
        }
        const int64_t tiles = ceil_div(block.rows, Tiles::kMaxRows);
        for (int64_t tile = 0; tile < tiles; ++tile) {
            const int64_t start = tile_start(block.rows, tile);
            store_tile(block, start, tile_start(block.rows, tile + 1) - start, bias);
        }
    }

    void store_tile(const Block& block, int64_t start, int64_t rows, const float* bias) const {
        const int64_t group = Tiles::panels_for(rows);
        for (int64_t row = 0; row < rows; ++row) {
            for (int64_t first = 0; first < block.panels; first += group) {
                const int64_t width = smaller(group, block.panels - first);
                const float* sums = sums_of(start, rows, first, block.panels) + row * width * kPanelOutputs;
                for (int64_t p = 0; p < width; ++p) {
                    store_panel<typename Format::Element>(problem_, block.row + start + row,
                                                          block.panel + first + p, sums + p * kPanelOutputs,
                                                          bias + (first + p) * kPanelOutputs);
                }
            }
        }
    }

    LinearProblem problem_;
    char* prepared_;
    float* sums_;
    int64_t sum_panels_;  // sums of one row and one panel that the rest of the scratch holds
    bool few_rows_ = false;
};

template <class Format, class Tiles>
void linear_kernel(const gs_args* args, uint32_t block, uint32_t block_dim) {
    static_assert(Tiles::kPreparedBytes +
                      (Tiles::kMaxBlockRows + Tiles::kMaxRows) * Tiles::kMaxPanels * kLineBytes <=
                  kLinearScratchBytes);
    LinearProblem problem;
    if (!read_linear_problem<Format>(args, problem)) {
        *args->error = GS_ERROR_BAD_ARGUMENT;
    } else if (static_cast<int64_t>(args->scratch_bytes) < kLinearScratchBytes) {
        *args->error = GS_ERROR_SCRATCH_TOO_SMALL;
    } else {
        const Share share = share_of(problem, Tiles::kRowUnit, block, block_dim);
        if (share.first_row < share.last_row && share.first_panel < share.last_panel) {
            LinearDriver<Format, Tiles>(args, problem).compute(share);
        }
    }
}

}  // namespace
}  // namespace graphsink
