/* The kernels of one instruction set. None checks what it is given: module.c does, for all. */
#pragma once

#include "vectors.h"

/* What bits are drawn from: a key and the number of a block, the counter's high part. */
typedef struct {
    uint64_t key[2];
    uint64_t block;
} Seed;

/* Of add_task_vectors. */
enum { CONSENSUS = 1, NORMALIZE = 2 };

/* Of measure: the sums of a block, and of each vector. */
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

/* Of distance. */
#define DISTANCE_SUMS 5

/* Bytes: what is shorter is hashed in other ways, which are not here. */
#define SHORTEST_HASHED 241
#define HASH_BYTES 16

typedef struct {
    void (*hash)(const uint8_t *, int64_t, uint8_t *);
    void (*weighted_sum)(const Vector *, const float *, int, int64_t, const Output *);
    void (*weighted_sum_along)(const Vector *, const float *, int64_t, int, int64_t, int, int64_t,
                               const Output *);
    void (*measure)(const Vector *, const Vector *, int, const float *, int64_t, const float *,
                    const float *, const Vector *, int64_t, ModelLanes *, double *);
    void (*round_to)(const Vector *, int64_t, const Output *);
    void (*clamp_to_distance)(const Vector *, const Vector *, float, int64_t, const Output *);
    void (*add_mean_change)(const Vector *, const Vector *, const float *, int, float, int64_t,
                            float *, const Output *);
    void (*count_changes)(const Vector *, int, float, int64_t, uint32_t *, int64_t *);
    void (*count_conflicts)(const Vector *, int, int64_t, int16_t *, int64_t *);
    void (*distance)(const Vector *, const Vector *, int64_t, double *);
    void (*variance)(const Vector *, int, int64_t, float *);
    void (*sum_of_squares)(const Vector *, const uint8_t *, int64_t, double *);
    void (*add_majority_mean)(const Vector *, const Vector *, const uint8_t *, const float *, int,
                              int64_t, float *, const Output *);
    void (*trimmed_mean)(const Vector *, int, int, int64_t, float *, const Output *);
    void (*random_mask)(const Seed *, uint8_t, uint64_t, int64_t, uint8_t *);
    int (*rank_mask)(const Vector *, const Seed *, int64_t, int64_t, int64_t, double, double,
                     uint8_t *);
    int (*gram)(const Vector *, int, int64_t, int64_t, double *);
    void (*column_gram)(const Vector *, int, int64_t, int64_t, double *, double *);
    void (*l1_norms)(const Vector *, const uint8_t *, int64_t, double *);
    void (*keys)(const Vector *, int64_t, int, uint32_t *);
    int64_t (*keys_in_bracket)(const Vector *, int64_t, int, uint32_t, uint32_t, int64_t *,
                               uint32_t *, uint32_t *);
    int (*key_of_rank)(const uint32_t *, const uint32_t *, int64_t, int64_t, uint32_t *, int64_t *);
    int64_t (*equal_count)(const Vector *, int64_t, int, uint32_t);
    void (*mask_above)(const Vector *, int64_t, int, uint32_t, int64_t, uint8_t *);
    int (*add_task_vectors)(const Vector *, const Vector *, const uint8_t *const *,
                            const uint32_t *, int64_t *, const float *, const float *, int, int,
                            float, int64_t, const Output *);
    void (*add_voted_sum)(const Vector *, const Vector *, const float *, const float *, int, int,
                          float, int64_t, float *, const Output *);
    void (*decode)(const uint8_t *, int64_t, const float *, int, float *);
    void (*apply_grid)(float *, int64_t, int64_t, const float *, int64_t, int);
    void (*block_maxima)(const float *, int64_t, int64_t, int64_t, float *);
    void (*quantise)(const float *, int64_t, int64_t, const float *, int64_t, int, uint8_t *);
} Kernels;

extern const Kernels resumerge_baseline;
#if defined(__x86_64__) && defined(__GNUC__)
extern const Kernels resumerge_avx2, resumerge_avx512;
#endif
