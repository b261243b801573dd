/* xxh3-128 of long inputs, as the specification of XXH3 0.8 defines it, with its default secret and
 * seed 0, written in the canonical form: the high half first. */
#pragma once

#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define HASH_LANES 8
#define STRIPE 64
/* The bytes after which the lanes are scrambled, because the secret has been used up. */
#define SCRAMBLED 1024

static const uint64_t secret[24] = {
    0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072,
    0x78e5c0cc4ee679cb, 0x2172ffcc7dd05a82, 0x8e2443f7744608b8, 0x4c263a81e69035e0,
    0xcb00c391bb52283c, 0xa32e531b8b65d088, 0x4ef90da297486471, 0xd8acdea946ef1938,
    0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a, 0x647378d9c97e9fc8,
    0xc3ebd33483acc5ea, 0xeb6313faffa081c5, 0x49daf0b751dd0d17, 0x9e68d429265516d3,
    0xfca1477d58be162b, 0xce31d07ad1b8f88f, 0x280416958f3acb45, 0x7e404bbbcafbd7af,
};

#define PRIME32_1 0x9e3779b1u
#define PRIME32_2 0x85ebca77u
#define PRIME32_3 0xc2b2ae3du
#define PRIME64_1 0x9e3779b185ebca87u
#define PRIME64_2 0xc2b2ae3d27d4eb4fu
#define PRIME64_3 0x165667b19e3779f9u
#define PRIME64_4 0x85ebca77c2b2ae63u
#define PRIME64_5 0x27d4eb2f165667c5u

static inline void accumulate(uint64_t *lanes, const uint8_t *data, const uint8_t *keys) {
#if defined(__SSE2__) && !defined(__AVX512F__)
    /* Compilers generate this product without intrinsics only for AVX-512. */
    for (int i = 0; i < HASH_LANES; i += 2) {
        __m128i word = _mm_loadu_si128((const __m128i *)(data + 8 * i));
        __m128i mixed = _mm_xor_si128(word, _mm_loadu_si128((const __m128i *)(keys + 8 * i)));
        __m128i product = _mm_mul_epu32(mixed, _mm_srli_epi64(mixed, 32));
        __m128i sum = _mm_add_epi64(product, _mm_shuffle_epi32(word, 0x4e));
        __m128i *lane = (__m128i *)(lanes + i);
        _mm_storeu_si128(lane, _mm_add_epi64(_mm_loadu_si128(lane), sum));
    }
#else
    uint64_t word[HASH_LANES], key[HASH_LANES];
    memcpy(word, data, STRIPE);
    memcpy(key, keys, STRIPE);
    for (int i = 0; i < HASH_LANES; i++) {
        uint64_t mixed = word[i] ^ key[i];
        lanes[i] += word[i ^ 1] + (mixed & 0xffffffffu) * (mixed >> 32);
    }
#endif
}

static inline uint64_t folded_product(uint64_t a, uint64_t b) {
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t merged_lanes(const uint64_t *lanes, const uint8_t *keys, uint64_t start) {
    uint64_t found = start;
    for (int i = 0; i < HASH_LANES; i += 2) {
        uint64_t key[2];
        memcpy(key, keys + 8 * i, sizeof key);
        found += folded_product(lanes[i] ^ key[0], lanes[i + 1] ^ key[1]);
    }
    found ^= found >> 37;
    found *= 0x165667919e3779f9u;
    return found ^ found >> 32;
}

static inline void big_endian(uint64_t x, uint8_t *to) {
    for (int i = 0; i < 8; i++) to[i] = (uint8_t)(x >> (56 - 8 * i));
}

/* Write 16 bytes to `to`. `size` is at least SHORTEST_HASHED; the processor is little-endian. */
static void hash_unchecked(const uint8_t *data, int64_t size, uint8_t *to) {
    const uint8_t *keys = (const uint8_t *)secret;
    uint64_t lanes[HASH_LANES] = {PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3,
                             PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1};
    const uint8_t *last = data + size - STRIPE, *at = data;
    for (; at + SCRAMBLED <= data + size - 1; at += SCRAMBLED) {
        for (int n = 0; n < SCRAMBLED / STRIPE; n++)
            accumulate(lanes, at + n * STRIPE, keys + n * 8);
        for (int i = 0; i < HASH_LANES; i++)
            lanes[i] = (lanes[i] ^ lanes[i] >> 47 ^ secret[16 + i]) * PRIME32_1;
    }
    for (int n = 0; at + STRIPE <= data + size - 1; n++, at += STRIPE)
        accumulate(lanes, at, keys + n * 8);
    accumulate(lanes, last, keys + sizeof secret - STRIPE - 7);
    uint64_t length = (uint64_t)size;
    big_endian(merged_lanes(lanes, keys + sizeof secret - STRIPE - 11, ~(length * PRIME64_2)), to);
    big_endian(merged_lanes(lanes, keys + 11, length * PRIME64_1), to + 8);
}
