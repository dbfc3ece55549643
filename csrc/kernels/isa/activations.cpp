// Element-wise kernels. Numerics of `eager`: every operation of PyTorch's eager mode computes in float32 and
// rounds its result to the tensor's dtype; exp, tanh and erf are within one unit in the last place.
//
//     exp, tanh, erf, silu, gelu_tanh, gelu_erf     [input, output, count]
//     add, mul                                      [a, b, output, count]
//     silu_mul, gelu_tanh_mul, gelu_erf_mul         [gate, up, output, rows, columns,
//                                                    gate_stride, up_stride, output_stride]
//
// Strides are in elements from row to row, so gate and up may be the halves of one product. `output` may be
// one of the inputs. The products with `up` round the activation first, as two operations of eager do.
// A negative count is refused with GS_ERROR_BAD_ARGUMENT.
#include "level.h"
#include "vector_math.h"

namespace graphsink {
namespace {

struct Exp {
    static Lanes of(Lanes x) { return exp(x); }
};
struct Tanh {
    static Lanes of(Lanes x) { return tanh(x); }
};
struct Erf {
    static Lanes of(Lanes x) { return erf(x); }
};
// x / (1 + exp(-x))
struct Silu {
    static Lanes of(Lanes x) { return div(x, add(broadcast(1.0f), exp(sub(zero(), x)))); }
};
// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
struct GeluTanh {
    static Lanes of(Lanes x) {
        const Lanes cube = mul(mul(x, x), x);
        const Lanes inner = mul(broadcast(0.797884561f), add(x, mul(broadcast(0.044715f), cube)));
        return mul(mul(broadcast(0.5f), x), add(broadcast(1.0f), tanh(inner)));
    }
};
// 0.5 x (1 + erf(x / sqrt(2)))
struct GeluErf {
    static Lanes of(Lanes x) {
        return mul(mul(x, broadcast(0.5f)), add(broadcast(1.0f), erf(mul(x, broadcast(0.707106781f)))));
    }
};
struct Add {
    static Lanes of(Lanes a, Lanes b) { return add(a, b); }
};
struct Mul {
    static Lanes of(Lanes a, Lanes b) { return mul(a, b); }
};

// A cache line of the smaller dtype: two cores never write to one line of an aligned result.
constexpr int64_t kGrain = 32;

template <typename Operation, typename T>
void unary(const gs_args* args, uint32_t block, uint32_t block_dim) {
    const T* input = address<const T>(args, 0);
    T* output = address<T>(args, 1);
    const int64_t count = integer(args, 2);
    if (count < 0) return report(args, GS_ERROR_BAD_ARGUMENT);
    const Share share = share_of(count, kGrain, block, block_dim);
    int64_t i = share.begin;
    for (; i + kLanes <= share.end; i += kLanes) store(output + i, Operation::of(load(input + i)));
    if (i < share.end) {
        const int rest = static_cast<int>(share.end - i);
        store_some(output + i, Operation::of(load_some(input + i, rest)), rest);
    }
}

template <typename Operation, typename T>
void binary(const gs_args* args, uint32_t block, uint32_t block_dim) {
    const T* a = address<const T>(args, 0);
    const T* b = address<const T>(args, 1);
    T* output = address<T>(args, 2);
    const int64_t count = integer(args, 3);
    if (count < 0) return report(args, GS_ERROR_BAD_ARGUMENT);
    const Share share = share_of(count, kGrain, block, block_dim);
    int64_t i = share.begin;
    for (; i + kLanes <= share.end; i += kLanes) store(output + i, Operation::of(load(a + i), load(b + i)));
    if (i < share.end) {
        const int rest = static_cast<int>(share.end - i);
        store_some(output + i, Operation::of(load_some(a + i, rest), load_some(b + i, rest)), rest);
    }
}

template <typename Operation, typename T>
void gated_row(const T* gate, const T* up, T* output, int64_t count) {
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        store(output + i, mul(rounded<T>(Operation::of(load(gate + i))), load(up + i)));
    }
    if (i < count) {
        const int rest = static_cast<int>(count - i);
        const Lanes active = rounded<T>(Operation::of(load_some(gate + i, rest)));
        store_some(output + i, mul(active, load_some(up + i, rest)), rest);
    }
}

template <typename Operation, typename T>
void gated(const gs_args* args, uint32_t block, uint32_t block_dim) {
    const T* gate = address<const T>(args, 0);
    const T* up = address<const T>(args, 1);
    T* output = address<T>(args, 2);
    const int64_t rows = integer(args, 3), columns = integer(args, 4);
    const int64_t gate_stride = integer(args, 5), up_stride = integer(args, 6),
                  output_stride = integer(args, 7);
    if (rows < 0 || columns < 0) return report(args, GS_ERROR_BAD_ARGUMENT);
    // Work items are pieces of rows, so that one wide row still occupies all cores.
    const int64_t pieces = (columns + kGrain - 1) / kGrain;
    const Share share = share_of(rows * pieces, 1, block, block_dim);
    for (int64_t item = share.begin; item < share.end;) {
        const int64_t row = item / pieces, piece = item % pieces;
        const int64_t taken = smaller(pieces - piece, share.end - item);
        const int64_t first = piece * kGrain, last = smaller(first + taken * kGrain, columns);
        gated_row<Operation>(gate + row * gate_stride + first, up + row * up_stride + first,
                             output + row * output_stride + first, last - first);
        item += taken;
    }
}

constexpr KernelEntry kEntries[] = {
    {"exp_bf16", unary<Exp, Bf16>},
    {"exp_f32", unary<Exp, float>},
    {"tanh_bf16", unary<Tanh, Bf16>},
    {"tanh_f32", unary<Tanh, float>},
    {"erf_bf16", unary<Erf, Bf16>},
    {"erf_f32", unary<Erf, float>},
    {"silu_bf16", unary<Silu, Bf16>},
    {"silu_f32", unary<Silu, float>},
    {"gelu_tanh_bf16", unary<GeluTanh, Bf16>},
    {"gelu_tanh_f32", unary<GeluTanh, float>},
    {"gelu_erf_bf16", unary<GeluErf, Bf16>},
    {"gelu_erf_f32", unary<GeluErf, float>},
    {"add_bf16", binary<Add, Bf16>},
    {"add_f32", binary<Add, float>},
    {"mul_bf16", binary<Mul, Bf16>},
    {"mul_f32", binary<Mul, float>},
    {"silu_mul_bf16", gated<Silu, Bf16>},
    {"silu_mul_f32", gated<Silu, float>},
    {"gelu_tanh_mul_bf16", gated<GeluTanh, Bf16>},
    {"gelu_tanh_mul_f32", gated<GeluTanh, float>},
    {"gelu_erf_mul_bf16", gated<GeluErf, Bf16>},
    {"gelu_erf_mul_f32", gated<GeluErf, float>},
};

}  // namespace

extern const KernelTable GS_TABLE(activations);
const KernelTable GS_TABLE(activations){kEntries, sizeof kEntries / sizeof kEntries[0]};

}  // namespace graphsink
