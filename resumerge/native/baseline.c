/* The kernels for any processor. */

#include "kernels.h"

const Kernels resumerge_baseline = KERNELS;
