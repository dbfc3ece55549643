// Attention of one token per sequence over its paged keys and values, split over chunks of 256 positions.
//
//     paged_attention_decode    [query, key_cache, value_cache, block_table, seq_lens, workspace, sequences,
//                                heads, kv_heads, key_size, value_size, blocks, block_size, table_columns,
//                                query_stride, scale, window, softcap]
//     paged_attention_combine   [workspace, seq_lens, output, sequences, heads, value_size, block_size,
//                                table_columns, window]
//
// query [sequences, heads, key_size] with query_stride elements from token to token; caches as in
// attention_pool.h; block_table int32 [sequences, table_columns]; seq_lens int32 [sequences], the new token
// included (it is in the pool already); output [sequences, heads, value_size]. kv_heads divides heads. With
// window > 0 only the last `window` positions count; with softcap > 0 a score is softcap * tanh(score /
// softcap).
//
// workspace: float32 [sequences, C, heads, round_up(value_size, 16) + 16] with
// C = ceil(table_columns * block_size / 256): per chunk the sum of weighted values, then the greatest score
// and the sum of weights. Chunks begin at multiples of 256 positions, so a sequence is summed in one order,
// whatever block_dim is and whatever else is in the batch. A sequence of length 0 touches nothing and gives
// zeros.
//
// A length beyond the table or a block outside of the pool is GS_ERROR_INDEX_OUT_OF_RANGE. Scratch: 4 bytes *
// 256 * heads / kv_heads * (KV heads taken at once, at least 1).
#include "attention_pool.h"
#include "attention_tiles.h"
#include "level.h"

namespace graphsink {
namespace {

constexpr int64_t kChunk = 256;
constexpr int64_t kTile = 16;  // tokens whose values are summed at a time; a multiple of kLanes

inline int64_t partial_stride(int64_t value_size) {
    return round_up(value_size, 16) + 16;
}

// Positions of one sequence that count, and the chunks they lie in.
struct Span {
    int64_t first, last;
    int64_t first_chunk() const { return first / kChunk; }
    int64_t end_chunk() const { return (last + kChunk - 1) / kChunk; }
};

inline Span span_of(int64_t seq_len, int64_t window) {
    return {window > 0 ? larger(0, seq_len - window) : 0, seq_len};
}

template <typename T>
struct Decode {
    Pool<T> pool;
    const T* query;
    const int32_t* seq_lens;
    float* workspace;
    int64_t sequences, heads, query_stride, window;
    float scale, softcap;
    float* scores;    // scratch: [heads of the KV heads taken at once, kChunk]
    int64_t at_once;  // KV heads whose scores fit into scratch

