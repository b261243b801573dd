/* Random bits from a counter: Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1,
 * 2, 3", SC 2011), the stream that NumPy's bit generator of this name gives. */
#pragma once

#include <stdint.h>
#include <string.h>

#include "table.h"

#define PHILOX_ROUNDS 10
#define PHILOX_A 0xd2e7470ee14c6c93u
#define PHILOX_C 0xca5a826395121157u
#define DRAWN_BYTES 32

/* The stream of random bits of a seed, which is read from its beginning. */
typedef struct {
    uint64_t keys[PHILOX_ROUNDS][2];
    uint64_t counter[3];
} Stream;

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
        uint64_t low_a = product(a, PHILOX_A, &high_a);
        uint64_t low_c = product(c, PHILOX_C, &high_c);
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

#ifdef __AVX512F__
#include <immintrin.h>

/* Eight 128-bit products with one factor, made of products of halves: for these there is an
 * instruction. */
static inline __m512i products(__m512i a, uint64_t factor, __m512i *high) {
    __m512i lower = _mm512_set1_epi64(0xffffffff), a1 = _mm512_srli_epi64(a, 32);
    __m512i b0 = _mm512_set1_epi64((int64_t)(factor & 0xffffffffu));
    __m512i b1 = _mm512_set1_epi64((int64_t)(factor >> 32));
    __m512i least = _mm512_mul_epu32(a, b0);
    __m512i middle =
        _mm512_add_epi64(_mm512_mul_epu32(a1, b0), _mm512_srli_epi64(least, 32));
    __m512i other =
        _mm512_add_epi64(_mm512_mul_epu32(a, b1), _mm512_and_si512(middle, lower));
    *high = _mm512_add_epi64(
        _mm512_add_epi64(_mm512_mul_epu32(a1, b1), _mm512_srli_epi64(middle, 32)),
        _mm512_srli_epi64(other, 32));
    return _mm512_mask_blend_epi32(0xaaaa, least, _mm512_slli_epi64(other, 32));
}

/* Write the bytes of the next eight draws. Each draw is made in one lane of the vectors; the order
 * of the lanes puts the words of the first two draws in the lower halves, and so on. */
static inline void draw_eight(Stream *stream, uint8_t *bytes) {
    __m512i order = _mm512_setr_epi64(1, 5, 2, 6, 3, 7, 4, 8);
    __m512i a = _mm512_add_epi64(_mm512_set1_epi64((int64_t)stream->counter[0]), order);
    __m512i b = _mm512_set1_epi64((int64_t)stream->counter[1]);
    __m512i c = _mm512_set1_epi64((int64_t)stream->counter[2]), d = _mm512_setzero_si512();
    stream->counter[0] += 8;
    for (int r = 0; r < PHILOX_ROUNDS; r++) {
        __m512i key_a = _mm512_set1_epi64((int64_t)stream->keys[r][0]);
        __m512i key_c = _mm512_set1_epi64((int64_t)stream->keys[r][1]);
        __m512i high_a, high_c;
        __m512i low_a = products(a, PHILOX_A, &high_a), low_c = products(c, PHILOX_C, &high_c);
        a = _mm512_xor_si512(_mm512_xor_si512(high_c, b), key_a);
        c = _mm512_xor_si512(_mm512_xor_si512(high_a, d), key_c);
        b = low_c;
        d = low_a;
    }
    __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    __m512i ab = _mm512_unpacklo_epi64(a, b), cd = _mm512_unpacklo_epi64(c, d);
    _mm512_storeu_si512(bytes, _mm512_permutex2var_epi64(ab, first, cd));
    _mm512_storeu_si512(bytes + 64, _mm512_permutex2var_epi64(ab, second, cd));
    ab = _mm512_unpackhi_epi64(a, b);
    cd = _mm512_unpackhi_epi64(c, d);
    _mm512_storeu_si512(bytes + 128, _mm512_permutex2var_epi64(ab, first, cd));
    _mm512_storeu_si512(bytes + 192, _mm512_permutex2var_epi64(ab, second, cd));
}
#endif

/* Write the next n bytes, the lowest of each word first. The rest of the last draw is lost. */
static inline void draw_bytes(Stream *stream, int64_t n, uint8_t *bytes) {
    uint64_t words[4];
#ifdef __AVX512F__
    for (; n >= 8 * DRAWN_BYTES; n -= 8 * DRAWN_BYTES, bytes += 8 * DRAWN_BYTES)
        draw_eight(stream, bytes);
#endif
    for (; n > 0; n -= DRAWN_BYTES, bytes += DRAWN_BYTES) {
        draw(stream, words);
        memcpy(bytes, words, n < DRAWN_BYTES ? (size_t)n : DRAWN_BYTES);
    }
}
