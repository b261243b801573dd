/* The kernels of one instruction set. They do not check their arguments: module.c does. */
#pragma once

#include "vectors.h"

/* The seed of random bits: a key, and the number of a block, which is the counter's high part. */
typedef struct {
    uint64_t key[2];
    uint64_t block;
} Seed;

/* The flags of add_task_vectors. */
enum { ELECT_SIGNS = 1, NORMALIZE = 2 };

/* The sums of measure: of a block, and of each vector. */
enum {
    MEASURED,
    INTENDED,
    CHANGE,
    MOVED,
    LOST,
    CONFLICTS,
    UNCHANGED,
    NANS,
    INFINITIES,
    OVERFLOWS,
    REFERENCE_NOT_FINITE,
    MEASURED_SUMS
};
enum { SIZE, ALONG, DIFFERS, EQUAL, NOT_FINITE, MEASURED_MODEL_SUMS };

/* Element e of a part is added to lane e mod MEASURED_LANES, in float; lanes are added up over the
 * parts in double, and to each other at the end. Sums in double alone take twice the time. */
#define MEASURED_LANES 16

typedef struct {
    double size[MEASURED_LANES], along[MEASURED_LANES];
} ModelLanes;

/* The number of sums of distance. */
#define DISTANCE_SUMS 5

/* Bytes of the shortest input: XXH3 hashes shorter ones in other ways, which are not here. */
#define SHORTEST_HASHED 241
#define HASH_BYTES 16

typedef struct {
    void (*hash)(const uint8_t *data, int64_t size, uint8_t *to);
    void (*weighted_sum)(const Vector *terms, const float *weights, int terms_count, int64_t count,
                         const Output *out);
    void (*weighted_sum_along)(const Vector *terms, const float *weights, int64_t weights_count,
                               int terms_count, int64_t row, int by_column, int64_t count,
                               const Output *out);
    void (*measure)(const Vector *reference, const Vector *vectors, int vectors_count,
                    const float *exact, int64_t exact_count, const float *written,
                    const float *unchanged, const Vector *y, int64_t count, ModelLanes *lanes,
                    double *out);
    void (*round_to)(const Vector *v, int64_t count, const Output *out);
    void (*clamp_to_distance)(const Vector *v, const Vector *middle, float reach, int64_t count,
                              const Output *out);
    void (*add_mean_change)(const Vector *base, const Vector *vectors, const float *factors,
                            int vectors_count, float epsilon, int64_t count, float *terms,
                            const Output *out);
    void (*count_changes)(const Vector *vectors, int vectors_count, float epsilon, int64_t count,
                          uint32_t *flags, int64_t *out);
    void (*count_conflicts)(const Vector *vectors, int vectors_count, int64_t count, int16_t *signs,
                            int64_t *out);
    void (*distance)(const Vector *first, const Vector *second, int64_t count, double *out);
    void (*variance)(const Vector *vectors, int vectors_count, int64_t count, float *out);
    void (*sum_of_squares)(const Vector *v, const uint8_t *mask, int64_t count, double *out);
    void (*add_majority_mean)(const Vector *base, const Vector *vectors, const uint8_t *mask,
                              const float *weights, int vectors_count, int64_t count, float *terms,
                              const Output *out);
    void (*trimmed_mean)(const Vector *vectors, int vectors_count, int cut, int64_t count,
                         float *terms, const Output *out);
    void (*random_mask)(const Seed *seed, uint8_t whole, uint64_t fraction, int64_t count,
                        uint8_t *mask);
    int (*rank_mask)(const Vector *v, const Seed *seed, int64_t count, int64_t row, int64_t stride,
                     double density, double reach, uint8_t *mask);
    int (*gram)(const Vector *vectors, int vectors_count, int64_t row, int64_t count, double *out);
    void (*column_gram)(const Vector *vectors, int vectors_count, int64_t rows, int64_t row,
                        double *wide, double *out);
    void (*l1_norms)(const Vector *v, const uint8_t *mask, int64_t count, double *out);
    void (*keys)(const Vector *v, int64_t count, int kind, uint32_t *out);
    int64_t (*keys_in_bracket)(const Vector *v, int64_t count, int kind, uint32_t low,
                               uint32_t high, int64_t *above, uint32_t *keys, uint32_t *counts);
    int (*key_of_rank)(const uint32_t *keys, const uint32_t *counts, int64_t count, int64_t rank,
                       uint32_t *key, int64_t *among);
    int64_t (*equal_count)(const Vector *v, int64_t count, int kind, uint32_t key);
    void (*mask_above)(const Vector *v, int64_t count, int kind, uint32_t threshold, int64_t quota,
                       uint8_t *mask);
    int (*add_task_vectors)(const Vector *base, const Vector *vectors, const uint8_t *const *masks,
                            const uint32_t *thresholds, int64_t *quotas, const float *factors,
                            const float *divisor_weights, int vectors_count, int flags, float scale,
                            int64_t count, const Output *out);
    void (*add_voted_sum)(const Vector *base, const Vector *vectors, const float *weights,
                          const float *thresholds, int vectors_count, int least, float scale,
                          int64_t count, float *terms, const Output *out);
    void (*decode)(const uint8_t *codes, int64_t count, const float *table, int numbers,
                   float *out);
    void (*apply_grid)(float *matrix, int64_t rows, int64_t columns, const float *grid,
                       int64_t block, int subtracts);
    void (*block_maxima)(const float *matrix, int64_t rows, int64_t columns, int64_t block,
                         float *out);
    void (*quantise)(const float *matrix, int64_t rows, int64_t columns, const float *grid,
                     int64_t block, int kind, uint8_t *out);
} Kernels;

extern const Kernels resumerge_baseline;
#if defined(__x86_64__) && defined(__GNUC__)
extern const Kernels resumerge_avx2, resumerge_avx512;
#endif