    int64_t group() const { return heads / pool.kv_heads; }
    int64_t chunks() const { return (pool.table_columns * pool.block_size + kChunk - 1) / kChunk; }
    float* partial(int64_t sequence, int64_t chunk, int64_t head) const {
        return workspace + ((sequence * chunks() + chunk) * heads + head) * partial_stride(pool.value_size);
    }
};

template <typename T>
Decode<T> read_slots(const gs_args* args) {
    Decode<T> task;
    task.query = address<const T>(args, 0);
    task.pool = {address<const T>(args, 1), address<const T>(args, 2), address<const int32_t>(args, 3),
                 integer(args, 8),          integer(args, 9),          integer(args, 10),
                 integer(args, 11),         integer(args, 12),         integer(args, 13)};
    task.seq_lens = address<const int32_t>(args, 4);
    task.workspace = address<float>(args, 5);
    task.sequences = integer(args, 6);
    task.heads = integer(args, 7);
    task.query_stride = integer(args, 14);
    task.scale = number(args, 15);
    task.window = integer(args, 16);
    task.softcap = number(args, 17);
    task.scores = static_cast<float*>(args->scratch);
    return task;
}

template <typename T>
uint32_t check(Decode<T>& task, const gs_args* args) {
    const Pool<T>& pool = task.pool;
    if (!pool.sizes_make_sense() || task.sequences < 0 || task.heads <= 0 ||
        task.heads % pool.kv_heads != 0 || task.window < 0) {
        return GS_ERROR_BAD_ARGUMENT;
    }
    const int64_t bytes = task.group() * kChunk * static_cast<int64_t>(sizeof(float));
    task.at_once = smaller(pool.kv_heads, static_cast<int64_t>(args->scratch_bytes) / bytes);
    if (task.at_once < 1) return GS_ERROR_SCRATCH_TOO_SMALL;
    for (int64_t sequence = 0; sequence < task.sequences; ++sequence) {
        if (task.seq_lens[sequence] < 0) return GS_ERROR_BAD_ARGUMENT;
        if (task.seq_lens[sequence] > pool.table_columns * pool.block_size)
            return GS_ERROR_INDEX_OUT_OF_RANGE;
    }
    return GS_ERROR_NONE;
}

// One chunk of one sequence for some KV heads.
template <typename T>
struct Piece {
    int64_t sequence, chunk;
    int64_t first_kv_head, end_kv_head;
    int64_t tokens;
    int64_t slots[kChunk];
};

// Scores of all positions of the piece, scaled and capped; the rest of the last register is -inf.
template <typename T>
void score(const Decode<T>& task, const Piece<T>& piece) {
    const int64_t group = task.group();
    const Lanes scale = broadcast(task.scale);
    const T* query = task.query + piece.sequence * task.query_stride;
    for (int64_t token = 0; token < piece.tokens; token += kLanes) {
        for (int64_t kv_head = piece.first_kv_head; kv_head < piece.end_kv_head; ++kv_head) {
            const T* rows[kLanes];
            // Where tokens are missing the last one is read again.
            for (int i = 0; i < kLanes; ++i) {
                rows[i] = task.pool.key(piece.slots[smaller(token + i, piece.tokens - 1)], kv_head);
            }
            for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
                const Lanes dots = scores_of(query + h * task.pool.key_size, rows, task.pool.key_size);
                float* out = task.scores + (h - piece.first_kv_head * group) * kChunk + token;
                store(out, capped(mul(dots, scale), task.softcap));
            }
        }
    }
    const int64_t padded = round_up(piece.tokens, kLanes);
    for (int64_t h = 0; h < (piece.end_kv_head - piece.first_kv_head) * group; ++h) {
        for (int64_t i = piece.tokens; i < padded; ++i) task.scores[h * kChunk + i] = -INFINITY;
    }
}

// Turns scores into weights exp(score - greatest); writes the greatest and the sum of weights.
inline void soften(float* scores, int64_t tokens, float* summary) {
    Lanes top = broadcast(-INFINITY);
    for (int64_t i = 0; i < tokens; i += kLanes) top = greatest(top, load(scores + i));
    const float maximum = greatest_of(top);
    // All -inf: weights of 0, and the greatest score tells the combination that nothing is here.
    const Lanes shift = broadcast(maximum == -INFINITY ? 0.0f : maximum);
    Lanes total = zero();
    for (int64_t i = 0; i < tokens; i += kLanes) {
        const Lanes weight = exp(sub(load(scores + i), shift));
        total = add(total, weight);
        store(scores + i, weight);
    }
    summary[0] = maximum;
    summary[1] = sum_of(total);
}

template <typename T>
void accumulate(const Decode<T>& task, const Piece<T>& piece) {
    const int64_t group = task.group(), stride = partial_stride(task.pool.value_size);
    for (int64_t token = 0; token < piece.tokens; token += kTile) {
        const int64_t here = smaller(kTile, piece.tokens - token);
        for (int64_t kv_head = piece.first_kv_head; kv_head < piece.end_kv_head; ++kv_head) {
            const T* rows[kTile];
            for (int64_t i = 0; i < here; ++i) rows[i] = task.pool.value(piece.slots[token + i], kv_head);
            const float* weights = task.scores + (kv_head - piece.first_kv_head) * group * kChunk + token;
            float* sums = task.partial(piece.sequence, piece.chunk, kv_head * group);
            weigh(group, rows, task.pool.value_size, here, weights, kChunk, sums, stride);
        }
    }
}

template <typename T>
void attend(const Decode<T>& task, const Piece<T>& piece) {
    const int64_t group = task.group(), width = round_up(task.pool.value_size, 16);
    score(task, piece);
    for (int64_t h = piece.first_kv_head * group; h < piece.end_kv_head * group; ++h) {
        float* partial = task.partial(piece.sequence, piece.chunk, h);
        soften(task.scores + (h - piece.first_kv_head * group) * kChunk, piece.tokens, partial + width);
        memset(partial, 0, static_cast<uint64_t>(width) * sizeof(float));
    }
    accumulate(task, piece);
}

// Splits the KV heads only where there are too few chunks to keep the blocks evenly busy; heads are
// independent, so this does not change a result.
template <typename T>
int64_t slabs_of(const Decode<T>& task, int64_t chunks, uint32_t block_dim) {
    const int64_t wanted = chunks == 0 ? 1 : (8 * static_cast<int64_t>(block_dim) + chunks - 1) / chunks;
    const int64_t least = (task.pool.kv_heads + task.at_once - 1) / task.at_once;
    return smaller(task.pool.kv_heads, larger(least, wanted));
}

template <typename T>
void paged_attention_decode(const gs_args* args, uint32_t block, uint32_t block_dim) {
    Decode<T> task = read_slots<T>(args);
    const uint32_t code = check(task, args);
    if (code != GS_ERROR_NONE) return report(args, code);
    int64_t chunks = 0, total = 0;
    for (int64_t sequence = 0; sequence < task.sequences; ++sequence) {
        const Span span = span_of(task.seq_lens[sequence], task.window);
        chunks += span.end_chunk() - span.first_chunk();
        total += span.last - span.first;
    }
    const int64_t slabs = slabs_of(task, chunks, block_dim);
    // A piece belongs to the block in whose share of all positions (times slabs) it begins.
    const int64_t begin = total * slabs * block / block_dim, end = total * slabs * (block + 1) / block_dim;
    int64_t start = 0;
    Piece<T> piece;
    for (piece.sequence = 0; piece.sequence < task.sequences && start < end; ++piece.sequence) {
        const Span span = span_of(task.seq_lens[piece.sequence], task.window);
        for (piece.chunk = span.first_chunk(); piece.chunk < span.end_chunk() && start < end; ++piece.chunk) {
            const int64_t first = larger(span.first, piece.chunk * kChunk);
            piece.tokens = smaller(span.last, (piece.chunk + 1) * kChunk) - first;
            if (start + piece.tokens * slabs > begin &&
                !find_slots(task.pool, piece.sequence, first, piece.tokens, piece.slots)) {
                return report(args, GS_ERROR_INDEX_OUT_OF_RANGE);
            }
            for (int64_t slab = 0; slab < slabs; ++slab, start += piece.tokens) {
                if (start < begin || start >= end) continue;
                piece.first_kv_head = task.pool.kv_heads * slab / slabs;
                piece.end_kv_head = task.pool.kv_heads * (slab + 1) / slabs;
                attend(task, piece);
            }
        }
    }
}

// Merges the chunks of one head, first to last.
template <typename T>
void combine_head(const float* partial, int64_t chunk_stride, int64_t chunks, T* output, int64_t size) {
    const int64_t width = round_up(size, 16);
    float maximum = -INFINITY;
    for (int64_t c = 0; c < chunks; ++c) {
        const float top = partial[c * chunk_stride + width];
        maximum = top > maximum ? top : maximum;
    }
    for (int64_t d = 0; d < size; d += kLanes) {
        Lanes values = zero(), weights = zero();
        for (int64_t c = 0; c < chunks; ++c) {
            const float* chunk = partial + c * chunk_stride;
            // Of a single chunk, or of the chunk with the greatest score, the factor is exactly 1.
            const Lanes factor = exp(sub(broadcast(chunk[width]), broadcast(maximum)));
            values = fused(load(chunk + d), factor, values);
            weights = fused(broadcast(chunk[width + 1]), factor, weights);
        }
        store_some(output + d, div(values, weights), static_cast<int>(smaller(kLanes, size - d)));
    }
}

template <typename T>
void paged_attention_combine(const gs_args* args, uint32_t block, uint32_t block_dim) {
    const float* workspace = address<const float>(args, 0);
    const int32_t* seq_lens = address<const int32_t>(args, 1);
    T* output = address<T>(args, 2);
    const int64_t sequences = integer(args, 3), heads = integer(args, 4), size = integer(args, 5);
    const int64_t positions = integer(args, 6) * integer(args, 7), window = integer(args, 8);
    if (sequences < 0 || heads <= 0 || size <= 0 || positions < 0 || window < 0) {
        return report(args, GS_ERROR_BAD_ARGUMENT);
    }
    const int64_t stride = partial_stride(size), chunks = (positions + kChunk - 1) / kChunk;
    const Share share = share_of(sequences * heads, 1, block, block_dim);
    for (int64_t item = share.begin; item < share.end; ++item) {
        const int64_t sequence = item / heads, head = item % heads;
        const int64_t length = seq_lens[sequence];
        if (length < 0) return report(args, GS_ERROR_BAD_ARGUMENT);
        if (length > positions) return report(args, GS_ERROR_INDEX_OUT_OF_RANGE);
        T* row = output + item * size;
        if (length == 0) {
            memset(row, 0, static_cast<uint64_t>(size) * sizeof(T));
            continue;
        }
        const Span span = span_of(length, window);
        const float* first = workspace + ((sequence * chunks + span.first_chunk()) * heads + head) * stride;
        combine_head(first, heads * stride, span.end_chunk() - span.first_chunk(), row, size);
    }
}

constexpr KernelEntry kEntries[] = {
    {"paged_attention_decode_bf16", paged_attention_decode<Bf16>},
    {"paged_attention_decode_f32", paged_attention_decode<float>},
    {"paged_attention_combine_bf16", paged_attention_combine<Bf16>},
    {"paged_attention_combine_f32", paged_attention_combine<float>},
};

}  // namespace

extern const KernelTable GS_TABLE(attention_decode);
const KernelTable GS_TABLE(attention_decode){kEntries, sizeof kEntries / sizeof kEntries[0]};

}  // namespace graphsink
