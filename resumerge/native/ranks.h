/* Masks by the rank of each element's magnitude in its row.
 *
 * The keys of a long row are counted twice: by all their bits, and by the upper bits alone. The
 * coarse counts give two ranks between which a key lies, which mostly is enough. If it is not, the
 * fine counts of the key's bucket are added up. */
#pragma once

#include "random.h"
#include "selection.h"
#include "vectors.h"
#include "within.h"

#define PRECISION 12   /* bits of a float that its key leaves out */
#define HIGHEST 65534u /* key of a row's largest number; NaN and infinity are above it */
#define FINE 6         /* bits of a key that the coarse counts leave out */
#define BUCKETS (65536 >> FINE)
#define SHORT_ROW 256 /* elements of a row whose keys are compared rather than counted */

/* The keys of one row. For a long row also the count of each key, and the number of keys below each
 * bucket. A bucket has the keys that agree in their upper bits. */
typedef struct {
    int64_t row;
    uint16_t *keys;
    uint32_t counts[65536];
    uint32_t below[BUCKETS + 1];
} Ranks;

/* The upper bits of the magnitudes of elements start:start+count. */
static void sizes_of(const Vector *v, int64_t start, int64_t count, uint32_t *sizes) {
    float held[CHUNK];
    for (int64_t done = 0; done < count; done += CHUNK) {
        int n = chunk_at(done, count);
        const float *x = take(v, start + done, n, held);
        for (int i = 0; i < n; i++) sizes[done + i] = key_of(x[i], MAGNITUDE) >> PRECISION;
    }
}

/* Write the keys of a row whose sizes are `stride` apart, in the order of sizes or reversed. */
static inline void rank_keys(const uint32_t *sizes, int64_t row, int64_t stride, int reversed,
                             uint16_t *keys) {
    uint32_t largest = 0, flip = reversed ? 0xffffu : 0;
    for (int64_t i = 0; i < row; i++) {
        uint32_t size = sizes[i * stride];
        uint32_t finite = size & (0u - (size < 0x7f800000u >> PRECISION));
        largest = finite > largest ? finite : largest;
    }
    uint32_t lowest = largest > HIGHEST ? largest - HIGHEST : 0;
    for (int64_t i = 0; i < row; i++) {
        uint32_t size = sizes[i * stride];
        uint32_t key = size > lowest ? size - lowest : 0;
        keys[i] = (uint16_t)((key > HIGHEST ? HIGHEST + 1 : key) ^ flip);
    }
}

/* Load the next row, whose sizes are `stride` apart. */
static inline void next_row(Ranks *ranks, const uint32_t *sizes, int64_t stride, int reversed) {
    int64_t row = ranks->row;
    uint32_t *counts = ranks->counts, *below = ranks->below;
    if (row > SHORT_ROW)
        for (int64_t i = 0; i < row; i++) counts[ranks->keys[i]] = 0;
    if (stride == 1)
        rank_keys(sizes, row, 1, reversed, ranks->keys);
    else
        rank_keys(sizes, row, stride, reversed, ranks->keys);
    if (row <= SHORT_ROW) return;
    memset(below, 0, sizeof ranks->below);
    for (int64_t i = 0; i < row; i++) {
        counts[ranks->keys[i]]++;
        below[(ranks->keys[i] >> FINE) + 1]++;
    }
    for (int b = 0; b < BUCKETS; b++) below[b + 1] += below[b];
}

/* Twice the rank of a key of the row; equal keys share the mean of their ranks. */
static int64_t twice_rank(const Ranks *ranks, uint16_t key) {
    if (ranks->row <= SHORT_ROW) {
        uint16_t below = 0;
        for (int64_t i = 0; i < ranks->row; i++)
            below += (uint16_t)((ranks->keys[i] < key) + (ranks->keys[i] <= key));
        return below - 1;
    }
    const uint32_t *counts = ranks->counts + (key >> FINE << FINE);
    uint32_t place = key & ((1u << FINE) - 1), below = ranks->below[key >> FINE];
    for (uint32_t k = 0; k < 1u << FINE; k++) below += k < place ? counts[k] : 0;
    return 2 * (int64_t)below + counts[place] - 1;
}

/* Return whether twice the rank of a key is above a bound, which is at least -2. */
static inline uint8_t ranks_above(const Ranks *ranks, uint16_t key, int64_t bound) {
    if (ranks->row > SHORT_ROW) {
        const uint32_t *below = ranks->below + (key >> FINE);
        int64_t least = 2 * (int64_t)below[0], most = 2 * (int64_t)below[1] - 2;
        /* One branch for both sides: the side is unpredictable, but few bounds lie between. */
        if ((uint64_t)(bound - least) >= (uint64_t)(most - least)) return bound < least;
    }
    return twice_rank(ranks, key) > bound;
}

