/* The steps on a block to find the k-th largest. Keys are the bits of magnitudes (or of numbers),
 * and have the same order. */
#pragma once

#include "vectors.h"
#include "within.h"

enum { MAGNITUDE = 0, ORDERED = 1 };

static inline uint32_t key_of(float x, int kind) {
    uint32_t bits = bits_of(x);
    uint32_t size = bits & 0x7fffffffu;
    if (kind == MAGNITUDE) return size > 0x7f800000u ? 0x7fc00000u : size;
    uint32_t key = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return size > 0x7f800000u ? 0xffc00000u : key;
}

static inline void keys_of(const float *x, int n, int kind, uint32_t *keys) {
    if (kind == MAGNITUDE)
        for (int i = 0; i < n; i++) keys[i] = key_of(x[i], MAGNITUDE);
    else
        for (int i = 0; i < n; i++) keys[i] = key_of(x[i], ORDERED);
}

/* The keys of all elements. */
static void keys_unchecked(const Vector *v, int64_t count, int kind, uint32_t *out) {
    float held[CHUNK];
    for (int64_t start = 0; start < count; start += CHUNK) {
        int n = chunk_at(start, count);
        keys_of(take(v, start, n, held), n, kind, out + start);
    }
}

/* Sort by the lowest `bits` bits of keys that agree in all others, 11 bits a pass. */
static uint32_t *sorted(uint32_t *keys, uint32_t *spare, int64_t count, int bits) {
    for (int shift = 0; shift < bits; shift += 11) {
        int64_t starts[2048] = {0};
        for (int64_t i = 0; i < count; i++) starts[keys[i] >> shift & 2047]++;
        int64_t before = 0;
        for (int d = 0; d < 2048; d++) {
            int64_t number = starts[d];
            starts[d] = before;
            before += number;
        }
        for (int64_t i = 0; i < count; i++) spare[starts[keys[i] >> shift & 2047]++] = keys[i];
        uint32_t *other = keys;
        keys = spare;
        spare = other;
    }
    return keys;
}

enum { SLOTS = 2048, MOST_DIFFERENT = SLOTS / 4 };

/* Return the slot of a key in a table: the first from its hash on that has the key, or is free. */
static inline int slot_of(const uint32_t *table, const uint32_t *numbers, uint32_t key) {
    int slot = (int)(key * 2654435769u >> 21);
    while (numbers[slot] && table[slot] != key) slot = (slot + 1) % SLOTS;
    return slot;
}

/* Replace keys by the distinct keys, ascending, and count each. Returns -1 if there are more than
 * MOST_DIFFERENT; then nothing was changed. Differences of 16-bit numbers have few distinct keys.
 * */
static int64_t few_different(uint32_t *keys, int64_t count, uint32_t *counts) {
    uint32_t table[SLOTS], numbers[SLOTS] = {0}, found[MOST_DIFFERENT];
    int different = 0;
    for (int64_t i = 0; i < count; i++) {
        int slot = slot_of(table, numbers, keys[i]);
        if (!numbers[slot]++) {
            if (different == MOST_DIFFERENT) return -1;
            table[slot] = found[different++] = keys[i];
        }
    }
    for (int i = 0; i < different; i++) {
        int at = i;
        for (uint32_t key = found[i]; at && keys[at - 1] > key; at--) keys[at] = keys[at - 1];
        keys[at] = found[i];
    }
    for (int i = 0; i < different; i++) counts[i] = numbers[slot_of(table, numbers, keys[i])];
    return different;
}

/* Write the distinct keys in low..high, ascending, and the number of elements with each key.
 *
 * `keys` and `counts` have room for `count` numbers each. `above` becomes the number of elements
 * with larger keys. Returns the number of distinct keys; -1 without memory. */
