/* The kernels for x86-64 processors with AVX-512. */

#if defined(__x86_64__) && defined(__GNUC__)
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))), \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#endif
#include "kernels.h"

const Kernels resumerge_avx512 = KERNELS;
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
