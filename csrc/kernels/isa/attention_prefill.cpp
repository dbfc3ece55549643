// Causal attention of several tokens per sequence, packed one sequence after another, over the paged pool.
//
//     paged_attention_prefill   [query, key_cache, value_cache, block_table, query_start, seq_lens, output,
//     tokens,
//                                sequences, heads, kv_heads, key_size, value_size, blocks, block_size,
//                                table_columns, query_stride, scale, window, softcap]
//
// query [tokens, heads, key_size] with query_stride elements from token to token; query_start int32
// [sequences + 1], seq_lens int32 [sequences]; output [tokens, heads, value_size]; the rest as in
// attention_decode.cpp. The tokens' own keys and values are in the pool already. Token i of a sequence with n
// tokens stands at position seq_lens - n + i and sees positions up to its own, with window > 0 the last
// `window` of these. Tokens of a sequence of length 0 become zeros; tokens from query_start[sequences] on are
// not written.
//
// A task is divided into tiles of up to 64 rows (tokens by the query heads of one KV head). A row is summed
// online over tiles of 64 positions that begin at multiples of 64, so its bits depend only on its own
// sequence. With pairs of bfloat16 the weights are rounded to bfloat16, and it is the rounded ones that add
// up to 1.
//
// query_start that descends or a length below the number of tokens is GS_ERROR_BAD_ARGUMENT; tokens,
// positions or blocks outside of their tables are GS_ERROR_INDEX_OUT_OF_RANGE. Scratch: see
// Prefill::scratch_bytes.
#include "attention_matrix.h"
#include "attention_pool.h"
#include "level.h"

namespace graphsink {
namespace {

constexpr int64_t kRows = 64;  // of a tile, unless one token has more heads per KV head
constexpr int64_t kKeys = 64;  // positions of a tile

template <typename T>
struct Prefill {
    using Element = typename Matrix<T>::Element;
    Pool<T> pool;
    const T* query;
    const int32_t* query_start;
    const int32_t* seq_lens;
    T* output;
    int64_t tokens, sequences, heads, query_stride, window;
    float scale, softcap;

    // Scratch.
    Element* queries;  // [rows, depth]
    Element* keys;     // [kKeys / 16] panels of depth
    Element* weights;  // [rows, kKeys]
    Element* values;   // [width / 16] panels of kKeys
    T* nothing;        // zeros: keys and values of positions that no row sees
    float* scores;     // [rows, kKeys]
    float* sums;       // [rows, width]
    float* greatest;   // [rows] greatest score so far
    float* total;      // [rows] sum of weights so far
    float* shrink;     // [rows] factor for what was summed before this tile

    int64_t group() const { return heads / pool.kv_heads; }
    int64_t tile_tokens() const { return larger(1, kRows / group()); }
    int64_t rows() const { return round_up(tile_tokens() * group(), kRowStep); }
    int64_t depth() const { return round_up(pool.key_size, Matrix<T>::kDepthStep); }
    int64_t width() const { return round_up(pool.value_size, kPanel); }

