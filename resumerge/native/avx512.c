/* The kernels for x86-64 processors with AVX-512. */

#if defined(__x86_64__) && defined(__GNUC__)
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))), \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#endif
#define EXPORT(name) resumerge_##name##_avx512
#include "kernels.h"
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
