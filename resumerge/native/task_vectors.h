/* Task vectors made sparse, combined (TIES: where they have the elected sign), added to the base. */
#pragma once

#include "selection.h"
#include "table.h"
#include "vectors.h"

#define SMALLEST_DIVISOR 1e-8f

/* Elements at a time here, where many temporaries have to fit into the first-level cache. */
#define PIECE_ELEMENTS 256

/* Zero the elements whose magnitudes are not above a threshold, but for the first `quota` that are
 * equal to it; returns what is left of the quota. */
static inline int64_t keep_above(float *x, int n, uint32_t threshold, int64_t quota) {
    uint32_t equal = 0;
    if (quota > 0)
        for (int i = 0; i < n; i++) equal += key_of(x[i], MAGNITUDE) == threshold;
    /* As a rule all that are equal stay, or none: no branch inside of a loop. */
    if (quota == 0 || equal <= quota) {
        uint32_t least = quota == 0 ? threshold + 1 : threshold;
        for (int i = 0; i < n; i++) x[i] = key_of(x[i], MAGNITUDE) >= least ? x[i] : 0.0f;
        return quota - equal;
    }
    for (int i = 0; i < n; i++) {
        uint32_t size = key_of(x[i], MAGNITUDE);
        int first = size == threshold && quota > 0;
        quota -= first;
        x[i] = size > threshold || first ? x[i] : 0.0f;
    }
    return quota;
}

/* base + scale * sum(a_i * f_i * m_i * x_i), and with NORMALIZE divided by sum(a_i * w_i) under
 * ELECT_SIGNS: m_i is the mask, a_i whether the sign is that of the sum of all terms.
 *
 * masks[i] has a byte for each element; where it is null, the elements above thresholds[i] are kept
 * and the first quotas[i] that are equal to it, and all where the quota is negative. What is not
 * kept is zero, whatever it was (NaN, too). `factors` are the f_i on the elements,
 * `divisor_weights` the w_i in the divisor. `quotas` is used up. */
static int add_task_vectors_unchecked(const Vector *base, const Vector *vectors,
                                      const uint8_t *const *masks, const uint32_t *thresholds,
                                      int64_t *quotas, const float *factors,
                                      const float *divisor_weights, int vectors_count, int flags,
                                      float scale, int64_t count, const Output *out) {
    float *terms = malloc(sizeof(float) * (size_t)vectors_count * PIECE_ELEMENTS);
    if (!terms) return -1;
    float held[PIECE_ELEMENTS], held_sum[PIECE_ELEMENTS];
    float total[PIECE_ELEMENTS], mixed[PIECE_ELEMENTS], divisor[PIECE_ELEMENTS];
    float least = divisor_weights[0];
    for (int k = 1; k < vectors_count; k++)
        least = divisor_weights[k] < least ? divisor_weights[k] : least;
    for (int64_t start = 0; start < count; start += PIECE_ELEMENTS) {
        int n = (int)(count - start < PIECE_ELEMENTS ? count - start : PIECE_ELEMENTS);
        const float *b = load(base->data, base->dtype, start, n, held);
        for (int k = 0; k < vectors_count; k++) {
            float *term = terms + (size_t)k * PIECE_ELEMENTS;
            const Vector *v = &vectors[k];
            const float *x = load(v->data, v->dtype, start, n, term);
            float f = factors[k];
            if (v->base)
                for (int i = 0; i < n; i++) term[i] = x[i] - b[i];
            else if (x != term)
                memcpy(term, x, sizeof(float) * (size_t)n);
            if (masks[k]) {
                const uint8_t *mask = masks[k] + start;
                for (int i = 0; i < n; i++) term[i] = (mask[i] ? term[i] : 0.0f) * f;
            } else {
                if (quotas[k] >= 0) quotas[k] = keep_above(term, n, thresholds[k], quotas[k]);
                for (int i = 0; i < n; i++) term[i] = term[i] * f;
            }
            if (k == 0)
                memcpy(total, term, sizeof(float) * (size_t)n);
            else
                for (int i = 0; i < n; i++) total[i] += term[i];
        }
        float *to = target(out, start, held_sum);
        if (!(flags & ELECT_SIGNS)) {
            for (int i = 0; i < n; i++) to[i] = b[i] + total[i] * scale;
            put(out, start, n, to);
            continue;
        }
        for (int i = 0; i < n; i++) total[i] = total[i] >= 0.0f ? 1.0f : -1.0f;
        for (int k = 0; k < vectors_count; k++) {
            const float *term = terms + (size_t)k * PIECE_ELEMENTS;
            float w = divisor_weights[k];
            for (int i = 0; i < n; i++) {
                float agrees = term[i] * total[i];
                float kept = agrees <= 0.0f ? 0.0f : agrees;
                float took_part = agrees > 0.0f ? w : 0.0f;
                mixed[i] = k == 0 ? kept : mixed[i] + kept;
                divisor[i] = k == 0 ? took_part : divisor[i] + took_part;
            }
        }
        for (int i = 0; i < n; i++) mixed[i] = mixed[i] * total[i];
        if (flags & NORMALIZE) {
            if (least >= SMALLEST_DIVISOR)
                for (int i = 0; i < n; i++)
                    mixed[i] /= divisor[i] < SMALLEST_DIVISOR ? SMALLEST_DIVISOR : divisor[i];
            else
                for (int i = 0; i < n; i++)
                    mixed[i] /= fabsf(divisor[i]) < SMALLEST_DIVISOR ? divisor[i] + 1.0f : divisor[i];
        }
        for (int i = 0; i < n; i++) to[i] = b[i] + mixed[i] * scale;
        put(out, start, n, to);
    }
    free(terms);
    return 0;
}
