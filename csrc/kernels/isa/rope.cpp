// Rotary position embedding of queries and keys, in place.
//
//     rope   [query, key, cosine, sine, tokens, query_heads, key_heads, head_size, rotary_size,
//             query_stride, key_stride]
//
// query [tokens, query_heads, head_size] and key [tokens, key_heads, head_size] with query_stride and
// key_stride elements from token to token; cosine and sine [tokens, rotary_size], contiguous, in the same
// dtype. The first rotary_size elements of a head (even, at most head_size) turn; the others stay:
//     x * cosine + concat(-x[half:], x[:half]) * sine
// with eager's roundings: both products and the sum are rounded to the dtype.
#include "level.h"
#include "vector_math.h"

namespace graphsink {
namespace {

template <typename T>
Lanes load_up_to(const T* p, int count) {
    return count == kLanes ? load(p) : load_some(p, count);
}

// The two halves of one head.
template <typename T>
void rotate(T* x, const T* cosine, const T* sine, int64_t half) {
    for (int64_t i = 0; i < half; i += kLanes) {
        const int n = static_cast<int>(smaller(kLanes, half - i));
        const Lanes low = load_up_to(x + i, n), high = load_up_to(x + half + i, n);
        const Lanes low_cosine = rounded<T>(mul(low, load_up_to(cosine + i, n)));
        const Lanes low_sine = rounded<T>(mul(high, load_up_to(sine + i, n)));
        const Lanes high_cosine = rounded<T>(mul(high, load_up_to(cosine + half + i, n)));
        const Lanes high_sine = rounded<T>(mul(low, load_up_to(sine + half + i, n)));
        store_some(x + i, sub(low_cosine, low_sine), n);
        store_some(x + half + i, add(high_cosine, high_sine), n);
    }
}

template <typename T>
void rope(const gs_args* args, uint32_t block, uint32_t block_dim) {
    T* query = address<T>(args, 0);
    T* key = address<T>(args, 1);
    const T* cosine = address<const T>(args, 2);
    const T* sine = address<const T>(args, 3);
    const int64_t tokens = integer(args, 4), query_heads = integer(args, 5), key_heads = integer(args, 6);
    const int64_t head_size = integer(args, 7), rotary_size = integer(args, 8);
    const int64_t query_stride = integer(args, 9), key_stride = integer(args, 10);
    const bool fits = rotary_size >= 0 && rotary_size % 2 == 0 && rotary_size <= head_size;
    if (tokens < 0 || query_heads < 0 || key_heads < 0 || !fits) return report(args, GS_ERROR_BAD_ARGUMENT);
    const int64_t heads = query_heads + key_heads;
    const Share share = share_of(tokens * heads, 1, block, block_dim);
    for (int64_t item = share.begin; item < share.end; ++item) {
        const int64_t token = item / heads, head = item % heads;
        T* x = head < query_heads ? query + token * query_stride + head * head_size
                                  : key + token * key_stride + (head - query_heads) * head_size;
        rotate(x, cosine + token * rotary_size, sine + token * rotary_size, rotary_size / 2);
    }
}

constexpr KernelEntry kEntries[] = {
    {"rope_bf16", rope<Bf16>},
    {"rope_f32", rope<float>},
};

}  // namespace

extern const KernelTable GS_TABLE(rope);
const KernelTable GS_TABLE(rope){kEntries, sizeof kEntries / sizeof kEntries[0]};

}  // namespace graphsink
