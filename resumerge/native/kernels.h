/* All kernels; included by a file for each instruction set, which says what they are named. */

/* For pread, and files of more than 2 GiB where off_t would be short. */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64

#include "vectors.h"
#include "within.h"

#include "differences.h"
#include "random.h"
#include "reductions.h"

#include "along.h"
#include "changes.h"
#include "energies.h"
#include "limits.h"
#include "order.h"
#include "reading.h"
#include "rounding.h"
#include "selection.h"

#include "ranks.h"
#include "sums.h"
#include "task_vectors.h"
#include "votes.h"
