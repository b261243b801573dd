/* All kernels; compiled once for each instruction set. */
#pragma once

#include "along.h"
#include "changes.h"
#include "clamp.h"
#include "distance.h"
#include "energies.h"
#include "hashes.h"
#include "measurements.h"
#include "order.h"
#include "quantised.h"
#include "random.h"
#include "ranks.h"
#include "reductions.h"
#include "rounding.h"
#include "selection.h"
#include "sums.h"
#include "table.h"
#include "task_vectors.h"
#include "consensus_ta.h"

#define KERNELS                                             \
    {                                                       \
        .hash = hash_unchecked,                             \
        .weighted_sum = weighted_sum_unchecked,             \
        .weighted_sum_along = weighted_sum_along_unchecked, \
        .measure = measure_unchecked,                       \
        .round_to = round_to_unchecked,                     \
        .clamp_to_distance = clamp_to_distance_unchecked,   \
        .add_mean_change = add_mean_change_unchecked,       \
        .count_changes = count_changes_unchecked,           \
        .count_conflicts = count_conflicts_unchecked,       \
        .distance = distance_unchecked,                     \
        .variance = variance_unchecked,                     \
        .sum_of_squares = sum_of_squares_unchecked,         \
        .add_majority_mean = add_majority_mean_unchecked,   \
        .trimmed_mean = trimmed_mean_unchecked,             \
        .random_mask = random_mask_unchecked,               \
        .rank_mask = rank_mask_unchecked,                   \
        .gram = gram_unchecked,                             \
        .column_gram = column_gram_unchecked,               \
        .l1_norms = l1_norms_unchecked,                     \
        .keys = keys_unchecked,                             \
        .keys_in_bracket = keys_in_bracket_unchecked,       \
        .key_of_rank = key_of_rank_unchecked,               \
        .equal_count = equal_count_unchecked,               \
        .mask_above = mask_above_unchecked,                 \
        .add_task_vectors = add_task_vectors_unchecked,     \
        .add_voted_sum = add_voted_sum_unchecked,           \
        .decode = decode_unchecked,                         \
        .apply_grid = apply_grid_unchecked,                 \
        .block_maxima = block_maxima_unchecked,             \
        .quantise = quantise_unchecked,                     \
    }
