/* Elements that few models changed, or many, or in opposite directions. A model changed an element
 * where |d| > epsilon. */
#pragma once

#include "differences.h"
#include "vectors.h"

/* base + sum(f_i * d_i) / c, c the models that changed an element; f_i is factors[i] where c is 1,
 * and 1 elsewhere.
 *
 * The vectors are differences from the base. `terms` has room for a chunk of each. */
static void add_mean_change_unchecked(const Vector *base, const Vector *vectors,
                                      const float *factors, int vectors_count, float epsilon,
                                      int64_t count, float *terms, const Output *out) {
    float held[CHUNK], changed[CHUNK], factor[CHUNK], total[CHUNK], held_sum[CHUNK];
    for (int64_t start = 0; start < count; start += CHUNK) {
        int n = chunk_at(start, count);
        const float *b = load(base->data, base->dtype, start, n, held);
        memset(changed, 0, sizeof changed);
        for (int k = 0; k < vectors_count; k++) {
            float *term = terms + (size_t)k * CHUNK;
            take_less(&vectors[k], b, start, n, term);
            for (int i = 0; i < n; i++) {
                term[i] = fabsf(term[i]) <= epsilon ? 0.0f : term[i];
                changed[i] += fabsf(term[i]) > epsilon ? 1.0f : 0.0f;
            }
        }
        for (int k = 0; k < vectors_count; k++) {
            const float *term = terms + (size_t)k * CHUNK;
            float f = factors[k];
            /* A separate loop: otherwise compilers multiply first and choose afterwards, and the
             * processor's flag reports the overflow of a product that is not used. */
            for (int i = 0; i < n; i++) factor[i] = changed[i] == 1.0f ? f : 1.0f;
            for (int i = 0; i < n; i++) {
                float x = term[i] * factor[i];
                total[i] = k == 0 ? x : total[i] + x;
            }
        }
        float *to = target(out, start, held_sum);
        for (int i = 0; i < n; i++)
            to[i] = b[i] + total[i] / (changed[i] < 1.0f ? 1.0f : changed[i]);
        put(out, start, n, to);
    }
}

/* For each vector, how many elements it changed, and how many of these it changed alone:
 * out[2 * i], out[2 * i + 1]. `flags` has room for a chunk of each. */
static void count_changes_unchecked(const Vector *vectors, int vectors_count, float epsilon,
                                    int64_t count, uint32_t *flags, int64_t *out) {
    float held[CHUNK], x[CHUNK];
    uint32_t changed[CHUNK];
    memset(out, 0, sizeof(int64_t) * 2 * (size_t)vectors_count);
    for (int64_t start = 0; start < count; start += CHUNK) {
        int n = chunk_at(start, count);
        const float *b = load_base(vectors, start, n, held);
        memset(changed, 0, sizeof changed);
        for (int k = 0; k < vectors_count; k++) {
            uint32_t *flag = flags + (size_t)k * CHUNK;
            take_less(&vectors[k], b, start, n, x);
            for (int i = 0; i < n; i++) {
                flag[i] = fabsf(x[i]) > epsilon;
                changed[i] += flag[i];
            }
        }
        for (int k = 0; k < vectors_count; k++) {
            const uint32_t *flag = flags + (size_t)k * CHUNK;
            uint32_t every = 0, alone = 0;
            for (int i = 0; i < n; i++) {
                every += flag[i];
                alone += flag[i] & (changed[i] == 1);
            }
            out[2 * k] += every;
            out[2 * k + 1] += alone;
        }
    }
}

/* For every two vectors, how many elements are 0 in neither, and how many of these have opposite
 * signs: the two numbers at out[2 * (i * vectors_count + j)], for i < j and for j < i. `signs` has
 * room for a chunk of each. */
static void count_conflicts_unchecked(const Vector *vectors, int vectors_count, int64_t count,
                                      int16_t *signs, int64_t *out) {
    float held[CHUNK], x[CHUNK];
    size_t number = (size_t)vectors_count;
    memset(out, 0, sizeof(int64_t) * 2 * number * number);
    for (int64_t start = 0; start < count; start += CHUNK) {
        int n = chunk_at(start, count);
        const float *b = load_base(vectors, start, n, held);
        for (size_t k = 0; k < number; k++) {
            int16_t *sign = signs + k * CHUNK;
            take_less(&vectors[k], b, start, n, x);
            for (int i = 0; i < n; i++) sign[i] = (int16_t)((x[i] > 0.0f) - (x[i] < 0.0f));
            for (int i = n; i < CHUNK; i++) sign[i] = 0;
        }
        for (size_t k = 0; k < number; k++)
            for (size_t j = k + 1; j < number; j++) {
                const int16_t *a = signs + k * CHUNK, *c = signs + j * CHUNK;
                int32_t both = 0, sum = 0;
                for (int i = 0; i < CHUNK; i++) {
                    both += (a[i] & 1) * (c[i] & 1);
                    sum += a[i] * c[i];
                }
                int64_t *to = out + 2 * (k * number + j);
                to[0] += both;
                to[1] += (both - sum) / 2;
            }
    }
    for (size_t k = 0; k < number; k++)
        for (size_t j = k + 1; j < number; j++)
            memcpy(out + 2 * (j * number + k), out + 2 * (k * number + j), 2 * sizeof *out);
}
