// Rows of a table by token id.
//
//     embedding   [ids, table, output, tokens, vocabulary, width]
//
// ids int64 [tokens], table [vocabulary, width], output [tokens, width]. Every block checks all ids before it
// writes: an id outside of the table is GS_ERROR_INDEX_OUT_OF_RANGE, and no row is written by any block.
#include "level.h"
#include "vector_math_lanes.h"

namespace graphsink {
namespace {

template <typename T>
void embedding(const gs_args* args, uint32_t block, uint32_t block_dim) {
    const int64_t* ids = address<const int64_t>(args, 0);
    const T* table = address<const T>(args, 1);
    T* output = address<T>(args, 2);
    const int64_t tokens = integer(args, 3), vocabulary = integer(args, 4), width = integer(args, 5);
    if (tokens < 0 || vocabulary < 0 || width < 0) return report(args, GS_ERROR_BAD_ARGUMENT);
    for (int64_t token = 0; token < tokens; ++token) {
        if (ids[token] < 0 || ids[token] >= vocabulary) return report(args, GS_ERROR_INDEX_OUT_OF_RANGE);
    }
    const Share share = share_of(tokens, 1, block, block_dim);
    for (int64_t token = share.begin; token < share.end; ++token) {
        memcpy(output + token * width, table + ids[token] * width, static_cast<uint64_t>(width) * sizeof(T));
    }
}

constexpr KernelEntry kEntries[] = {
    {"embedding_bf16", embedding<Bf16>},
    {"embedding_f32", embedding<float>},
};

}  // namespace

extern const KernelTable GS_TABLE(embedding);
const KernelTable GS_TABLE(embedding){kEntries, sizeof kEntries / sizeof kEntries[0]};

}  // namespace graphsink
