/* Random bits from a counter: Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1,
 * 2, 3", SC 2011), the stream that NumPy's bit generator of this name gives. */
#pragma once

#include "table.h"
#include "vectors.h"

#define PHILOX_ROUNDS 10

/* A stream of a seed, read from its beginning. */
typedef struct {
    uint64_t keys[PHILOX_ROUNDS][2];
    uint64_t counter[3];
} Stream;

enum { FIRST_BITS = 0, MORE_BITS = 1 };

static inline uint64_t product(uint64_t a, uint64_t b, uint64_t *high) {
#ifdef __SIZEOF_INT128__
    unsigned __int128 whole = (unsigned __int128)a * b;
    *high = (uint64_t)(whole >> 64);
    return (uint64_t)whole;
#else
    uint64_t a0 = a & 0xffffffffu, a1 = a >> 32, b0 = b & 0xffffffffu, b1 = b >> 32;
    uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
    uint64_t other = a0 * b1 + (middle & 0xffffffffu);
    *high = a1 * b1 + (middle >> 32) + (other >> 32);
    return a * b;
#endif
}

static inline Stream stream_of(const Seed *seed, uint64_t number) {
    Stream stream = {.counter = {0, number, seed->block}};
    for (int r = 0; r < PHILOX_ROUNDS; r++) {
        stream.keys[r][0] = seed->key[0] + (uint64_t)r * 0x9e3779b97f4a7c15u;
        stream.keys[r][1] = seed->key[1] + (uint64_t)r * 0xbb67ae8584caa73bu;
    }
    return stream;
}

/* The next four words. */
static inline void draw(Stream *stream, uint64_t words[4]) {
    uint64_t a = ++stream->counter[0], b = stream->counter[1], c = stream->counter[2], d = 0;
    for (int r = 0; r < PHILOX_ROUNDS; r++) {
        uint64_t high_a, high_c;
        uint64_t low_a = product(a, 0xd2e7470ee14c6c93u, &high_a);
        uint64_t low_c = product(c, 0xca5a826395121157u, &high_c);
        a = high_c ^ b ^ stream->keys[r][0];
        c = high_a ^ d ^ stream->keys[r][1];
        b = low_c;
        d = low_a;
    }
    words[0] = a;
    words[1] = b;
    words[2] = c;
    words[3] = d;
}

/* The next n bytes, of each word the lowest first; whole draws, so that a rest is lost. */
static inline void draw_bytes(Stream *stream, int64_t n, uint8_t *bytes) {
    uint64_t words[4];
    for (; n >= 32; n -= 32, bytes += 32) {
        draw(stream, words);
        memcpy(bytes, words, sizeof words);
    }
    if (n > 0) {
        draw(stream, words);
        memcpy(bytes, words, (size_t)n);
    }
}

/* A mask of bytes: 1 where a random byte is below `whole`, and where it is equal and a random word
 * of the stream of more bits, one for each such element, is below `fraction`. */
static void random_mask_unchecked(const Seed *seed, uint8_t whole, uint64_t fraction, int64_t count,
                                  uint8_t *mask) {
    Stream first = stream_of(seed, FIRST_BITS), more = stream_of(seed, MORE_BITS);
    uint64_t words[4];
    int used = 4;
    for (int64_t start = 0; start < count; start += CHUNK) {
        int n = chunk_at(start, count);
        uint8_t ties[CHUNK] = {0}, *to = mask + start;
        draw_bytes(&first, n, to);
        for (int i = 0; i < n; i++) ties[i] = to[i] == whole;
        for (int i = 0; i < n; i++) to[i] = to[i] < whole;
        for (int i = 0; i < n; i += 8) {
            uint64_t any;
            memcpy(&any, ties + i, sizeof any);
            if (!any) continue;
            for (int k = i; k < i + 8; k++) {
                if (!ties[k]) continue;
                if (used == 4) {
                    draw(&more, words);
                    used = 0;
                }
                to[k] = words[used++] < fraction;
            }
        }
    }
}
