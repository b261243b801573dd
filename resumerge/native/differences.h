/* Vectors that have one base, which is loaded once for all of them. */
#pragma once

#include "vectors.h"

/* Return elements of the vectors' base; null if they have none. */
static inline const float *load_base(const Vector *v, int64_t start, int n, float *to) {
    return v->base ? load(v->base, v->base_dtype, start, n, to) : NULL;
}

/* Write elements of a vector, less the elements `b` of its base, to `to`. */
static inline void take_less(const Vector *v, const float *b, int64_t start, int n, float *to) {
    const float *x = load(v->data, v->dtype, start, n, to);
    if (b)
        for (int i = 0; i < n; i++) to[i] = x[i] - b[i];
    else if (x != to)
        memcpy(to, x, sizeof(float) * (size_t)n);
}
