// The greatest elements of rows.
//
//     argmax   [input, output, rows, columns, input_stride]
//     top_k    [input, values, indices, rows, columns, input_stride, k]
//
// input [rows, columns] with input_stride elements from row to row; output int64 [rows]; values [rows, k] in
// the input's dtype and indices int64 [rows, k], greatest first. Of equal elements the one with the lowest
// index comes first; a NaN is greater than everything, as in torch. columns and k are at least 1, k at most
// columns. top_k needs 8 k bytes of scratch.
#include "level.h"
#include "vector_math_lanes.h"

namespace graphsink {
namespace {

// An integer that is ordered as the value is; both zeros are equal, all NaN are equal and greatest.
inline int32_t order_of(float value) {
    if (value != value) return INT32_MAX;
    const float positive_zero = value + 0.0f;
    int32_t bits;
    memcpy(&bits, &positive_zero, sizeof bits);
    return bits >= 0 ? bits : bits ^ INT32_MAX;
}

// Greatest order among `count` elements. Vectorised by the compiler: the greatest of integers is the same in
// every order.
template <typename T>
int32_t greatest_order(const T* x, int64_t count) {
    int32_t best = INT32_MIN;
    for (int64_t i = 0; i < count; ++i) {
        const int32_t order = order_of(to_float(x[i]));
        best = order > best ? order : best;
    }
    return best;
}

// Rows are looked at in pieces: the test of a whole piece is fast, and few pieces hold a new best.
constexpr int64_t kPiece = 256;

template <typename T>
int64_t index_of_greatest(const T* row, int64_t columns) {
    int32_t best = INT32_MIN;
    int64_t best_piece = 0;
    for (int64_t i = 0; i < columns; i += kPiece) {
        const int32_t order = greatest_order(row + i, smaller(kPiece, columns - i));
        if (order > best) {
            best = order;
            best_piece = i;
        }
    }
    int64_t index = best_piece;
    while (order_of(to_float(row[index])) != best) ++index;
    return index;
}

template <typename T>
void argmax(const gs_args* args, uint32_t block, uint32_t block_dim) {
    const T* input = address<const T>(args, 0);
    int64_t* output = address<int64_t>(args, 1);
    const int64_t rows = integer(args, 2), columns = integer(args, 3), stride = integer(args, 4);
    if (rows < 0 || columns < 1) return report(args, GS_ERROR_BAD_ARGUMENT);
    const Share share = share_of(rows, 1, block, block_dim);
    for (int64_t row = share.begin; row < share.end; ++row) {
        output[row] = index_of_greatest(input + row * stride, columns);
    }
}

// Order in the upper half, inverted index in the lower: greater means earlier in the result.
inline int64_t candidate(int32_t order, int64_t index) {
    return static_cast<int64_t>(static_cast<uint64_t>(static_cast<uint32_t>(order)) << 32 |
                                (0xffffffffu - static_cast<uint32_t>(index)));
}
inline int64_t index_of(int64_t packed) {
    return 0xffffffffu - static_cast<uint32_t>(packed);
}

// Restores a heap whose smallest element is at 0 after `heap[hole]` was replaced.
void sift_down(int64_t* heap, int64_t size, int64_t hole) {
    const int64_t value = heap[hole];
    for (int64_t child = 2 * hole + 1; child < size; child = 2 * hole + 1) {
        if (child + 1 < size && heap[child + 1] < heap[child]) ++child;
        if (heap[child] >= value) break;
        heap[hole] = heap[child];
        hole = child;
    }
    heap[hole] = value;
}

template <typename T>
void top_k_row(const T* row, int64_t columns, int64_t* heap, int64_t k) {
    for (int64_t i = 0; i < k; ++i) heap[i] = candidate(order_of(to_float(row[i])), i);
    for (int64_t i = k / 2 - 1; i >= 0; --i) sift_down(heap, k, i);
    for (int64_t i = k; i < columns; i += kPiece) {
        const int64_t end = smaller(i + kPiece, columns);
        // An equal element comes later than the one that is kept, so only a greater one counts.
        if (greatest_order(row + i, end - i) <= static_cast<int32_t>(heap[0] >> 32)) continue;
        for (int64_t j = i; j < end; ++j) {
            const int64_t next = candidate(order_of(to_float(row[j])), j);
            if (next <= heap[0]) continue;
            heap[0] = next;
            sift_down(heap, k, 0);
        }
    }
    // The smallest goes to the end, again and again: what remains is ordered from the greatest down.
    for (int64_t size = k - 1; size > 0; --size) {
        const int64_t smallest = heap[0];
        heap[0] = heap[size];
        heap[size] = smallest;
        sift_down(heap, size, 0);
    }
}

template <typename T>
void top_k(const gs_args* args, uint32_t block, uint32_t block_dim) {
    const T* input = address<const T>(args, 0);
    T* values = address<T>(args, 1);
    int64_t* indices = address<int64_t>(args, 2);
    const int64_t rows = integer(args, 3), columns = integer(args, 4), stride = integer(args, 5);
    const int64_t k = integer(args, 6);
    if (rows < 0 || columns < 1 || columns > UINT32_MAX || k < 1 || k > columns) {
        return report(args, GS_ERROR_BAD_ARGUMENT);
    }
    if (args->scratch_bytes < static_cast<uint64_t>(k) * sizeof(int64_t)) {
        return report(args, GS_ERROR_SCRATCH_TOO_SMALL);
    }
    int64_t* heap = static_cast<int64_t*>(args->scratch);
    const Share share = share_of(rows, 1, block, block_dim);
    for (int64_t row = share.begin; row < share.end; ++row) {
        const T* elements = input + row * stride;
        top_k_row(elements, columns, heap, k);
        for (int64_t i = 0; i < k; ++i) {
            const int64_t index = index_of(heap[i]);
            values[row * k + i] = elements[index];
            indices[row * k + i] = index;
        }
    }
}

constexpr KernelEntry kEntries[] = {
    {"argmax_bf16", argmax<Bf16>},
    {"argmax_f32", argmax<float>},
    {"top_k_bf16", top_k<Bf16>},
    {"top_k_f32", top_k<float>},
};

}  // namespace

extern const KernelTable GS_TABLE(selection);
const KernelTable GS_TABLE(selection){kEntries, sizeof kEntries / sizeof kEntries[0]};

}  // namespace graphsink
