/* Numbers limited to a distance from a centre. */
#pragma once

#include "vectors.h"

/* x limited to m - reach .. m + reach, never -0; NaN where x or m is NaN. */
static void clamp_to_distance_unchecked(const Vector *v, const Vector *middle, float reach,
                                        int64_t count, const Output *out) {
    float held[CHUNK], held_middle[CHUNK], held_result[CHUNK];
    for (int64_t start = 0; start < count; start += CHUNK) {
        int n = chunk_at(start, count);
        const float *x = take(v, start, n, held);
        const float *m = take(middle, start, n, held_middle);
        float *to = target(out, start, held_result);
        for (int i = 0; i < n; i++) {
            float low = m[i] - reach, high = m[i] + reach;
            float y = x[i] < low ? low : x[i];
            y = y > high ? high : y;
            to[i] = (m[i] != m[i] ? m[i] : y) + 0.0f;
        }
        put(out, start, n, to);
    }
}
