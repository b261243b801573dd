/* The kernels for any processor, and which of the others this one can run. */

#define EXPORT(name) resumerge_##name##_baseline
#include "kernels.h"

/* 0: this file's; 1: also avx2.c's; 2: also avx512.c's. */
int resumerge_instruction_sets(void) {
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2")) return 0;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
               ? 2
               : 1;
#else
    return 0;
#endif
}
