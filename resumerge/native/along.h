/* Rows and columns: vectors that are matrices of rows of one length. */
#pragma once

#include "reductions.h"
#include "vectors.h"

/* Write the weight of each element: the weight of its row, or of its column. */
static inline void spread(const float *weights, int64_t row, int by_column, int64_t start, int n,
                          float *to) {
    int64_t r = start / row, column = start % row;
    for (int i = 0; i < n; r++, column = 0) {
        int m = (int)(row - column < n - i ? row - column : n - i);
        if (by_column)
            memcpy(to + i, weights + column, sizeof(float) * (size_t)m);
        else
            for (int j = 0; j < m; j++) to[i + j] = weights[r];
        i += m;
    }
}

/* sum(w_i * x_i), each product and each sum rounded to float, in the order given. A vector
 * has `weights_count` weights: one for each row, or with `by_column` for each column. */
static void weighted_sum_along_unchecked(const Vector *terms, const float *weights,
                                         int64_t weights_count, int terms_count, int64_t row,
                                         int by_column, int64_t count, const Output *out) {
    float held[CHUNK], factors[CHUNK], held_sum[CHUNK];
    for (int64_t start = 0; start < count; start += CHUNK) {
        int n = chunk_at(start, count);
        float *to = target(out, start, held_sum);
        for (int k = 0; k < terms_count; k++) {
            const float *x = take(&terms[k], start, n, held);
            spread(weights + k * weights_count, row, by_column, start, n, factors);
            if (k == 0)
                for (int i = 0; i < n; i++) to[i] = x[i] * factors[i];
            else
                for (int i = 0; i < n; i++) to[i] = to[i] + x[i] * factors[i];
        }
        put(out, start, n, to);
    }
}

/* The dot products of every two vectors' columns, rows added in their order:
 * out[(i * vectors_count + j) * row + c]. `wide` has room for a chunk of each vector. */
static void column_gram_unchecked(const Vector *vectors, int vectors_count, int64_t rows,
                                  int64_t row, double *wide, double *out) {
    memset(out, 0, sizeof(double) * (size_t)vectors_count * (size_t)vectors_count * (size_t)row);
    for (int64_t start = 0; start < row; start += CHUNK) {
        int n = chunk_at(start, row);
        for (int64_t r = 0; r < rows; r++) {
            for (int i = 0; i < vectors_count; i++)
                widen(&vectors[i], r * row + start, n, wide + (size_t)i * CHUNK);
            for (int i = 0; i < vectors_count; i++)
                for (int j = i; j < vectors_count; j++) {
                    const double *a = wide + (size_t)i * CHUNK, *b = wide + (size_t)j * CHUNK;
                    double *sums = out + (i * vectors_count + j) * row + start;
                    for (int c = 0; c < n; c++) sums[c] += a[c] * b[c];
                }
        }
    }
    for (int i = 0; i < vectors_count; i++)
        for (int j = 0; j < i; j++)
            memcpy(out + (i * vectors_count + j) * row, out + (j * vectors_count + i) * row,
                   sizeof(double) * (size_t)row);
}
