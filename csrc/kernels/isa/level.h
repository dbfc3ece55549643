// Included first by every source that is compiled once per instruction-set level.
//
// The build defines GS_LEVEL as one of scalar, avx2, avx512, avx512_bf16, amx, neon, and gives the matching
// compiler flags. Code in these files lives in an anonymous namespace: two levels of an inline function with
// one name would be merged by the linker, and a machine could then run the wrong one. For the same reason
// they use no templates of the standard library.
#pragma once

#include "../registry.h"

#define GS_CONCATENATE_(a, b) a##_##b
#define GS_CONCATENATE(a, b) GS_CONCATENATE_(a, b)

// The table of one source file at one level, for example linear_table_avx2.
#define GS_TABLE(source) GS_CONCATENATE(source##_table, GS_LEVEL)