static int64_t keys_in_bracket_unchecked(const Vector *v, int64_t count, int kind, uint32_t low,
                                         uint32_t high, int64_t *above, uint32_t *keys,
                                         uint32_t *counts) {
    float held[CHUNK];
    uint32_t here[CHUNK];
    uint32_t width = high - low;
    int64_t found = 0, larger = 0;
    for (int64_t start = 0; start < count; start += CHUNK) {
        int n = chunk_at(start, count);
        keys_of(take(v, start, n, held), n, kind, here);
        uint32_t greater = 0;
        for (int i = 0; i < n; i++) greater += here[i] > high;
        larger += greater;
        found += within(here, n, low, width, keys + found);
    }
    *above = larger;
    if (!found) return 0;
    int64_t few = few_different(keys, found, counts);
    if (few >= 0) {
        for (int64_t i = 0; i < few; i++) keys[i] += low;
        return few;
    }
    int bits = 0;
    while (bits < 32 && width >> bits) bits++;
    uint32_t *spare = malloc(sizeof(uint32_t) * (size_t)found);
    if (!spare) return -1;
    uint32_t *ascending = sorted(keys, spare, found, bits);
    int64_t different = 0;
    for (int64_t i = 0; i < found;) {
        int64_t first = i;
        uint32_t key = ascending[i];
        while (i < found && ascending[i] == key) i++;
        counts[different] = (uint32_t)(i - first);
        keys[different++] = key + low;
    }
    free(spare);
    return different;
}

/* Find the key of the rank-th largest element, given the number of elements of each key, and its
 * rank among equal keys. Returns 0 if there are fewer elements. By histograms of 11 bits, the upper
 * ones first. */
static int key_of_rank_unchecked(const uint32_t *keys, const uint32_t *counts, int64_t count,
                                 int64_t rank, uint32_t *key, int64_t *among) {
    enum { BINS = 1 << 11 };
    static const int shifts[] = {21, 10, 0};
    uint32_t found = 0, known = 0;
    if (rank < 1) return 0;
    for (int pass = 0; pass < 3; pass++) {
        int shift = shifts[pass], bin = BINS - 1;
        int64_t numbers[BINS] = {0};
        for (int64_t i = 0; i < count; i++)
            if (!((keys[i] ^ found) & known)) numbers[(keys[i] >> shift) % BINS] += counts[i];
        while (bin >= 0 && rank > numbers[bin]) rank -= numbers[bin--];
        if (bin < 0) return 0;
        found |= (uint32_t)bin << shift;
        known = UINT32_MAX << shift;
    }
    *key = found;
    *among = rank;
    return 1;
}

/* Return the number of elements with a key. */
static int64_t equal_count_unchecked(const Vector *v, int64_t count, int kind, uint32_t key) {
    float held[CHUNK];
    uint32_t here[CHUNK];
    int64_t found = 0;
    for (int64_t start = 0; start < count; start += CHUNK) {
        int n = chunk_at(start, count);
        keys_of(take(v, start, n, held), n, kind, here);
        uint32_t equal = 0;
        for (int i = 0; i < n; i++) equal += here[i] == key;
        found += equal;
    }
    return found;
}

/* Write 1 where a key is above a threshold, and for the first `quota` elements equal to it. */
static void mask_above_unchecked(const Vector *v, int64_t count, int kind, uint32_t threshold,
                                 int64_t quota, uint8_t *mask) {
    float held[CHUNK];
    uint32_t here[CHUNK];
    for (int64_t start = 0; start < count; start += CHUNK) {
        int n = chunk_at(start, count);
        uint8_t *to = mask + start;
        keys_of(take(v, start, n, held), n, kind, here);
        if (quota >= count - start) {
            for (int i = 0; i < n; i++) to[i] = here[i] >= threshold;
            continue;
        }
        for (int i = 0; i < n; i++) to[i] = here[i] > threshold;
        for (int i = 0; i < n && quota > 0; i++)
            if (here[i] == threshold) {
                to[i] = 1;
                quota--;
            }
    }
}
