/* Sums over a vector, in double and in one order whatever the instructions: element e of a chunk is
 * added to lane e mod LANES; lanes are added up over the chunks, and to each other at the end. */
#pragma once

#include "vectors.h"

#define LANES 32

/* Write a chunk as doubles, and zeros up to a whole number of lanes; return how many doubles. */
static inline int widen(const Vector *v, int64_t start, int n, double *wide) {
    float held[CHUNK];
    const float *x = take(v, start, n, held);
    int padded = (n + LANES - 1) / LANES * LANES;
    for (int i = 0; i < n; i++) wide[i] = x[i];
    for (int i = n; i < padded; i++) wide[i] = 0.0;
    return padded;
}

static inline void add_products_of(const double *a, const double *b, int padded, double *lanes) {
    double sums[LANES] = {0.0};
    for (int i = 0; i < padded; i += LANES)
        for (int k = 0; k < LANES; k++) sums[k] += a[i + k] * b[i + k];
    for (int k = 0; k < LANES; k++) lanes[k] += sums[k];
}

/* With a length that the compiler knows, sums stay in registers, which is four times faster. */
static inline void add_products(const double *a, const double *b, int padded, double *lanes) {
    if (padded == CHUNK)
        add_products_of(a, b, CHUNK, lanes);
    else
        add_products_of(a, b, padded, lanes);
}

static inline double sum_of(const double *lanes) {
    double sum = 0.0;
    for (int k = 0; k < LANES; k++) sum += lanes[k];
    return sum;
}

/* The dot products of every two vectors, for each row of `row` elements (the last may be shorter):
 * out[(r * vectors_count + i) * vectors_count + j]. The product of two floats is exact in double.
 * Returns 0, or -1 without memory. */
static int gram_unchecked(const Vector *vectors, int vectors_count, int64_t row, int64_t count,
                          double *out) {
    size_t pairs = (size_t)vectors_count * (size_t)vectors_count;
    double *wide = malloc(sizeof(double) * ((size_t)vectors_count * CHUNK + pairs * LANES));
    if (!wide) return -1;
    double *lanes = wide + (size_t)vectors_count * CHUNK;
    for (int64_t begin = 0; begin < count; begin += row, out += pairs) {
        int64_t end = count - begin < row ? count : begin + row;
        memset(lanes, 0, sizeof(double) * pairs * LANES);
        for (int64_t start = begin; start < end; start += CHUNK) {
            int n = chunk_at(start, end), padded = 0;
            for (int i = 0; i < vectors_count; i++)
                padded = widen(&vectors[i], start, n, wide + (size_t)i * CHUNK);
            for (int i = 0; i < vectors_count; i++)
                for (int j = i; j < vectors_count; j++)
                    add_products(wide + (size_t)i * CHUNK, wide + (size_t)j * CHUNK, padded,
                                 lanes + ((size_t)i * (size_t)vectors_count + (size_t)j) * LANES);
        }
        for (int i = 0; i < vectors_count; i++)
            for (int j = i; j < vectors_count; j++) {
                size_t at = (size_t)i * (size_t)vectors_count + (size_t)j;
                out[at] = sum_of(lanes + at * LANES);
                out[(size_t)j * (size_t)vectors_count + (size_t)i] = out[at];
            }
    }
    free(wide);
    return 0;
}

static inline void add_up(const float *x, double *lanes) {
    double sums[LANES] = {0.0};
    for (int i = 0; i < CHUNK; i += LANES)
        for (int k = 0; k < LANES; k++) sums[k] += x[i + k];
    for (int k = 0; k < LANES; k++) lanes[k] += sums[k];
}

/* sum(|x|) of a vector, of all elements and of those that a mask of bytes keeps. */
static void l1_norms_unchecked(const Vector *v, const uint8_t *mask, int64_t count, double *out) {
    float held[CHUNK], sizes[CHUNK], kept[CHUNK];
    double all_lanes[LANES] = {0.0}, kept_lanes[LANES] = {0.0};
    for (int64_t start = 0; start < count; start += CHUNK) {
        int n = chunk_at(start, count);
        const float *x = take(v, start, n, held);
        for (int i = 0; i < n; i++) sizes[i] = fabsf(x[i]);
        for (int i = n; i < CHUNK; i++) sizes[i] = 0.0f;
        add_up(sizes, all_lanes);
        if (!mask) continue;
        for (int i = 0; i < n; i++) kept[i] = mask[start + i] ? sizes[i] : 0.0f;
        for (int i = n; i < CHUNK; i++) kept[i] = 0.0f;
        add_up(kept, kept_lanes);
    }
    out[0] = sum_of(all_lanes);
    out[1] = sum_of(kept_lanes);
}
