/* Numbers of codes, and grids of scales over them. */
#pragma once

#include <string.h>

#include "vectors.h"

/* The numbers of each byte, one or two, from a table. */
static void decode_unchecked(const uint8_t *codes, int64_t count, const float *table, int numbers,
                             float *out) {
    if (numbers == 1)
        for (int64_t k = 0; k < count; k++) out[k] = table[codes[k]];
    else
        for (int64_t k = 0; k < count; k++) memcpy(out + 2 * k, table + 2 * codes[k], 8);
}

/* Each row is cut into blocks; a number of the grid is subtracted from a block, or multiplies it. */
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
