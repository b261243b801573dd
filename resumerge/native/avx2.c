/* The kernels for x86-64 processors with AVX2. */

#if defined(__x86_64__) && defined(__GNUC__)
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif
#include "kernels.h"

const Kernels resumerge_avx2 = KERNELS;
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
