/* Vectors of several element types, read as float a chunk at a time. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Elements that are worked on at a time: every temporary stays in the first-level cache. */
#define CHUNK 1024

enum { F32 = 0, BF16 = 1, F16 = 2 };

/* The vector `data`, or `data - base` where there is a base. */
typedef struct {
    const void *data;
    const void *base;
    int32_t dtype;
    int32_t base_dtype;
} Vector;

static inline uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float number_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float from_f16(uint16_t h) {
    /* The exponent is moved by a multiplication, which is right for subnormal numbers, too. */
    uint32_t rest = (uint32_t)(h & 0x7fff) << 13;
    uint32_t moved = bits_of(number_of(rest) * 0x1p112f);
    moved |= rest >= 0x0f800000u ? 0x7f800000u : 0u;
    return number_of(moved | (uint32_t)(h & 0x8000) << 16);
}

/* To nearest, ties to even; one NaN for all. */
static inline uint16_t to_bf16(float x) {
    uint32_t bits = bits_of(x);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

static inline uint16_t to_f16(float x) {
    uint32_t bits = bits_of(x);
    uint32_t size = bits & 0x7fffffffu;
    /* Numbers that become subnormal are rounded by the adder, to the last place of 2^-14 * 2^-10. */
    uint32_t small = bits_of(number_of(size) + 0.5f) - 0x3f000000u;
    uint32_t usual = (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13;
    uint32_t found = size < 0x38800000u ? small : usual;
    found = size >= 0x477ff000u ? 0x7c00u : found;
    found = size > 0x7f800000u ? 0x7e00u : found | (bits >> 16 & 0x8000u);
    return (uint16_t)found;
}

static inline float one_nan(float x) { return x != x ? number_of(0x7fc00000u) : x; }

/* Elements start:start+n as float, in `to` or where they are. */
static inline const float *load(const void *data, int dtype, int64_t start, int n, float *to) {
    if (dtype == F32) return (const float *)data + start;
    const uint16_t *from = (const uint16_t *)data + start;
    if (dtype == BF16)
        for (int i = 0; i < n; i++) to[i] = number_of((uint32_t)from[i] << 16);
    else
        for (int i = 0; i < n; i++) to[i] = from_f16(from[i]);
    return to;
}

/* Elements start:start+n of a vector, less its base, in `to` or where they are. */
static inline const float *take(const Vector *v, int64_t start, int n, float *to) {
    const float *x = load(v->data, v->dtype, start, n, to);
    if (!v->base) return x;
    float held[CHUNK];
    const float *base = load(v->base, v->base_dtype, start, n, held);
    for (int i = 0; i < n; i++) to[i] = x[i] - base[i];
    return to;
}

static inline int chunk_at(int64_t start, int64_t count) {
    return (int)(count - start < CHUNK ? count - start : CHUNK);
}
