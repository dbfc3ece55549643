// Stores the keys and values of new tokens in the paged pool.
//
//     kv_write   [key, value, key_cache, value_cache, slot_mapping, tokens, kv_heads, key_size, value_size,
//                 slots, key_stride, value_stride]
//
// key [tokens, kv_heads, key_size] and value [tokens, kv_heads, value_size], with key_stride and value_stride
// elements from token to token; caches [slots, kv_heads, size]; slot_mapping int64 [tokens]. Every block
// checks the whole mapping before it writes: a slot that is negative or not below `slots` is
// GS_ERROR_INDEX_OUT_OF_RANGE, and no block writes anything. Tokens that share a slot, as padding does in the
// null block, leave it undefined.
#include "level.h"
#include "vector_math_lanes.h"

namespace graphsink {
namespace {

template <typename T>
void kv_write(const gs_args* args, uint32_t block, uint32_t block_dim) {
    const T* key = address<const T>(args, 0);
    const T* value = address<const T>(args, 1);
    T* key_cache = address<T>(args, 2);
    T* value_cache = address<T>(args, 3);
    const int64_t* mapping = address<const int64_t>(args, 4);
    const int64_t tokens = integer(args, 5), kv_heads = integer(args, 6);
    const int64_t key_width = kv_heads * integer(args, 7), value_width = kv_heads * integer(args, 8);
    const int64_t slots = integer(args, 9), key_stride = integer(args, 10), value_stride = integer(args, 11);
    if (tokens < 0 || key_width < 0 || value_width < 0) return report(args, GS_ERROR_BAD_ARGUMENT);
    for (int64_t token = 0; token < tokens; ++token) {
        if (mapping[token] < 0 || mapping[token] >= slots) return report(args, GS_ERROR_INDEX_OUT_OF_RANGE);
    }
    const Share share = share_of(tokens, 1, block, block_dim);
    for (int64_t token = share.begin; token < share.end; ++token) {
        const int64_t slot = mapping[token];
        memcpy(key_cache + slot * key_width, key + token * key_stride,
               static_cast<uint64_t>(key_width) * sizeof(T));
        memcpy(value_cache + slot * value_width, value + token * value_stride,
               static_cast<uint64_t>(value_width) * sizeof(T));
    }
}

constexpr KernelEntry kEntries[] = {
    {"kv_write_bf16", kv_write<Bf16>},
    {"kv_write_f32", kv_write<float>},
};

}  // namespace

extern const KernelTable GS_TABLE(attention_cache);
const KernelTable GS_TABLE(attention_cache){kEntries, sizeof kEntries / sizeof kEntries[0]};

}  // namespace graphsink
