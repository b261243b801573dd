/* Task vectors weighted by their energies, among the elements that vary most. */
#pragma once

#include "differences.h"
#include "reductions.h"
#include "vectors.h"

#define SMALLEST_ENERGY_DIVISOR 1e-6f

/* The population variance of each element over vectors of one base, by Welford's recurrence. */
static void variance_unchecked(const Vector *vectors, int vectors_count, int64_t count,
                               float *out) {
    float held[CHUNK], x[CHUNK], mean[CHUNK];
    for (int64_t start = 0; start < count; start += CHUNK) {
        int n = chunk_at(start, count);
        const float *b = load_base(vectors, start, n, held);
        float *squares = out + start;
        take_less(vectors, b, start, n, mean);
        for (int i = 0; i < n; i++) squares[i] = 0.0f;
        for (int k = 1; k < vectors_count; k++) {
            float share = (float)(1.0 / (k + 1));
            take_less(&vectors[k], b, start, n, x);
            for (int i = 0; i < n; i++) {
                float change = x[i] - mean[i];
                mean[i] = mean[i] + change * share;
                squares[i] = squares[i] + change * (x[i] - mean[i]);
            }
        }
        for (int i = 0; i < n; i++) squares[i] = one_nan(squares[i] / (float)vectors_count);
    }
}

/* sum(x^2) over the elements that a mask of bytes keeps; over all elements without a mask. */
static void sum_of_squares_unchecked(const Vector *v, const uint8_t *mask, int64_t count, double *out) {
    double wide[CHUNK], lanes[LANES] = {0.0};
    for (int64_t start = 0; start < count; start += CHUNK) {
        int n = chunk_at(start, count);
        int padded = widen(v, start, n, wide);
        if (mask)
            for (int i = 0; i < n; i++) wide[i] = mask[start + i] ? wide[i] : 0.0;
        add_products(wide, wide, padded, lanes);
    }
    *out = sum_of(lanes);
}

/* base + sum(a_i * w_i * d_i) / sum(a_i * w_i): a_i is 1 where d_i has the sign of the sum, else 0.
 *
 * The vectors are differences from the base; masked elements count as zero, whatever they are.
 * `terms` has room for a chunk of each. */
static void add_majority_mean_unchecked(const Vector *base, const Vector *vectors,
                                        const uint8_t *mask, const float *weights,
                                        int vectors_count, int64_t count, float *terms,
                                        const Output *out) {
    float held[CHUNK], sign[CHUNK], mixed[CHUNK], divisor[CHUNK], held_sum[CHUNK];
    for (int64_t start = 0; start < count; start += CHUNK) {
        int n = chunk_at(start, count);
        const float *b = load(base->data, base->dtype, start, n, held);
        for (int k = 0; k < vectors_count; k++) {
            float *term = terms + (size_t)k * CHUNK;
            take_less(&vectors[k], b, start, n, term);
            if (mask)
                for (int i = 0; i < n; i++) term[i] = mask[start + i] ? term[i] : 0.0f;
            for (int i = 0; i < n; i++) sign[i] = k == 0 ? term[i] : sign[i] + term[i];
        }
        for (int i = 0; i < n; i++) sign[i] = sign[i] >= 0.0f ? 1.0f : -1.0f;
        for (int k = 0; k < vectors_count; k++) {
            const float *term = terms + (size_t)k * CHUNK;
            float w = weights[k];
            for (int i = 0; i < n; i++) {
                float agrees = term[i] * sign[i];
                float kept = (agrees <= 0.0f ? 0.0f : agrees) * w;
                float took_part = agrees > 0.0f ? w : 0.0f;
                mixed[i] = k == 0 ? kept : mixed[i] + kept;
                divisor[i] = k == 0 ? took_part : divisor[i] + took_part;
            }
        }
        float *to = target(out, start, held_sum);
        for (int i = 0; i < n; i++) {
            float d = divisor[i] < SMALLEST_ENERGY_DIVISOR ? SMALLEST_ENERGY_DIVISOR : divisor[i];
            to[i] = b[i] + mixed[i] / d * sign[i];
        }
        put(out, start, n, to);
    }
}
