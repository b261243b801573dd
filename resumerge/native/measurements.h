/* What a merge did to the numbers of a block, from its operands and its result.
 *
 * Equality and counts of NaN and infinity are of all elements. Sums are of the first elements of
 * the block, whose results are known as they were before rounding. */
#pragma once

#include "table.h"
#include "vectors.h"

/* Elements that are measured at a time, so that all temporaries fit the first-level cache. */
#define PART 512

/* Sums of squares in these limits have lost nothing to the range of float. */
#define LEAST_SQUARES 1e-25f
#define MOST_SQUARES 1e37f

typedef struct {
    double intended[MEASURED_LANES], change[MEASURED_LANES];
} ChangeLanes;

static inline int is_finite(float x) { return (bits_of(x) & 0x7fffffffu) < 0x7f800000u; }

/* Elements of a part, and zeros up to its end; in `to` or in place. */
static inline const float *load_part(const void *data, int dtype, int64_t start, int n, float *to) {
    const float *x = load(data, dtype, start, n, to);
    if (n == PART) return x;
    if (x != to) memcpy(to, x, sizeof(float) * (size_t)n);
    memset(to + n, 0, sizeof(float) * (size_t)(PART - n));
    return to;
}

/* Return the reference rounded to the type of the results: the results without any change. */
static inline const float *load_unchanged(const float *b, int rounds, int dtype, float *to) {
    uint64_t held[PART];
    const Output rounded = {.data = held, .dtype = dtype};
    if (!rounds || dtype == F32) return b;
    memcpy(to, b, sizeof(float) * PART);
    put(&rounded, 0, PART, to);
    return load(held, dtype, 0, PART, to);
}

static inline int loses_bits(int from, int to) {
    return from != to && to != F32 && to != F64;
}

/* Return whether sums in float are exact enough: all are finite, and no square vanished. */
static inline int is_exact_enough(const float *squares, uint32_t count) {
    float total = 0.0f;
    for (int k = 0; k < MEASURED_LANES; k++) total += squares[k];
    return count ? total >= LEAST_SQUARES && total <= MOST_SQUARES : total == 0.0f;
}

static inline uint32_t total_of(const uint32_t *lanes) {
    uint32_t total = 0;
    for (int k = 0; k < MEASURED_LANES; k++) total += lanes[k];
    return total;
}

/* a * b, or 0 where it is not finite. */
static inline double finite_product(double a, double b) {
    double product = a * b;
    return product - product == 0.0 ? product : 0.0;
}

static inline double sum_of_lanes(const double *lanes) {
    double sum = 0.0;
    for (int k = 0; k < MEASURED_LANES; k++) sum += lanes[k];
    return sum;
}

/* Add the intended change (x - b), the actual change (y - c, c the rounded b), the number of
 * elements that were intended to change, and the number of these that did not. */
static inline void add_change(const float *x, const float *b, const float *y, const float *c,
                              float *change, ChangeLanes *lanes, double *out) {
    float meant[MEASURED_LANES] = {0.0f}, came[MEASURED_LANES] = {0.0f};
    uint32_t moved[MEASURED_LANES] = {0}, lost[MEASURED_LANES] = {0}, changed[MEASURED_LANES] = {0};
    for (int i = 0; i < PART; i += MEASURED_LANES)
        for (int k = 0; k < MEASURED_LANES; k++) {
            float e = x[i + k] - b[i + k], g = y[i + k] - c[i + k];
            change[i + k] = g;
            meant[k] += e * e;
            came[k] += g * g;
            uint32_t moves = x[i + k] != b[i + k], changes = y[i + k] != c[i + k];
            moved[k] += moves;
            changed[k] += changes;
            lost[k] += moves & ~changes;
        }
    uint32_t moved_count = total_of(moved);
    out[MOVED] += moved_count;
    out[LOST] += total_of(lost);
    if (is_exact_enough(meant, moved_count) && is_exact_enough(came, total_of(changed))) {
        for (int k = 0; k < MEASURED_LANES; k++) lanes->intended[k] += meant[k];
        for (int k = 0; k < MEASURED_LANES; k++) lanes->change[k] += came[k];
        return;
    }
    for (int i = 0; i < PART; i++) {
        double e = (double)x[i] - b[i], g = (double)y[i] - c[i];
        lanes->intended[0] += finite_product(e, e);
        lanes->change[0] += finite_product(g, g);
    }
}

