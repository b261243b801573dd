/* All kernels; included by a file for each instruction set, which says what they are named. */

#include "vectors.h"
#include "within.h"

#include "random.h"
#include "reductions.h"
#include "rounding.h"
#include "selection.h"

#include "ranks.h"
#include "sums.h"
#include "task_vectors.h"
