/* Two vectors side by side, in one pass over both. */
#pragma once

#include "energies.h"
#include "reductions.h"
#include "vectors.h"

/* Return n elements from `start` on, followed by zeros up to a whole chunk. */
static inline const float *load_chunk(const Vector *v, int64_t start, int n, float *to) {
    const float *x = take(v, start, n, to);
    if (n == CHUNK) return x;
    if (x != to) memcpy(to, x, sizeof(float) * (size_t)n);
    memset(to + n, 0, sizeof(float) * (size_t)(CHUNK - n));
    return to;
}

/* Return whether two vectors have the same bits, without NaN and infinity. If so, `squares` is the
 * sum of their squares. */
static int are_the_same(const Vector *first, const Vector *second, int64_t count, double *squares) {
    if (first->dtype != second->dtype || first->base || second->base ||
        memcmp(first->data, second->data, (size_t)count * (size_t)width_of(first->dtype)))
        return 0;
    sum_of_squares_unchecked(first, NULL, count, squares);
    return *squares - *squares == 0.0;
}

/* out[DISTANCE_SUMS]: sum(x^2), sum(y^2), sum((y - x)^2), the number of elements that differ, and
 * the largest |y - x|. Differences are computed in double, so that none overflows. */
static void distance_unchecked(const Vector *first, const Vector *second, int64_t count, double *out) {
    double same;
    if (are_the_same(first, second, count, &same)) {
        out[0] = out[1] = same;
        out[2] = out[3] = out[4] = 0.0;
        return;
    }
    float held_x[CHUNK], held_y[CHUNK];
    double firsts[LANES] = {0.0}, seconds[LANES] = {0.0}, changes[LANES] = {0.0};
    double most[LANES] = {0.0};
    int64_t differing = 0;
    for (int64_t start = 0; start < count; start += CHUNK) {
        int n = chunk_at(start, count);
        const float *x = load_chunk(first, start, n, held_x);
        const float *y = load_chunk(second, start, n, held_y);
        double own_firsts[LANES] = {0.0}, own_seconds[LANES] = {0.0}, own_changes[LANES] = {0.0};
        uint32_t differ = 0;
        for (int i = 0; i < CHUNK; i++) differ += x[i] != y[i];
        for (int i = 0; i < CHUNK; i += LANES)
            for (int k = 0; k < LANES; k++) {
                double a = x[i + k], b = y[i + k], d = b - a, size = fabs(d);
                own_firsts[k] += a * a;
                own_seconds[k] += b * b;
                own_changes[k] += d * d;
                most[k] = size > most[k] ? size : most[k];
            }
        for (int k = 0; k < LANES; k++) firsts[k] += own_firsts[k];
        for (int k = 0; k < LANES; k++) seconds[k] += own_seconds[k];
        for (int k = 0; k < LANES; k++) changes[k] += own_changes[k];
        differing += differ;
    }
    double largest = 0.0;
    for (int k = 0; k < LANES; k++) largest = most[k] > largest ? most[k] : largest;
    out[0] = sum_of(firsts);
    out[1] = sum_of(seconds);
    out[2] = sum_of(changes);
    out[3] = (double)differing;
    out[4] = largest;
}