/* Add the sums of one model: of its task vector x - b, and of its product with the change. */
static inline void add_model(const float *x, const float *b, const float *change, float *vector,
                             ModelLanes *lanes, double *out) {
    float size[MEASURED_LANES] = {0.0f}, along[MEASURED_LANES] = {0.0f};
    uint32_t differs[MEASURED_LANES] = {0};
    for (int i = 0; i < PART; i += MEASURED_LANES)
        for (int k = 0; k < MEASURED_LANES; k++) {
            float d = x[i + k] - b[i + k];
            vector[i + k] = d;
            size[k] += d * d;
            along[k] += d * change[i + k];
            differs[k] += x[i + k] != b[i + k];
        }
    uint32_t count = total_of(differs);
    out[DIFFERS] += count;
    float products = 0.0f;
    for (int k = 0; k < MEASURED_LANES; k++) products += along[k];
    if (is_exact_enough(size, count) && is_finite(products)) {
        for (int k = 0; k < MEASURED_LANES; k++) lanes->size[k] += size[k];
        for (int k = 0; k < MEASURED_LANES; k++) lanes->along[k] += along[k];
        return;
    }
    for (int i = 0; i < PART; i++) {
        double d = (double)x[i] - b[i];
        lanes->size[0] += finite_product(d, d);
        lanes->along[0] += finite_product(d, change[i]);
    }
}

/* Return whether a vector equals a reference: bit by bit if they have one type, else as numbers
 * (NaN equals NaN), the reference rounded to the vector's type. The first difference ends the loop.
 * */
static int are_equal(const Vector *v, const Vector *reference, int64_t count) {
    if (v->dtype == reference->dtype)
        return !memcmp(v->data, reference->data, (size_t)count * (size_t)width_of(v->dtype));
    float held[PART], held_b[PART], held_c[PART];
    int rounds = loses_bits(reference->dtype, v->dtype);
    for (int64_t start = 0; start < count; start += PART) {
        int n = (int)(count - start < PART ? count - start : PART);
        const float *x = load_part(v->data, v->dtype, start, n, held);
        const float *b = load_part(reference->data, reference->dtype, start, n, held_b);
        b = load_unchanged(b, rounds, v->dtype, held_c);
        uint32_t differ = 0;
        for (int i = 0; i < PART; i++) differ |= x[i] != b[i] && (x[i] == x[i] || b[i] == b[i]);
        if (differ) return 0;
    }
    return 1;
}

/* The bits of the largest magnitude of 16-bit or 8-bit numbers, which are ordered by their bits. */
static inline uint32_t most_bits(const void *data, int dtype, int64_t start, int n) {
    uint32_t most = 0;
    if (width_of(dtype) == 2) {
        const uint16_t *x = (const uint16_t *)data + start;
        uint16_t found = 0;
        for (int i = 0; i < n; i++) {
            uint16_t size = (uint16_t)(x[i] << 1);
            found = found > size ? found : size;
        }
        most = found >> 1;
    } else if (dtype == F32) {
        const uint32_t *x = (const uint32_t *)data + start;
        for (int i = 0; i < n; i++) {
            uint32_t size = x[i] & 0x7fffffffu;
            most = most > size ? most : size;
        }
    } else if (dtype == F64) {
        const double *x = (const double *)data + start;
        for (int i = 0; i < n; i++) {
            uint32_t size = bits_of((float)x[i]) & 0x7fffffffu;
            most = most > size ? most : size;
        }
    } else {
        const uint8_t *x = (const uint8_t *)data + start;
        for (int i = 0; i < n; i++) {
            uint32_t size = x[i] & 0x7fu;
            most = most > size ? most : size;
        }
    }
    return most;
}

/* The least bits of a magnitude that is not finite. F8_E4M3 has no infinity: its largest number
 * stands for it. */
static const uint32_t least_not_finite[DTYPES] = {0x7f800000u, 0x7f80u, 0x7c00u,
                                                  0x7f800000u, 0x7eu,   0x7cu};
#define MOST_OF_E4M3 448.0f

/* Count the results that are not finite, and their causes: operands that are not finite, or results
 * that are too large for their type. */
static void count_not_finite(const Vector *y, const Vector *reference, const Vector *vectors,
                             int vectors_count, int64_t count, double *out) {
    float held[1];
    int is_e4m3 = y->dtype == F8_E4M3;
    for (int64_t start = 0; start < count; start += PART) {
        int n = (int)(count - start < PART ? count - start : PART);
        if (most_bits(y->data, y->dtype, start, n) < least_not_finite[y->dtype]) continue;
        for (int64_t e = start; e < start + n; e++) {
            float result = *load(y->data, y->dtype, e, 1, held);
            int nan = result != result;
            if (!nan && !(is_e4m3 ? fabsf(result) >= MOST_OF_E4M3 : !is_finite(result))) continue;
            float limit = is_e4m3 ? MOST_OF_E4M3 : INFINITY;
            float b = *load(reference->data, reference->dtype, e, 1, held);
            int all_fit = fabsf(b) < limit;
            out[REFERENCE_NOT_FINITE] += !is_finite(b);
            for (int m = 0; m < vectors_count; m++) {
                float x = *load(vectors[m].data, vectors[m].dtype, e, 1, held);
                out[MEASURED_SUMS + m * MEASURED_MODEL_SUMS + NOT_FINITE] += !is_finite(x);
                all_fit = all_fit && fabsf(x) < limit;
            }
            out[NANS] += nan;
            out[INFINITIES] += !nan && !is_finite(result);
            out[OVERFLOWS] += !nan && all_fit;
        }
    }
}

