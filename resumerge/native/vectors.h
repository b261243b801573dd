/* Vectors of several element types, read as float a chunk at a time, and rounded as they are
 * written. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Elements that are computed at a time, so that every temporary stays in the first-level cache. */
#define CHUNK 1024

enum { F32, BF16, F16, F64, F8_E4M3, F8_E5M2, DTYPES };

/* The vector `data`, or `data - base` where there is a base. */
typedef struct {
    const void *data;
    const void *base;
    int dtype;
    int base_dtype;
} Vector;

/* The vector that results are written to. With `exact`, the first `measured` results of each block
 * are also kept there before they are rounded, one block after the other. */
typedef struct {
    void *data;
    int dtype;
    float *exact;
    int64_t block;
    int64_t measured;
} Output;

/* Bytes of an element. */
static inline int width_of(int dtype) {
    return dtype == F64 ? 8 : dtype == F32 ? 4 : dtype >= F8_E4M3 ? 1 : 2;
}

/* A vector's elements from `start` on. */
static inline Vector from(const Vector *v, int64_t start) {
    Vector rest = *v;
    rest.data = (const char *)v->data + start * width_of(v->dtype);
    if (v->base) rest.base = (const char *)v->base + start * width_of(v->base_dtype);
    return rest;
}

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
    /* The exponent is changed by a multiplication, which is right for subnormal numbers as well. */
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
    /* Numbers that become subnormal are rounded by the adder, to the last place of 2^-14 * 2^-10.
     * */
    uint32_t small = bits_of(number_of(size) + 0.5f) - 0x3f000000u;
    uint32_t usual = (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13;
    uint32_t found = size < 0x38800000u ? small : usual;
    found = size >= 0x477ff000u ? 0x7c00u : found;
    found = size > 0x7f800000u ? 0x7e00u : found | (bits >> 16 & 0x8000u);
    return (uint16_t)found;
}

/* E4M3 has no infinity, and one pattern of either sign for NaN. */
static inline float from_e4m3(uint8_t b) {
    uint32_t size = bits_of(number_of((uint32_t)(b & 0x7f) << 20) * 0x1p120f);
    if ((b & 0x7f) == 0x7f) size = 0x7fc00000u;
    return number_of(size | (uint32_t)(b & 0x80) << 24);
}

/* A rounded magnitude with `kept` bits of its fraction: to nearest, ties to even. Below `normal`,
 * numbers are rounded by the adder, to the last place of `adder`; `bias` is that of the exponent.
 * */
static inline uint32_t to_small(uint32_t size, int kept, uint32_t bias, uint32_t normal,
                                float adder) {
    int cut = 23 - kept;
    uint32_t small = bits_of(number_of(size) + adder) - bits_of(adder);
    uint32_t usual = (size - (bias << 23) + (1u << (cut - 1)) - 1u + (size >> cut & 1u)) >> cut;
    return size < normal ? small : usual;
}

/* Too large numbers become the largest number, as in torch; one NaN for all. */
static inline uint8_t to_e4m3(float x) {
    uint32_t bits = bits_of(x), size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return 0x7f;
    uint32_t found = size >= 0x43e00000u ? 0x7eu : to_small(size, 3, 120, 0x3c800000u, 0x1p14f);
    return (uint8_t)(found | bits >> 31 << 7);
}

/* Too large numbers become infinite; one NaN for all. */
static inline uint8_t to_e5m2(float x) {
    uint32_t bits = bits_of(x), size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return 0x7f;
    if (size >= 0x47800000u) return (uint8_t)(0x7cu | bits >> 31 << 7);
    return (uint8_t)(to_small(size, 2, 112, 0x38800000u, 0x1p7f) | bits >> 31 << 7);
}

static inline float one_nan(float x) { return x != x ? number_of(0x7fc00000u) : x; }

/* Return elements start:start+n as float: in `to`, or in place if they are floats. */
static inline const float *load(const void *data, int dtype, int64_t start, int n, float *to) {
    if (dtype == F32) return (const float *)data + start;
    const double *wide = (const double *)data + start;
    const uint16_t *half = (const uint16_t *)data + start;
    const uint8_t *byte = (const uint8_t *)data + start;
    if (dtype == BF16)
        for (int i = 0; i < n; i++) to[i] = number_of((uint32_t)half[i] << 16);
    else if (dtype == F16)
        for (int i = 0; i < n; i++) to[i] = from_f16(half[i]);
    else if (dtype == F64)
        for (int i = 0; i < n; i++) to[i] = (float)wide[i];
    else if (dtype == F8_E4M3)
        for (int i = 0; i < n; i++) to[i] = from_e4m3(byte[i]);
    else
        for (int i = 0; i < n; i++) to[i] = from_f16((uint16_t)(byte[i] << 8));
    return to;
}

/* Return elements start:start+n of a vector, less its base: in `to`, or in place if possible. */
static inline const float *take(const Vector *v, int64_t start, int n, float *to) {
    const float *x = load(v->data, v->dtype, start, n, to);
    if (!v->base) return x;
    float held[CHUNK];
    const float *base = load(v->base, v->base_dtype, start, n, held);
    for (int i = 0; i < n; i++) to[i] = x[i] - base[i];
    return to;
}

/* Return the memory to compute results start:start+n in before `put`: the output, or `held`. */
static inline float *target(const Output *out, int64_t start, float *held) {
    return out->dtype == F32 ? (float *)out->data + start : held;
}

/* Keep the measured ones of results start:start+n before they are rounded. */
static void keep_exact(const Output *out, int64_t start, int n, const float *x) {
    for (int i = 0; i < n;) {
        int64_t number = (start + i) / out->block, at = (start + i) % out->block;
        int64_t rest = out->block - at < n - i ? out->block - at : n - i;
        int64_t kept = out->measured - at < rest ? out->measured - at : rest;
        if (kept > 0)
            memmove(out->exact + number * out->measured + at, x + i, sizeof(float) * (size_t)kept);
        i += (int)rest;
    }
}

/* Write results start:start+n, which lie in the memory of `target`, in the stored type: rounded to
 * nearest, ties to even. */
static inline void put(const Output *out, int64_t start, int n, float *x) {
    if (out->exact) keep_exact(out, start, n, x);
    if (out->dtype == F32) {
        for (int i = 0; i < n; i++) x[i] = one_nan(x[i]);
        return;
    }
    double *wide = (double *)out->data + start;
    uint16_t *half = (uint16_t *)out->data + start;
    uint8_t *byte = (uint8_t *)out->data + start;
    if (out->dtype == BF16)
        for (int i = 0; i < n; i++) half[i] = to_bf16(x[i]);
    else if (out->dtype == F16)
        for (int i = 0; i < n; i++) half[i] = to_f16(x[i]);
    else if (out->dtype == F64)
        for (int i = 0; i < n; i++) wide[i] = one_nan(x[i]);
    else if (out->dtype == F8_E4M3)
        for (int i = 0; i < n; i++) byte[i] = to_e4m3(x[i]);
    else
        for (int i = 0; i < n; i++) byte[i] = to_e5m2(x[i]);
}

static inline int chunk_at(int64_t start, int64_t count) {
    return (int)(count - start < CHUNK ? count - start : CHUNK);
}
