/* The kernel interface of graphsink, version 1.
 *
 * A kernel is a plain C function. It needs neither Python nor torch: prebuilt kernels, generated ones
 * and those of a user are called in the same way. One task calls its kernel once per block, on any core
 * and in any order; blocks of one task run at the same time.
 *
 *     void my_kernel(const gs_args* args, uint32_t block, uint32_t block_dim);
 *
 * Rules
 * - A kernel divides its work by `block` of `block_dim` itself. Every value of block_dim >= 1 must give the
 *   same result, bit for bit: work is divided over results, never over the terms of a sum.
 * - Slots are eight bytes each: an address or a scalar. Which is which is part of the kernel's definition.
 * - `scratch` belongs to the core for the duration of the call; its content is not kept and not zeroed.
 * - A kernel does not allocate, lock, call back or throw. To report a fault it stores a nonzero code in
 *   `*error` and returns; the first code wins, and the instance stops.
 */
#ifndef GRAPHSINK_KERNEL_ABI_H
#define GRAPHSINK_KERNEL_ABI_H

#include <stdint.h>

#define GS_KERNEL_ABI_VERSION 1u

/* Name of the uint32_t that a kernel library exports; it must equal GS_KERNEL_ABI_VERSION. */
#define GS_KERNEL_ABI_SYMBOL "gs_kernel_abi_version"

#ifdef __cplusplus
extern "C" {
#endif

/* One argument: eight bytes, read as what the kernel's definition says. */
typedef union gs_slot {
    void* address;
    int64_t i64;
    uint64_t u64;
    double f64;
} gs_slot;

typedef struct gs_args {
    const gs_slot* slots;   /* slot_count arguments */
    void* scratch;          /* of the calling core, 64-byte aligned */
    uint64_t scratch_bytes; /* size of `scratch` */
    uint32_t* error;        /* of the calling core; 0 until a kernel reports a fault */
    uint32_t slot_count;
    uint32_t core; /* index of the calling core within the device */
} gs_args;

typedef void (*gs_kernel)(const gs_args* args, uint32_t block, uint32_t block_dim);

/* Codes that prebuilt kernels report. Kernels of others use codes from GS_ERROR_USER on. */
enum {
    GS_ERROR_NONE = 0,
    GS_ERROR_INDEX_OUT_OF_RANGE = 1, /* a token id, a slot or a block outside of its table */
    GS_ERROR_SCRATCH_TOO_SMALL = 2,  /* the kernel needs more than `scratch_bytes` */
    GS_ERROR_BAD_ARGUMENT = 3,       /* a size that is negative, not a multiple, or too large */
    GS_ERROR_USER = 1000
};

#ifdef __cplusplus
}
#endif

#endif /* GRAPHSINK_KERNEL_ABI_H */