    // Lays out scratch from `base` on and returns its size in bytes.
    int64_t lay_out(char* base) {
        int64_t used = 0;
        const auto take = [&](int64_t count, uint64_t size) {
            char* here = base + used;
            used = round_up(used + count * static_cast<int64_t>(size), 64);
            return here;
        };
        queries = reinterpret_cast<Element*>(take(rows() * depth(), sizeof(Element)));
        keys = reinterpret_cast<Element*>(take(kKeys * depth(), sizeof(Element)));
        weights = reinterpret_cast<Element*>(take(rows() * kKeys, sizeof(Element)));
        values = reinterpret_cast<Element*>(take(kKeys * width(), sizeof(Element)));
        nothing = reinterpret_cast<T*>(take(larger(pool.key_size, pool.value_size), sizeof(T)));
        scores = reinterpret_cast<float*>(take(rows() * kKeys, sizeof(float)));
        sums = reinterpret_cast<float*>(take(rows() * width(), sizeof(float)));
        greatest = reinterpret_cast<float*>(take(rows(), sizeof(float)));
        total = reinterpret_cast<float*>(take(rows(), sizeof(float)));
        shrink = reinterpret_cast<float*>(take(rows(), sizeof(float)));
        return used;
    }
};

template <typename T>
Prefill<T> read_slots(const gs_args* args) {
    Prefill<T> task;
    task.query = address<const T>(args, 0);
    task.pool = {address<const T>(args, 1), address<const T>(args, 2), address<const int32_t>(args, 3),
                 integer(args, 10),         integer(args, 11),         integer(args, 12),
                 integer(args, 13),         integer(args, 14),         integer(args, 15)};
    task.query_start = address<const int32_t>(args, 4);
    task.seq_lens = address<const int32_t>(args, 5);
    task.output = address<T>(args, 6);
    task.tokens = integer(args, 7);
    task.sequences = integer(args, 8);
    task.heads = integer(args, 9);
    task.query_stride = integer(args, 16);
    task.scale = number(args, 17);
    task.window = integer(args, 18);
    task.softcap = number(args, 19);
    return task;
}

template <typename T>
uint32_t check(Prefill<T>& task, const gs_args* args) {
    const Pool<T>& pool = task.pool;
    if (!pool.sizes_make_sense() || task.sequences < 0 || task.tokens < 0 || task.heads <= 0 ||
        task.heads % pool.kv_heads != 0 || task.window < 0) {
        return GS_ERROR_BAD_ARGUMENT;
    }
    if (task.lay_out(static_cast<char*>(args->scratch)) > static_cast<int64_t>(args->scratch_bytes)) {
        return GS_ERROR_SCRATCH_TOO_SMALL;
    }
    if (task.sequences > 0 && task.query_start[0] < 0) return GS_ERROR_INDEX_OUT_OF_RANGE;
    for (int64_t sequence = 0; sequence < task.sequences; ++sequence) {
        const int64_t count = task.query_start[sequence + 1] - task.query_start[sequence];
        const int64_t length = task.seq_lens[sequence];
        if (count < 0 || length < 0 || (length > 0 && length < count)) return GS_ERROR_BAD_ARGUMENT;
        if (task.query_start[sequence + 1] > task.tokens || length > pool.table_columns * pool.block_size) {
            return GS_ERROR_INDEX_OUT_OF_RANGE;
        }
    }
    return GS_ERROR_NONE;
}

// Some tokens of one sequence, seen by the query heads of one KV head.
struct Tile {
    int64_t sequence, kv_head;
    int64_t first_token, tokens;  // in the packing
    int64_t position;             // of the first token
};

// Positions that row `row` sees.
struct Seen {
    int64_t begin, end;
};
template <typename T>
Seen seen_by(const Prefill<T>& task, const Tile& tile, int64_t row) {
    const int64_t position = tile.position + row / task.group();
    return {task.window > 0 ? larger(0, position - task.window + 1) : 0, position + 1};
}

template <typename T>
void read_queries(const Prefill<T>& task, const Tile& tile) {
    const int64_t group = task.group(), depth = task.depth(), size = task.pool.key_size;
    memset(task.queries, 0, static_cast<uint64_t>(task.rows() * depth) * sizeof(*task.queries));
    for (int64_t row = 0; row < tile.tokens * group; ++row) {
        const int64_t token = tile.first_token + row / group, head = tile.kv_head * group + row % group;
        Matrix<T>::copy_row(task.query + token * task.query_stride + head * size, task.queries + row * depth,
                            size);
    }
}

// Packs keys and values of the tile of positions from `first` on; only `seen` is read from the pool.
template <typename T>
bool read_pool(const Prefill<T>& task, const Tile& tile, int64_t first, Seen seen) {
    const int64_t begin = larger(first, seen.begin), end = smaller(first + kKeys, seen.end);
    int64_t slots[kKeys];
    if (!find_slots(task.pool, tile.sequence, begin, end - begin, slots)) return false;
    const T* key_rows[kKeys];
    const T* value_rows[kKeys];
    for (int64_t i = 0; i < kKeys; ++i) {
        const bool there = first + i >= begin && first + i < end;
        key_rows[i] = there ? task.pool.key(slots[first + i - begin], tile.kv_head) : task.nothing;
        value_rows[i] = there ? task.pool.value(slots[first + i - begin], tile.kv_head) : task.nothing;
    }
    for (int64_t i = 0; i < kKeys; i += kPanel) {
        Matrix<T>::pack_columns(key_rows + i, task.pool.key_size, task.keys + i * task.depth());
    }
    Matrix<T>::pack_rows(value_rows, kKeys, task.pool.value_size, task.values);
    return true;
}

// Scales and caps the scores of a row, hides what it does not see, and returns the greatest of what is left
// and of `before`.
inline float prepare_row(float* scores, float scale, float softcap, int64_t begin, int64_t end,
                         float before) {
    for (int64_t i = 0; i < kKeys; i += kLanes) {
        store(scores + i, capped(mul(load(scores + i), broadcast(scale)), softcap));
    }
    for (int64_t i = 0; i < begin; ++i) scores[i] = -INFINITY;
    for (int64_t i = end; i < kKeys; ++i) scores[i] = -INFINITY;
    Lanes top = broadcast(before);
    for (int64_t i = 0; i < kKeys; i += kLanes) top = greatest(top, load(scores + i));
    return greatest_of(top);
}

// Scores of one tile of positions become weights; sums so far are made relative to the new greatest score.
template <typename T>
void soften(const Prefill<T>& task, const Tile& tile, int64_t first) {
    const int64_t rows = tile.tokens * task.group(), width = task.width();
    for (int64_t row = 0; row < rows; ++row) {
        const Seen seen = seen_by(task, tile, row);
        const int64_t begin = smaller(kKeys, larger(0, seen.begin - first));
        const int64_t end = larger(begin, smaller(kKeys, seen.end - first));
        const float before = task.greatest[row];
        float now = prepare_row(task.scores + row * kKeys, task.scale, task.softcap, begin, end, before);
        task.greatest[row] = now;
        // All -inf so far: the weights become 0.
        if (now == -INFINITY) now = 0.0f;
        task.shrink[row] = before - now;
        Lanes sum = zero();
        for (int64_t i = 0; i < kKeys; i += kLanes) {
            const Lanes weight = exp(sub(load(task.scores + row * kKeys + i), broadcast(now)));
            sum = add(sum, Matrix<T>::store_weights(task.weights + row * kKeys + i, weight));
        }
        // Until the next loop: the sum of this tile.
        task.scores[row * kKeys] = sum_of(sum);
    }
    for (int64_t row = 0; row < rows; row += kLanes) store(task.shrink + row, exp(load(task.shrink + row)));
    for (int64_t row = 0; row < rows; ++row) {
        const float factor = task.shrink[row];
        task.total[row] = task.total[row] * factor + task.scores[row * kKeys];
        if (factor == 1.0f) continue;
        float* sums = task.sums + row * width;
        for (int64_t i = 0; i < width; i += kLanes) store(sums + i, mul(load(sums + i), broadcast(factor)));
    }
}

template <typename T>
void write_rows(const Prefill<T>& task, const Tile& tile) {
    const int64_t group = task.group(), size = task.pool.value_size;
    for (int64_t row = 0; row < tile.tokens * group; ++row) {
        const int64_t token = tile.first_token + row / group, head = tile.kv_head * group + row % group;
        T* out = task.output + (token * task.heads + head) * size;
        const Lanes total = broadcast(task.total[row]);
        for (int64_t i = 0; i < size; i += kLanes) {
            const int n = static_cast<int>(smaller(kLanes, size - i));
            store_some(out + i, div(load(task.sums + row * task.width() + i), total), n);
        }
    }
}

template <typename T>
bool attend(const Prefill<T>& task, const Tile& tile) {
    const int64_t rows = round_up(tile.tokens * task.group(), kRowStep), width = task.width();
    const Seen seen = {seen_by(task, tile, 0).begin, tile.position + tile.tokens};
    read_queries(task, tile);
    memset(task.sums, 0, static_cast<uint64_t>(rows * width) * sizeof(float));
    for (int64_t row = 0; row < rows; ++row) {
        task.greatest[row] = -INFINITY;
        task.total[row] = 0.0f;
        task.shrink[row] = 0.0f;
    }
    for (int64_t first = seen.begin / kKeys * kKeys; first < seen.end; first += kKeys) {
        if (!read_pool(task, tile, first, seen)) return false;
        multiply<T>(task.queries, rows, task.depth(), task.keys, kKeys / kPanel, task.scores, false);
        soften(task, tile, first);
        multiply<T>(task.weights, rows, kKeys, task.values, width / kPanel, task.sums, true);
    }
    write_rows(task, tile);
    return true;
}

template <typename T>
void write_zeros(const Prefill<T>& task, int64_t sequence) {
    const int64_t begin = task.query_start[sequence], end = task.query_start[sequence + 1];
    const int64_t width = task.heads * task.pool.value_size;
    memset(task.output + begin * width, 0, static_cast<uint64_t>((end - begin) * width) * sizeof(T));
}

// Calls visit(tile, cost) for all tiles of the task in one order, with KV heads innermost, until it returns
// false.
template <typename T, typename Visit>
void for_each_tile(const Prefill<T>& task, Visit visit) {
    for (int64_t sequence = 0; sequence < task.sequences; ++sequence) {
        const int64_t begin = task.query_start[sequence], end = task.query_start[sequence + 1];
        if (task.seq_lens[sequence] == 0) continue;
        for (int64_t token = begin; token < end; token += task.tile_tokens()) {
            const int64_t count = smaller(task.tile_tokens(), end - token);
            const int64_t position = task.seq_lens[sequence] - (end - token);
            for (int64_t kv_head = 0; kv_head < task.pool.kv_heads; ++kv_head) {
                const Tile tile = {sequence, kv_head, token, count, position};
                const int64_t cost = position + count - seen_by(task, tile, 0).begin + kKeys;
                if (!visit(tile, cost)) return;
            }
        }
    }
}

template <typename T>
void paged_attention_prefill(const gs_args* args, uint32_t block, uint32_t block_dim) {
    Prefill<T> task = read_slots<T>(args);
    const uint32_t code = check(task, args);
    if (code != GS_ERROR_NONE) return report(args, code);
    memset(task.nothing, 0,
           static_cast<uint64_t>(larger(task.pool.key_size, task.pool.value_size)) * sizeof(T));
    memset(task.weights, 0, static_cast<uint64_t>(task.rows() * kKeys) * sizeof(*task.weights));
    memset(task.keys, 0, static_cast<uint64_t>(kKeys * task.depth()) * sizeof(*task.keys));
    int64_t total = 0;
    for_each_tile(task, [&](const Tile&, int64_t cost) {
        total += cost;
        return true;
    });
    for (int64_t sequence = block; sequence < task.sequences; sequence += block_dim) {
        if (task.seq_lens[sequence] == 0) write_zeros(task, sequence);
    }
    // A tile belongs to the block in whose share of the cost it begins.
    const int64_t begin = total * block / block_dim, end = total * (block + 1) / block_dim;
    int64_t start = 0;
    const TileUnit<T> unit;
    static_cast<void>(unit);
    for_each_tile(task, [&](const Tile& tile, int64_t cost) {
        const bool mine = start >= begin && start < end;
        start += cost;
        if (mine && !attend(task, tile)) {
            report(args, GS_ERROR_INDEX_OUT_OF_RANGE);
            return false;
        }
        return start < end;
    });
}

constexpr KernelEntry kEntries[] = {
    {"paged_attention_prefill_bf16", paged_attention_prefill<Bf16>},
    {"paged_attention_prefill_f32", paged_attention_prefill<float>},
};

}  // namespace

extern const KernelTable GS_TABLE(attention_prefill);
const KernelTable GS_TABLE(attention_prefill){kEntries, sizeof kEntries / sizeof kEntries[0]};

}  // namespace graphsink
