// Packed weights of a linear layer: one form per dtype, for every M and every instruction-set level.
// Described in docs/design/linear.md; src/graphsink/runtime/linear.py computes the same sizes.
//
//     header (128 bytes) | panel 0 | panel 1 | ...
//
// A panel holds kPanelOutputs outputs (rows of W) as lines of 64 bytes: 16 outputs by one input in float32,
// 16 outputs by a pair of inputs in bfloat16. Outputs and inputs beyond N and K are zero.
#pragma once

#include <stdint.h>

namespace graphsink {
namespace {

constexpr int64_t kPanelOutputs = 16;
constexpr int64_t kLineBytes = 64;
constexpr uint32_t kPackedMagic = 0x4c4b5047;  // "GPKL"
constexpr uint16_t kPackedVersion = 1;

enum PackedFormat : uint16_t { kPackedF32 = 1, kPackedBf16 = 2 };

// Strides and offsets are data, so that a quantised format can have shorter lines and a table of scales
// (`scale_inputs` inputs per scale, one row of scales per panel) without a second header.
struct PackedHeader {
    uint32_t magic;
    uint16_t version;
    uint16_t format;
    int64_t outputs;             // N
    int64_t inputs;              // K
    int64_t lines;               // per panel, padding included
    int64_t panel_bytes;         // from one panel to the next
    int64_t panels_offset;       // of panel 0, from the header
    int64_t scales_offset;       // of the scales of panel 0; 0: no scales
    int64_t scales_panel_bytes;  // from the scales of one panel to those of the next
    int64_t scale_inputs;        // inputs that share a scale
    int64_t reserved[7];
};
static_assert(sizeof(PackedHeader) == 128);

// What differs between the dtypes. Tile instructions take 16 lines at a time, so bfloat16 panels are padded
// to a multiple of 16 lines; nothing else reads the padding.
struct F32Format {
    using Element = float;
    static constexpr PackedFormat kFormat = kPackedF32;
    static constexpr int64_t kInputsPerLine = 1;
    static constexpr int64_t kLineMultiple = 1;
};

struct Bf16Format {
    using Element = uint16_t;
    static constexpr PackedFormat kFormat = kPackedBf16;
    static constexpr int64_t kInputsPerLine = 2;
    static constexpr int64_t kLineMultiple = 16;
};

constexpr int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

template <class Format>
PackedHeader packed_header(int64_t outputs, int64_t inputs) {
    PackedHeader header{};
    header.magic = kPackedMagic;
    header.version = kPackedVersion;
    header.format = Format::kFormat;
    header.outputs = outputs;
    header.inputs = inputs;
    header.lines =
        ceil_div(ceil_div(inputs, Format::kInputsPerLine), Format::kLineMultiple) * Format::kLineMultiple;
    header.panel_bytes = header.lines * kLineBytes;
    header.panels_offset = sizeof(PackedHeader);
    return header;
}

}  // namespace
}  // namespace graphsink