/* Return the results of a part before they were rounded to r, the elements of y from `start` on. An
 * exact result that does not round to r is replaced by r: the method wrote r itself, or rounded it
 * from double. */
static inline const float *before_rounding(const float *x, const float *r, int n, const Vector *y,
                                           int64_t start, float *to) {
    uint64_t held[PART];
    float held_r[PART];
    const Output output = {.data = held, .dtype = y->dtype};
    if (y->dtype == F32) return r;
    put(&output, 0, n, (float *)x); /* put only reads x */
    size_t width = (size_t)width_of(y->dtype);
    if (!memcmp(held, (const char *)y->data + (size_t)start * width, width * (size_t)n)) return x;
    const float *rounded = load_part(held, y->dtype, 0, n, held_r);
    for (int i = 0; i < PART; i++) to[i] = bits_of(rounded[i]) == bits_of(r[i]) ? x[i] : r[i];
    return to;
}

/* The measurements of a block: out[MEASURED_SUMS], then MEASURED_MODEL_SUMS for each vector.
 * `reference` is what changes are counted from, `exact` the first results before they were rounded
 * to `y`; `lanes` has room for each vector. `written` has what these results, and `unchanged` what
 * the same elements of the reference are as they are written; null where that is `y`, and the
 * reference in its type. */
static void measure_unchecked(const Vector *reference, const Vector *vectors, int vectors_count,
                              const float *exact, int64_t exact_count, const float *written,
                              const float *unchanged, const Vector *y, int64_t count,
                              ModelLanes *lanes, double *out) {
    float held_b[PART], held_x[PART], held_y[PART], held_c[PART], change[PART], vector[PART];
    float held_r[PART];
    uint8_t signs[PART];
    ChangeLanes changes = {{0.0}, {0.0}};
    int rounds = loses_bits(reference->dtype, y->dtype);
    memset(lanes, 0, sizeof(ModelLanes) * (size_t)vectors_count);
    memset(out, 0, sizeof(double) * (size_t)(MEASURED_SUMS + vectors_count * MEASURED_MODEL_SUMS));
    count_not_finite(y, reference, vectors, vectors_count, count, out);
    out[UNCHANGED] = are_equal(y, reference, count);
    out[MEASURED] = (double)exact_count;
    for (int64_t start = 0; start < exact_count; start += PART) {
        int n = (int)(exact_count - start < PART ? exact_count - start : PART);
        const float *b = load_part(reference->data, reference->dtype, start, n, held_b);
        const float *x = load_part(exact, F32, start, n, held_x);
        const float *r = load_part(y->data, y->dtype, start, n, held_y);
        x = before_rounding(x, r, n, y, start, held_x);
        const float *c = unchanged ? load_part(unchanged, F32, start, n, held_c)
                                   : load_unchanged(b, rounds, y->dtype, held_c);
        if (written) r = load_part(written, F32, start, n, held_r);
        add_change(x, b, r, c, change, &changes, out);
        for (int m = 0; m < vectors_count; m++) {
            const Vector *v = &vectors[m];
            const float *z = load_part(v->data, v->dtype, start, n, held_x);
            add_model(z, b, change, vector, &lanes[m],
                      out + MEASURED_SUMS + m * MEASURED_MODEL_SUMS);
            if (vectors_count < 2) continue;
            if (m == 0) memset(signs, 0, sizeof signs);
            for (int i = 0; i < PART; i++)
                signs[i] |= (uint8_t)((vector[i] > 0.0f) | (vector[i] < 0.0f) << 1);
        }
        if (vectors_count < 2) continue;
        uint32_t conflicts = 0;
        for (int i = 0; i < PART; i++) conflicts += signs[i] == 3;
        out[CONFLICTS] += conflicts;
    }
    out[INTENDED] = sum_of_lanes(changes.intended);
    out[CHANGE] = sum_of_lanes(changes.change);
    for (int m = 0; m < vectors_count; m++) {
        double *sums = out + MEASURED_SUMS + m * MEASURED_MODEL_SUMS;
        sums[SIZE] = sum_of_lanes(lanes[m].size);
        sums[ALONG] = sum_of_lanes(lanes[m].along);
        sums[EQUAL] = are_equal(&vectors[m], reference, count);
    }
}
