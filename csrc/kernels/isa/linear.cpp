// The packed linear layer: y[M, N] = x[M, K] @ W[N, K]^T + bias, as linear_f32 and linear_bf16.
//
//     linear  [x, packed, bias, y, M, N, K, x_row_stride, y_row_stride]
//
// Slots are described in linear_problem.h; bias may be 0.
// Needs 128 KiB of scratch (kLinearScratchBytes), except at the scalar level. Sums are float32; the bias is
// added to them before the one rounding. Errors: GS_ERROR_BAD_ARGUMENT, GS_ERROR_SCRATCH_TOO_SMALL.
#include "level.h"

#if defined(__AVX2__)
#include "linear_driver.h"
#include "linear_vector.h"
#if defined(__AMX_BF16__)
#include "linear_amx.h"
#endif
#else
#include "linear_scalar.h"
#endif

namespace graphsink {
namespace {

#if defined(__AVX2__)
constexpr gs_kernel linear_f32 = linear_kernel<F32Format, VectorTiles<F32Format, F32Lanes>>;
#else
constexpr gs_kernel linear_f32 = linear_scalar<F32Format>;
#endif

#if defined(__AMX_BF16__)
constexpr gs_kernel linear_bf16 = linear_kernel<Bf16Format, AmxTiles>;
#elif defined(__AVX512BF16__)
constexpr gs_kernel linear_bf16 = linear_kernel<Bf16Format, VectorTiles<Bf16Format, PairedBf16Lanes>>;
#elif defined(__AVX2__)
constexpr gs_kernel linear_bf16 = linear_kernel<Bf16Format, VectorTiles<Bf16Format, WidenedBf16Lanes>>;
#else
constexpr gs_kernel linear_bf16 = linear_scalar<Bf16Format>;
#endif

constexpr KernelEntry kEntries[] = {
    {"linear_f32", linear_f32},
    {"linear_bf16", linear_bf16},
};

}  // namespace

extern const KernelTable GS_TABLE(linear);
const KernelTable GS_TABLE(linear){kEntries, sizeof kEntries / sizeof kEntries[0]};

}  // namespace graphsink