/* Draws of 24 bits in an interval: a random byte for every element, and 16 more bits for an element
 * that may lie in it. `left` pieces of 16 bits wait at the end of `bits`. */
typedef struct {
    double low, high;
    Stream more;
    uint16_t bits[CHUNK + 16];
    int left;
} Draws;

/* The next n pieces of 16 bits. */
static inline const uint16_t *more_bits(Draws *draws, int n) {
    uint16_t *end = draws->bits + CHUNK + 16;
    int missing = n > draws->left ? (n - draws->left + 15) / 16 * 16 : 0;
    memmove(end - draws->left - missing, end - draws->left, sizeof(uint16_t) * (size_t)draws->left);
    draw_bytes(&draws->more, 2 * missing, (uint8_t *)(end - missing));
    draws->left += missing - n;
    return end - draws->left - n;
}

/* Replace random bytes by 1 where the draw is below the interval, else by 0. Returns how many draws
 * may lie in the interval, and writes their places in the chunk and the draws. */
static inline int drawn(Draws *draws, uint8_t *bytes, int n, uint16_t *places, double *found) {
    uint32_t numbered[CHUNK], inside[CHUNK];
    uint8_t first = (uint8_t)(draws->low * 256.0), last = (uint8_t)(draws->high * 256.0);
    for (int i = 0; i < n; i++) numbered[i] = (uint32_t)bytes[i] << 16 | (uint32_t)i;
    for (int i = 0; i < n; i++) bytes[i] = bytes[i] < first;
    uint32_t low = (uint32_t)first << 16, width = (uint32_t)(last - first) << 16 | 0xffffu;
    int number = (int)within(numbered, n, low, width, inside);
    const uint16_t *more = more_bits(draws, number);
    for (int j = 0; j < number; j++) places[j] = (uint16_t)inside[j];
    for (int j = 0; j < number; j++)
        found[j] = (int32_t)(((inside[j] + low) & 0xff0000u) | more[j]) * 0x1p-24;
    return number;
}

/* A mask of bytes in which an element is kept with the probability
 * density - reach + 2 * reach * rank / (row - 1). The elements of a row are `stride` apart. */
static int rank_mask_unchecked(const Vector *v, const Seed *seed, int64_t count, int64_t row,
                               int64_t stride, double density, double reach, uint8_t *mask) {
    double spread = row > 1 ? fabs(reach) : 0.0;
    int64_t run = spread != 0.0 || !count ? row * stride : count;
    double each = spread != 0.0 ? (double)(row - 1) / (2.0 * spread) : 0.0;
    Draws draws = {.low = density - spread, .high = density + spread, .left = 0};
    draws.more = stream_of(seed, MORE_BITS);
    Ranks *ranks = calloc(1, sizeof(Ranks));
    uint16_t *keys = calloc((size_t)row, sizeof(uint16_t));
    uint32_t *sizes = malloc(sizeof(uint32_t) * (size_t)run);
    if (!ranks || !keys || !sizes) {
        free(ranks), free(keys), free(sizes);
        return -1;
    }
    ranks->row = row, ranks->keys = keys;
    Stream bytes = stream_of(seed, FIRST_BITS);
    draw_bytes(&bytes, count, mask);
    for (int64_t begin = 0; begin < count; begin += run) {
        if (spread != 0.0) sizes_of(v, begin, run, sizes);
        for (int64_t s = 0; s < stride && spread != 0.0; s++) {
            next_row(ranks, sizes + s, stride, reach < 0.0);
            for (int64_t i = 0; i < row && stride > 1; i++) /* overwrites the size */
                sizes[i * stride + s] = (uint32_t)twice_rank(ranks, keys[i]);
        }
        for (int64_t start = 0; start < run; start += CHUNK) {
            uint16_t places[CHUNK];
            double found[CHUNK];
            int64_t bounds[CHUNK];
            uint8_t *to = mask + begin + start;
            int number = drawn(&draws, to, chunk_at(start, run), places, found);
            for (int j = 0; j < number; j++) {
                double bound = (found[j] - draws.low) * each;
                bound = 2.0 * (bound < (double)row ? bound : (double)row); /* also for NaN */
                bound = bound > -1.0 ? bound : -1.0;
                bounds[j] = (int64_t)bound - (bound < 0.0);
            }
            if (spread == 0.0)
                for (int j = 0; j < number; j++) to[places[j]] = found[j] < density;
            else if (stride == 1)
                for (int j = 0; j < number; j++)
                    to[places[j]] = ranks_above(ranks, keys[start + places[j]], bounds[j]);
            else
                for (int j = 0; j < number; j++)
                    to[places[j]] = sizes[start + places[j]] > bounds[j];
        }
    }
    free(ranks), free(keys), free(sizes);
    return 0;
}
