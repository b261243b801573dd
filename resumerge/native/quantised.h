/* Decode codes, apply grids of scales, and encode numbers. */
#pragma once

#include <string.h>

#include "vectors.h"

/* Write the numbers of each byte, one or two, which a table has. */
static void decode_unchecked(const uint8_t *codes, int64_t count, const float *table, int numbers,
                             float *out) {
    if (numbers == 1)
        for (int64_t k = 0; k < count; k++) out[k] = table[codes[k]];
    else
        for (int64_t k = 0; k < count; k++) memcpy(out + 2 * k, table + 2 * codes[k], 8);
}

/* Rows are cut into blocks; the grid's number of a block is subtracted from it, or multiplies it.
 * */
static void apply_grid_unchecked(float *matrix, int64_t rows, int64_t columns, const float *grid,
                                 int64_t block, int subtracts) {
    for (int64_t row = 0; row < rows; row++)
        for (int64_t start = 0; start < columns; start += block) {
            int64_t n = columns - start < block ? columns - start : block;
            float by = *grid++;
            if (subtracts)
                for (int64_t k = 0; k < n; k++) matrix[k] -= by;
            else
                for (int64_t k = 0; k < n; k++) matrix[k] *= by;
            matrix += n;
        }
}

/* Write the largest magnitude of each block of each row; NaN for a block with NaN. Magnitudes are
 * compared by their bits, as whole numbers: NaN is above all other magnitudes. */
static void block_maxima_unchecked(const float *matrix, int64_t rows, int64_t columns,
                                   int64_t block, float *out) {
    for (int64_t row = 0; row < rows; row++)
        for (int64_t start = 0; start < columns; start += block) {
            int64_t n = columns - start < block ? columns - start : block;
            int32_t most = 0;
            for (int64_t k = 0; k < n; k++) {
                int32_t size = (int32_t)(bits_of(matrix[k]) & 0x7fffffffu);
                most = size > most ? size : most;
            }
            *out++ = one_nan(number_of((uint32_t)most));
            matrix += n;
        }
}

enum { AS_E4M3, AS_INT4, AS_E2M1 };

/* A whole number from -8 to 7, with 8 added: to nearest, ties to even; 0 for NaN. */
static inline uint8_t to_int4(float x) {
    x = x > 7.0f ? 7.0f : x < -8.0f ? -8.0f : x;
    x = x != x ? 0.0f : x;
    return (uint8_t)((bits_of(x + 0x1.8p23f) + 8u) & 15u);
}

/* To nearest, ties to even; too large numbers become the largest number; 0 for NaN. */
static inline uint8_t to_e2m1(float x) {
    uint32_t bits = bits_of(x), size = bits & 0x7fffffffu;
    uint32_t found = to_small(size, 1, 126, 0x3f800000u, 0x1p22f);
    found = (size >= 0x40c00000u ? 7u : found) | (bits >> 31 << 3);
    return (uint8_t)(size > 0x7f800000u ? 0u : found);
}

/* The codes of n numbers, each divided by the same one; codes of 4 bits have a byte each. */
static inline void encode(const float *x, int n, float by, int kind, uint8_t *out) {
    if (kind == AS_E4M3)
        for (int k = 0; k < n; k++) out[k] = to_e4m3(x[k] / by);
    else if (kind == AS_INT4)
        for (int k = 0; k < n; k++) out[k] = to_int4(x[k] / by);
    else
        for (int k = 0; k < n; k++) out[k] = to_e2m1(x[k] / by);
}

/* The codes of a matrix whose rows are cut into blocks, each divided by its number of the grid.
 * Two codes of 4 bits are in a byte, the first in its lower bits: columns and blocks are even. */
static void quantise_unchecked(const float *matrix, int64_t rows, int64_t columns,
                               const float *grid, int64_t block, int kind, uint8_t *out) {
    uint8_t held[CHUNK];
    for (int64_t row = 0; row < rows; row++)
        for (int64_t start = 0; start < columns; start += block) {
            int64_t length = columns - start < block ? columns - start : block;
            float by = *grid++;
            for (int64_t at = 0; at < length; at += CHUNK) {
                int n = chunk_at(at, length);
                if (kind == AS_E4M3) {
                    encode(matrix, n, by, AS_E4M3, out);
                    out += n;
                } else {
                    if (kind == AS_INT4)
                        encode(matrix, n, by, AS_INT4, held);
                    else
                        encode(matrix, n, by, AS_E2M1, held);
                    for (int k = 0; k < n / 2; k++)
                        *out++ = (uint8_t)(held[2 * k] | held[2 * k + 1] << 4);
                }
                matrix += n;
            }
        }
}
