/* Sums of vectors, element by element. */
#pragma once

#include "vectors.h"

/* sum(w_i * x_i), each product and each sum rounded to float, in the order given. */
static void weighted_sum_unchecked(const Vector *terms, const float *weights, int terms_count,
                                   int64_t count, const Output *out) {
    float held[CHUNK], held_sum[CHUNK];
    for (int64_t start = 0; start < count; start += CHUNK) {
        int n = chunk_at(start, count);
        float *to = target(out, start, held_sum);
        for (int k = 0; k < terms_count; k++) {
            const float *x = take(&terms[k], start, n, held);
            float w = weights[k];
            if (k == 0)
                for (int i = 0; i < n; i++) to[i] = x[i] * w;
            else
                for (int i = 0; i < n; i++) to[i] = to[i] + x[i] * w;
        }
        put(out, start, n, to);
    }
}
