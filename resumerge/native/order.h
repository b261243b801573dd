/* Order over vectors: each element's values sorted. */
#pragma once

#include "vectors.h"

/* The mean of each element's values without the `cut` lowest and the `cut` highest, by odd-even
 * transposition sort; NaN where one value is NaN. `terms` has room for a chunk of each vector. */
static void trimmed_mean_unchecked(const Vector *vectors, int vectors_count, int cut, int64_t count,
                                   float *terms, const Output *out) {
    float held[CHUNK], held_mean[CHUNK];
    uint32_t bad[CHUNK];
    float kept = (float)(vectors_count - 2 * cut);
    for (int64_t start = 0; start < count; start += CHUNK) {
        int n = chunk_at(start, count);
        memset(bad, 0, sizeof bad);
        for (int k = 0; k < vectors_count; k++) {
            float *term = terms + (size_t)k * CHUNK;
            const float *x = take(&vectors[k], start, n, held);
            for (int i = 0; i < n; i++) {
                bad[i] |= x[i] != x[i];
                term[i] = x[i] + 0.0f; /* no -0, which minima and maxima order differently */
            }
        }
        for (int turn = 0; cut && turn < vectors_count; turn++)
            for (int k = turn % 2; k + 1 < vectors_count; k += 2) {
                float *lower = terms + (size_t)k * CHUNK, *upper = lower + CHUNK;
                for (int i = 0; i < n; i++) {
                    float a = lower[i], b = upper[i];
                    lower[i] = a < b ? a : b;
                    upper[i] = a < b ? b : a;
                }
            }
        float *total = terms + (size_t)cut * CHUNK;
        for (int k = cut + 1; k < vectors_count - cut; k++) {
            const float *term = terms + (size_t)k * CHUNK;
            for (int i = 0; i < n; i++) total[i] += term[i];
        }
        float *to = target(out, start, held_mean);
        for (int i = 0; i < n; i++) to[i] = bad[i] ? number_of(0x7fc00000u) : total[i] / kept;
        put(out, start, n, to);
    }
}
