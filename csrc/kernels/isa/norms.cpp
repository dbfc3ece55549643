// Normalisation of rows. Sums are float32 in a fixed order; a row is never divided between cores.
//
//     rms_norm       [input, weight, output, rows, columns, input_stride, epsilon, flags]
//     add_rms_norm   [input, residual, weight, sum, output, rows, columns, epsilon, flags]
//     layer_norm     [input, weight, bias, output, rows, columns, epsilon]
//
// With r = x.float() * (1 / sqrt(mean(x.float()^2) + epsilon)) the flags of the first two choose a formula of
// eager:
//     0                             (r * weight.float()).to(dtype)            OLMo 2, torch.nn.RMSNorm
//     1  unit offset                (r * (1 + weight.float())).to(dtype)      Gemma
//     2  round before the weight    weight * r.to(dtype)                      Llama, Qwen, Mistral
//     3  both                       (r.to(dtype).float() * (1 + weight.float())).to(dtype)
// add_rms_norm first forms sum = input + residual, rounded to the dtype as eager does, and normalises that.
// `sum` may be `input` or `residual`. A null weight or bias is left out. Rows of all but rms_norm's input are
// contiguous; input_stride is in elements.
#include "level.h"
#include "vector_math.h"

namespace graphsink {
namespace {

constexpr int64_t kUnitOffset = 1, kRoundFirst = 2;

// Sum over a row of (x - shift)^power in float32. Four running registers hide the latency of the addition.
template <int power, typename T>
float row_sum(const T* x, int64_t count, float shift) {
    const Lanes offset = broadcast(shift);
    Lanes sums[4] = {zero(), zero(), zero(), zero()};
    const auto accumulate = [&](Lanes& sum, Lanes value) {
        if constexpr (power == 1) {
            sum = add(sum, value);
        } else {
            const Lanes centred = sub(value, offset);
            sum = fused(centred, centred, sum);
        }
    };
    int64_t i = 0;
    for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
        for (int j = 0; j < 4; ++j) accumulate(sums[j], load(x + i + j * kLanes));
    }
    for (; i + kLanes <= count; i += kLanes) accumulate(sums[0], load(x + i));
    float total = sum_of(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
    // One by one: missing lanes would count as (0 - shift)^2.
    for (; i < count; ++i) {
        const float value = to_float(x[i]) - (power == 1 ? 0.0f : shift);
        total += power == 1 ? value : value * value;
    }
    return total;
}

// Applies `formula(x, i, n)` to n <= kLanes elements from i on, for the whole row.
template <typename T, typename Formula>
void map_row(const T* input, T* output, int64_t count, Formula formula) {
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) store(output + i, formula(load(input + i), i, kLanes));
    if (i < count) {
        const int rest = static_cast<int>(count - i);
        store_some(output + i, formula(load_some(input + i, rest), i, rest), rest);
    }
}

template <typename T>
Lanes load_up_to(const T* p, int count) {
    return count == kLanes ? load(p) : load_some(p, count);
}

template <typename T>
void rms_norm_row(const T* input, const T* weight, T* output, int64_t count, float epsilon, int64_t flags) {
    const float mean = row_sum<2>(input, count, 0.0f) / static_cast<float>(count);
    const Lanes scale = broadcast(1.0f / sqrtf(mean + epsilon));
    const bool round_first = (flags & kRoundFirst) != 0;
    const Lanes offset = broadcast((flags & kUnitOffset) != 0 ? 1.0f : 0.0f);
    map_row(input, output, count, [&](Lanes x, int64_t i, int n) {
        Lanes normed = mul(x, scale);
        if (weight == nullptr) return normed;
        if (round_first) normed = rounded<T>(normed);
        return mul(normed, add(offset, load_up_to(weight + i, n)));
    });
}

template <typename T>
void rms_norm(const gs_args* args, uint32_t block, uint32_t block_dim) {
    const T* input = address<const T>(args, 0);
    const T* weight = address<const T>(args, 1);
    T* output = address<T>(args, 2);
    const int64_t rows = integer(args, 3), columns = integer(args, 4), stride = integer(args, 5);
    const int64_t flags = integer(args, 7);
    if (rows < 0 || columns <= 0 || flags < 0 || flags > 3) return report(args, GS_ERROR_BAD_ARGUMENT);
    const Share share = share_of(rows, 1, block, block_dim);
    for (int64_t row = share.begin; row < share.end; ++row) {
        rms_norm_row(input + row * stride, weight, output + row * columns, columns, number(args, 6), flags);
    }
}

template <typename T>
void add_rms_norm(const gs_args* args, uint32_t block, uint32_t block_dim) {
    const T* input = address<const T>(args, 0);
    const T* residual = address<const T>(args, 1);
    const T* weight = address<const T>(args, 2);
    T* sum = address<T>(args, 3);
    T* output = address<T>(args, 4);
    const int64_t rows = integer(args, 5), columns = integer(args, 6), flags = integer(args, 8);
    if (rows < 0 || columns <= 0 || flags < 0 || flags > 3) return report(args, GS_ERROR_BAD_ARGUMENT);
    const Share share = share_of(rows, 1, block, block_dim);
    for (int64_t row = share.begin; row < share.end; ++row) {
        const T* right = residual + row * columns;
        T* total = sum + row * columns;
        map_row(input + row * columns, total, columns,
                [&](Lanes x, int64_t i, int n) { return add(x, load_up_to(right + i, n)); });
        rms_norm_row(total, weight, output + row * columns, columns, number(args, 7), flags);
    }
}

template <typename T>
void layer_norm(const gs_args* args, uint32_t block, uint32_t block_dim) {
    const T* input = address<const T>(args, 0);
    const T* weight = address<const T>(args, 1);
    const T* bias = address<const T>(args, 2);
    T* output = address<T>(args, 3);
    const int64_t rows = integer(args, 4), columns = integer(args, 5);
    if (rows < 0 || columns <= 0) return report(args, GS_ERROR_BAD_ARGUMENT);
    const float size = static_cast<float>(columns);
    const Share share = share_of(rows, 1, block, block_dim);
    for (int64_t row = share.begin; row < share.end; ++row) {
        const T* x = input + row * columns;
        const float mean = row_sum<1>(x, columns, 0.0f) / size;
        const float variance = row_sum<2>(x, columns, mean) / size;
        const Lanes centre = broadcast(mean), scale = broadcast(1.0f / sqrtf(variance + number(args, 6)));
        map_row(x, output + row * columns, columns, [&](Lanes value, int64_t i, int n) {
            Lanes normed = mul(sub(value, centre), scale);
            if (weight != nullptr) normed = mul(normed, load_up_to(weight + i, n));
            return bias == nullptr ? normed : add(normed, load_up_to(bias + i, n));
        });
    }
}

constexpr KernelEntry kEntries[] = {
    {"rms_norm_bf16", rms_norm<Bf16>},         {"rms_norm_f32", rms_norm<float>},
    {"add_rms_norm_bf16", add_rms_norm<Bf16>}, {"add_rms_norm_f32", add_rms_norm<float>},
    {"layer_norm_bf16", layer_norm<Bf16>},     {"layer_norm_f32", layer_norm<float>},
};

}  // namespace

extern const KernelTable GS_TABLE(norms);
const KernelTable GS_TABLE(norms){kEntries, sizeof kEntries / sizeof kEntries[0]};

}  // namespace graphsink
