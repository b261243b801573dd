/* Select the numbers in a range. */
#pragma once

#include <stdint.h>

/* Write the numbers in low..low+width, both included, minus low, in their order; return how many.
 * At most n numbers are written from `out` on, also beyond the last that is returned. */
#ifdef __AVX512F__
#include <immintrin.h>
static inline int64_t within(const uint32_t *x, int n, uint32_t low, uint32_t width,
                             uint32_t *out) {
    int64_t found = 0;
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512i less = _mm512_sub_epi32(_mm512_loadu_si512(x + i), _mm512_set1_epi32((int)low));
        __mmask16 inside = _mm512_cmple_epu32_mask(less, _mm512_set1_epi32((int)width));
        _mm512_storeu_si512(out + found, _mm512_maskz_compress_epi32(inside, less));
        found += __builtin_popcount(inside);
    }
    for (; i < n; i++) {
        out[found] = x[i] - low;
        found += x[i] - low <= width;
    }
    return found;
}
#else
static inline int64_t within(const uint32_t *x, int n, uint32_t low, uint32_t width,
                             uint32_t *out) {
    int64_t found = 0;
    for (int i = 0; i < n; i++) {
        out[found] = x[i] - low;
        found += x[i] - low <= width;
    }
    return found;
}
#endif
