/* Consensus TA: a sum of task vectors where enough models vote for an element. */
#pragma once

#include "differences.h"
#include "vectors.h"

/* base + scale * sum(y_i) with y_i = w_i * d_i, where at least `least` models vote for an element:
 * |y_i| >= t_i * |sum(y_j) - y_i|. Elsewhere, the base.
 *
 * The vectors are differences from the base. `terms` has room for a chunk of each. */
static void add_voted_sum_unchecked(const Vector *base, const Vector *vectors, const float *weights,
                                    const float *thresholds, int vectors_count, int least,
                                    float scale, int64_t count, float *terms, const Output *out) {
    float held[CHUNK], total[CHUNK], held_sum[CHUNK];
    int32_t votes[CHUNK];
    for (int64_t start = 0; start < count; start += CHUNK) {
        int n = chunk_at(start, count);
        const float *b = load(base->data, base->dtype, start, n, held);
        for (int k = 0; k < vectors_count; k++) {
            float *term = terms + (size_t)k * CHUNK;
            float w = weights[k];
            take_less(&vectors[k], b, start, n, term);
            for (int i = 0; i < n; i++) {
                term[i] = term[i] * w;
                total[i] = k == 0 ? term[i] : total[i] + term[i];
            }
        }
        memset(votes, 0, sizeof votes);
        for (int k = 0; k < vectors_count; k++) {
            const float *term = terms + (size_t)k * CHUNK;
            float threshold = thresholds[k];
            for (int i = 0; i < n; i++)
                votes[i] += fabsf(term[i]) >= fabsf(total[i] - term[i]) * threshold;
        }
        float *to = target(out, start, held_sum);
        for (int i = 0; i < n; i++) to[i] = b[i] + (votes[i] >= least ? total[i] : 0.0f) * scale;
        put(out, start, n, to);
    }
}
