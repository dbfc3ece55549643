/* What bench.threads compares: one kernel of ours and a matrix product of ATen, brought together in three
 * ways. */
#include <graphsink/kernel_abi.h>

const uint32_t gs_kernel_abi_version = GS_KERNEL_ABI_VERSION;

typedef int32_t (*matrix_product)(void* out, void* a, void* b);
typedef int32_t (*parallel_for)(int64_t begin, int64_t end, int64_t grain,
                                void (*body)(int64_t, int64_t, void*), void* context);

typedef struct chain {
    matrix_product product;
    void *out, *a, *b; /* tensors */
    float* values;
    int64_t count;
    parallel_for run_parallel;
    int64_t threads;
} chain;

static void scale(float* values, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) values[i] = values[i] * 0.5f + 1.0f;
}

/* [values, count] */
void ours(const gs_args* args, uint32_t block, uint32_t block_dim) {
    const int64_t count = args->slots[1].i64;
    scale(args->slots[0].address, count * block / block_dim, count * (block + 1) / block_dim);
}

/* A prepared call: the product on ATen's own threads. */
int32_t call_product(void* context, char* message, uint64_t capacity) {
    const chain* c = context;
    (void)message, (void)capacity;
    return c->product(c->out, c->a, c->b);
}

/* [product, set_threads, outs, a, bs, get_threads]: each core computes its slice with ATen on one thread. */
void product_of_slice(const gs_args* args, uint32_t block, uint32_t block_dim) {
    (void)block_dim;
    void (*set_threads)(int) = (void (*)(int))args->slots[1].address;
    const int threads = ((int (*)(void))args->slots[5].address)();
    set_threads(1); /* of the calling thread; one of them is the caller's, so it is put back */
    void **outs = args->slots[2].address, **bs = args->slots[4].address;
    if (((matrix_product)args->slots[0].address)(outs[block], args->slots[3].address, bs[block]) != 0)
        *args->error = GS_ERROR_USER;
    set_threads(threads);
}

static void scale_share(int64_t begin, int64_t end, void* context) {
    const chain* c = context;
    scale(c->values, c->count * begin / c->threads, c->count * end / c->threads);
}

/* Our kernel as a guest of ATen's team. */
int32_t run_on_team(const chain* c, int64_t length) {
    int32_t code = 0;
    for (int64_t i = 0; i < length && code == 0; ++i) {
        code = c->run_parallel(0, c->threads, 1, scale_share, (void*)c);
        if (code == 0) code = c->product(c->out, c->a, c->b);
    }
    return code;
}
