/* Rounding to the stored type; vectors.h has the rounding of one number (to_bf16, to_f16, …). */
#pragma once

#include "vectors.h"

/* Round the elements of a vector to the type of `out`: to nearest, ties to even. */
static void round_to_unchecked(const Vector *v, int64_t count, const Output *out) {
    float held[CHUNK];
    for (int64_t start = 0; start < count; start += CHUNK) {
        int n = chunk_at(start, count);
        const float *x = take(v, start, n, held);
        float *to = target(out, start, held);
        if (to != x) memmove(to, x, sizeof(float) * (size_t)n);
        put(out, start, n, to);
    }
}
