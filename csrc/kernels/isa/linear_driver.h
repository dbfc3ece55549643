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
                compute_block(row, block_rows, panel, smaller(block_panels, share.last_panel - panel));
            }
        }
        Tiles::end();
    }

  private:
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

    void compute_block(int64_t row, int64_t rows, int64_t panel, int64_t panels) {
        const int64_t step_inputs = Tiles::kStepLines * Format::kInputsPerLine;
        const int64_t whole_lines = problem_.inputs / step_inputs * Tiles::kStepLines;
        const int64_t ahead = smaller(kPrefetchBytes, problem_.panel_bytes) /
                              (Tiles::kStepLines * kLineBytes) * Tiles::kStepLines;
        bool first = true;
        for (int64_t line = 0; line < whole_lines;) {
            // Near the end of a panel the lines to ask for are those of the next group of panels.
            const int64_t turn = few_rows_ && whole_lines > ahead ? whole_lines - ahead : whole_lines;
            const int64_t end = line < turn ? turn : whole_lines;
            const int64_t longest =
                few_rows_ && !Tiles::prepares(few_rows_, true) ? end - line : Tiles::kRunLines;
            const int64_t lines = smaller(longest, end - line);
            int64_t prefetch = ahead * kLineBytes;
            if (few_rows_ && line >= turn) prefetch += (panels - 1) * problem_.panel_bytes;
            if (!few_rows_ && Tiles::kSharesPrefetch) {
                // The next run is of the same panels or, after the last, the first one of the next panels.
                const bool last = line + lines == whole_lines;
                prefetch = last ? panels * problem_.panel_bytes - line * kLineBytes : lines * kLineBytes;
            }
            compute_run({row, rows, panel, panels, line, lines, true, prefetch, first});
            first = false;
            line += lines;
        }
        const int64_t rest_lines = ceil_div(problem_.inputs, step_inputs) * Tiles::kStepLines - whole_lines;
        if (rest_lines > 0 || first) {
            compute_run({row, rows, panel, panels, whole_lines, rest_lines, false, 0, first});
        }
        store_block(row, rows, panel, panels);
    }

    struct Run {
        int64_t row, rows, panel, panels, line, lines;
        bool whole_steps;
        int64_t prefetch;
        bool first;
    };

    void compute_run(const Run& run) {
        const int64_t tiles = ceil_div(run.rows, Tiles::kMaxRows);
        for (int64_t tile = 0; tile < tiles; ++tile) {
            const int64_t start = tile_start(run.rows, tile);
            const int64_t rows = tile_start(run.rows, tile + 1) - start;
            TileCall call{};
            call.x = operand(run, run.row + start, rows);
            call.panel_bytes = problem_.panel_bytes;
            call.lines = run.lines;
            ask_for_weights(run, tile, tiles, call);
            call.first = run.first;
            const int64_t group = Tiles::panels_for(rows);
            for (int64_t p = 0; p < run.panels; p += group) {
                call.weights =
                    problem_.panels + (run.panel + p) * problem_.panel_bytes + run.line * kLineBytes;
                call.sums = sums_of(start, rows, p, run.panels);
                Tiles::tile(rows, smaller(group, run.panels - p))(call);
                if (!few_rows_ && Tiles::kSharesPrefetch) ask_for_x(run, tile + 1, tiles, p, p + group);
            }
        }
    }

    // Row tiles that work on the same weights share the asking for the next ones.
    void ask_for_weights(const Run& run, int64_t tile, int64_t tiles, TileCall& call) const {
        if (few_rows_ || !Tiles::kSharesPrefetch) {
            call.prefetch = tile == 0 ? run.prefetch : 0;
            call.prefetch_lines = call.prefetch != 0 ? 16 : 0;
            return;
        }
        const int64_t share = tiles >= 16 ? 1 : tiles >= 8 ? 2 : tiles >= 4 ? 4 : tiles >= 2 ? 8 : 16;
        const bool helps = run.prefetch != 0 && tile * share < 16;
        call.prefetch = helps ? run.prefetch + tile * share * kLineBytes : 0;
        call.prefetch_lines = helps ? share : 0;
    }

    // While groups of panels [first, last) of one row tile are computed: that part of x of the next row tile.
    void ask_for_x(const Run& run, int64_t tile, int64_t tiles, int64_t first, int64_t last) const {
        const bool same_run = tile < tiles;
        const int64_t line = same_run                                ? run.line
                             : run.line + run.lines < problem_.lines ? run.line + run.lines
                                                                     : 0;
        const int64_t start = same_run ? tile_start(run.rows, tile) : 0;
        const int64_t rows = tile_start(run.rows, same_run ? tile + 1 : 1) - start;
        const int64_t lines = smaller(run.lines, problem_.lines - line);
        for (int64_t row = rows * first / run.panels; row < rows * smaller(last, run.panels) / run.panels;
             ++row) {
            const char* x = problem_.x + (run.row + start + row) * problem_.x_row_bytes +
                            line * kLineBytes / kPanelOutputs;
            for (int64_t at = 0; at < lines * kLineBytes / kPanelOutputs; at += kLineBytes)
                __builtin_prefetch(x + at, 0, 2);
        }
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

    void store_block(int64_t row, int64_t rows, int64_t panel, int64_t panels) {
        using Element = typename Format::Element;
        const int64_t tiles = ceil_div(rows, Tiles::kMaxRows);
        for (int64_t p = 0; p < panels; ++p) {
            float bias[kPanelOutputs];
            load_bias<Element>(problem_, panel + p, bias);
            for (int64_t tile = 0; tile < tiles; ++tile) {
                const int64_t start = tile_start(rows, tile);
                const int64_t tile_rows = tile_start(rows, tile + 1) - start;
                const int64_t group = Tiles::panels_for(tile_rows), first = p / group * group;
                const int64_t width = smaller(group, panels - first) * kPanelOutputs;
                const float* sums = sums_of(start, tile_rows, first, panels) + (p - first) * kPanelOutputs;
                for (int64_t r = 0; r < tile_rows; ++r) {
                    store_panel<Element>(problem_, row + start + r, panel + p, sums + r * width, bias);
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
