/* The Python module: every function checks all that its kernel relies on, and raises ValueError or
 * TypeError before anything is read or written. Kernels run without the interpreter's lock. */

#include "arguments.h"
#include "reading.h"

#include <fenv.h>

#define RUN(statement)      \
    Py_BEGIN_ALLOW_THREADS; \
    statement;              \
    Py_END_ALLOW_THREADS

/* Begin and end what may overflow a float; the end gives whether one did. The processor has a flag
 * for that, which IEEE 754 raises for finite operands alone (section 7.4). A flag that is up without
 * need costs time and nothing else: `kernels/overflow.py` looks at every number. */
#define BEGIN_SUMS          \
    Py_BEGIN_ALLOW_THREADS; \
    feclearexcept(FE_OVERFLOW)
#define END_SUMS(overflows)                     \
    overflows = fetestexcept(FE_OVERFLOW) != 0; \
    Py_END_ALLOW_THREADS

#define RUN_SUMS(overflows, statement) \
    BEGIN_SUMS;                        \
    statement;                         \
    END_SUMS(overflows)

static const Kernels *kernels;

static PyObject *none_if_memory(int result) {
    return result < 0 ? PyErr_NoMemory() : Py_NewRef(Py_None);
}

PyDoc_STRVAR(weighted_sum_doc, "weighted_sum(terms, weights, out): out = sum(w_i * x_i)");

static PyObject *weighted_sum(PyObject *self, PyObject *args) {
    (void)self;
    int overflows;
    PyObject *terms, *weights, *out, *result = NULL;
    Vectors v = {0};
    float *w = NULL;
    Output to;
    if (!PyArg_ParseTuple(args, "OOO:weighted_sum", &terms, &weights, &out)) return NULL;
    if (!take_vectors(terms, "terms", &v) || !(w = take_floats(weights, "weights", v.number)) ||
        !take_output(out, v.length, &to))
        goto done;
    RUN_SUMS(overflows, kernels->weighted_sum(v.items, w, v.number, v.length, &to));
    result = PyBool_FromLong(overflows);
done:
    free(w);
    drop_vectors(&v);
    return result;
}

PyDoc_STRVAR(weighted_sum_along_doc,
             "weighted_sum_along(terms, weights, row, by_column, out): weights is an array of "
             "float32, for each vector one number for each row or column");

static PyObject *weighted_sum_along(PyObject *self, PyObject *args) {
    (void)self;
    int overflows;
    PyObject *terms, *weights, *given_row, *out, *result = NULL;
    int by_column;
    int64_t row, count;
    Vectors v = {0};
    Array w = {0};
    Output to;
    if (!PyArg_ParseTuple(args, "OOOpO:weighted_sum_along", &terms, &weights, &given_row,
                          &by_column, &out))
        return NULL;
    if (!take_vectors(terms, "terms", &v) ||
        !take_integer(given_row, "row", 1, INT64_MAX / MOST_VECTORS, &row))
        goto done;
    count = by_column ? row : blocks_of(v.length, row);
    if (!take_array(weights, "weights", "f", 4, 0, count * v.number, &w) ||
        !take_output(out, v.length, &to))
        goto done;
    RUN_SUMS(overflows, kernels->weighted_sum_along(v.items, w.view.buf, count, v.number, row,
                                                    by_column, v.length, &to));
    result = PyBool_FromLong(overflows);
done:
    drop_array(&w);
    drop_vectors(&v);
    return result;
}

PyDoc_STRVAR(round_to_doc, "round_to(vector, out): to nearest, ties to even; one NaN for all");

static PyObject *round_to(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *vector, *out;
    Output to;
    if (!PyArg_ParseTuple(args, "OO:round_to", &vector, &out)) return NULL;
    const VectorObject *v = take_vector(vector, "vector");
    if (!v || !take_output(out, v->length, &to)) return NULL;
    Vector x = vector_of(v);
    RUN(kernels->round_to(&x, v->length, &to));
    return Py_NewRef(Py_None);
}

PyDoc_STRVAR(measure_doc,
             "measure(reference, vectors, out, sums, written): what became of the numbers in `out`, "
             "a vector that kept exact results; sums is float64 (blocks, MEASURED_SUMS + n * "
             "MEASURED_MODEL_SUMS); written is None, or float32 (2, kept): the kept results and "
             "the reference as they are written");

static PyObject *measure(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *given_reference, *vectors, *given_out, *given_sums, *given_written, *result = NULL;
    Vectors v = {0};
    Array sums = {0}, written = {0};
    ModelLanes *lanes = NULL;
    if (!PyArg_ParseTuple(args, "OOOOO:measure", &given_reference, &vectors, &given_out,
                          &given_sums, &given_written))
        return NULL;
    const VectorObject *r = take_vector(given_reference, "reference");
    const VectorObject *out = take_vector(given_out, "out");
    if (!r || !out || !check_plain(r, "reference") ||
        !check_length(r->length, "reference", out->length) ||
        !take_at_least(0, vectors, "vectors", &v) ||
        (v.number && !check_length(v.length, "vectors", out->length)))
        goto done;
    for (int k = 0; k < v.number; k++)
        if (v.items[k].base) {
            PyErr_SetString(PyExc_ValueError, "vectors: expected vectors without a base");
            goto done;
        }
    if (!out->kept) {
        PyErr_SetString(PyExc_ValueError, "out: expected a vector that kept exact results");
        goto done;
    }
    int64_t blocks = blocks_of(out->length, out->block);
    int64_t columns = MEASURED_SUMS + (int64_t)v.number * MEASURED_MODEL_SUMS;
    if (blocks > INT64_MAX / 8 / columns) {
        PyErr_SetString(PyExc_ValueError, "sums: too many blocks");
        goto done;
    }
    int64_t kept = (int64_t)(out->exact.len / (Py_ssize_t)sizeof(float));
    if (!take_array(given_sums, "sums", "d", 8, 1, blocks * columns, &sums) ||
        (given_written != Py_None &&
         !take_array(given_written, "written", "f", 4, 0, 2 * kept, &written)))
        goto done;
    lanes = malloc(sizeof(ModelLanes) * (size_t)(v.number + 1));
    if (!lanes) {
        PyErr_NoMemory();
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS;
    Vector reference = vector_of(r), results = vector_of(out);
    const float *exact = out->exact.buf, *as_written = written.taken ? written.view.buf : NULL;
    double *found = sums.view.buf;
    for (int64_t start = 0; start < out->length; start += out->block, found += columns) {
        int64_t count = elements_of(start, out->block, out->length);
        int64_t measured = count < out->measured ? count : out->measured;
        kernels->measure(&reference, v.items, v.number, exact, measured, as_written,
                         as_written ? as_written + kept : NULL, &results, count, lanes, found);
        if (as_written) as_written += measured;
        reference = from(&reference, count);
        results = from(&results, count);
        exact += measured;
        advance(&v, count);
    }
    Py_END_ALLOW_THREADS;
    result = Py_NewRef(Py_None);
done:
    free(lanes);
    drop_array(&written);
    drop_array(&sums);
    drop_vectors(&v);
    return result;
}

PyDoc_STRVAR(clamp_to_distance_doc,
             "clamp_to_distance(vector, center, distance, out): "
             "out = min(max(x, c - distance), c + distance)");

static PyObject *clamp_to_distance(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *vector, *center, *out;
    double distance;
    Output to;
    if (!PyArg_ParseTuple(args, "OOO&O:clamp_to_distance", &vector, &center, take_double,
                          &distance, &out))
        return NULL;
    const VectorObject *v = take_vector(vector, "vector"), *c = take_vector(center, "center");
    if (!v || !c || !check_length(c->length, "center", v->length) ||
        !take_output(out, v->length, &to))
        return NULL;
    Vector x = vector_of(v), middle = vector_of(c);
    RUN(kernels->clamp_to_distance(&x, &middle, (float)distance, v->length, &to));
    return Py_NewRef(Py_None);
}

PyDoc_STRVAR(add_mean_change_doc,
             "add_mean_change(base, vectors, factors, epsilon, out): out = base + sum(f_i * d_i) / c "
             "over the c vectors that changed an element");

static PyObject *add_mean_change(PyObject *self, PyObject *args) {
    (void)self;
    int overflows;
    PyObject *given_base, *vectors, *factors, *out, *result = NULL;
    double epsilon;
    Vector base;
    Vectors v = {0};
    float *f = NULL, *scratch = NULL;
    Output to;
    if (!PyArg_ParseTuple(args, "OOOO&O:add_mean_change", &given_base, &vectors, &factors,
                          take_double, &epsilon, &out))
        return NULL;
    if (!take_differences(given_base, vectors, 0, &base, &v) ||
        !(f = take_floats(factors, "factors", v.number)) || !take_output(out, v.length, &to) ||
        !(scratch = take_scratch(v.number, sizeof(float))))
        goto done;
    RUN_SUMS(overflows, kernels->add_mean_change(&base, v.items, f, v.number, (float)epsilon,
                                                 v.length, scratch, &to));
    result = PyBool_FromLong(overflows);
done:
    free(scratch);
    free(f);
    drop_vectors(&v);
    return result;
}

PyDoc_STRVAR(count_changes_doc,
             "count_changes(vectors, epsilon, block, out): out, int64 (blocks, n, 2), how many "
             "elements of each block each vector changed, and that it alone did");

static PyObject *count_changes(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *vectors, *given_block, *out, *result = NULL;
    double epsilon;
    int64_t block;
    Vectors v = {0};
    Array to = {0};
    uint32_t *scratch = NULL;
    if (!PyArg_ParseTuple(args, "OO&OO:count_changes", &vectors, take_double, &epsilon, &given_block,
                          &out))
        return NULL;
    if (!take_family(vectors, "vectors", &v) || !take_block(given_block, &block) ||
        !take_array(out, "out", "lq", 8, 1, blocks_of(v.length, block) * v.number * 2, &to) ||
        !(scratch = take_scratch(v.number, sizeof(uint32_t))))
        goto done;
    Py_BEGIN_ALLOW_THREADS;
    int64_t *found = to.view.buf;
    for (int64_t start = 0; start < v.length; start += block, found += 2 * v.number) {
        int64_t count = elements_of(start, block, v.length);
        kernels->count_changes(v.items, v.number, (float)epsilon, count, scratch, found);
        advance(&v, count);
    }
    Py_END_ALLOW_THREADS;
    result = Py_NewRef(Py_None);
done:
    free(scratch);
    drop_array(&to);
    drop_vectors(&v);
    return result;
}

PyDoc_STRVAR(count_conflicts_doc,
             "count_conflicts(vectors, out): out, int64 (n, n, 2), how many elements are 0 in neither "
             "of two vectors, and how many of these have opposite signs");

static PyObject *count_conflicts(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *vectors, *out, *result = NULL;
    Vectors v = {0};
    Array to = {0};
    int16_t *scratch = NULL;
    if (!PyArg_ParseTuple(args, "OO:count_conflicts", &vectors, &out)) return NULL;
    if (!take_family(vectors, "vectors", &v) ||
        !take_array(out, "out", "lq", 8, 1, (int64_t)v.number * v.number * 2, &to) ||
        !(scratch = take_scratch(v.number, sizeof(int16_t))))
        goto done;
    RUN(kernels->count_conflicts(v.items, v.number, v.length, scratch, to.view.buf));
    result = Py_NewRef(Py_None);
done:
    free(scratch);
    drop_array(&to);
    drop_vectors(&v);
    return result;
}

PyDoc_STRVAR(distance_doc,
             "distance(first, second, out): out, float64 (5): the sums of squares of the first, of "
             "the second and of their difference, how many elements differ, and the largest "
             "distance");

static PyObject *distance(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *given_first, *given_second, *out;
    Array to = {0};
    if (!PyArg_ParseTuple(args, "OOO:distance", &given_first, &given_second, &out)) return NULL;
    const VectorObject *first = take_vector(given_first, "first");
    const VectorObject *second = take_vector(given_second, "second");
    if (!first || !second || !check_length(second->length, "second", first->length) ||
        !take_array(out, "out", "d", 8, 1, DISTANCE_SUMS, &to))
        return NULL;
    Vector x = vector_of(first), y = vector_of(second);
    RUN(kernels->distance(&x, &y, first->length, to.view.buf));
    drop_array(&to);
    return Py_NewRef(Py_None);
}

PyDoc_STRVAR(variance_doc,
             "variance(vectors, out): the population variance of each element; out is float32");

static PyObject *variance(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *vectors, *out, *result = NULL;
    Vectors v = {0};
    Output to;
    if (!PyArg_ParseTuple(args, "OO:variance", &vectors, &out)) return NULL;
    if (!take_family(vectors, "vectors", &v) || !take_output(out, v.length, &to)) goto done;
    if (to.dtype != F32) {
        PyErr_SetString(PyExc_TypeError, "out: expected a vector of float32");
        goto done;
    }
    RUN(kernels->variance(v.items, v.number, v.length, to.data));
    result = Py_NewRef(Py_None);
done:
    drop_vectors(&v);
    return result;
}

PyDoc_STRVAR(sums_of_squares_doc,
             "sums_of_squares(vector, mask, block, out): out, float64 (blocks,), sum(x**2) of what "
             "the mask (uint8, or None) keeps of each block");

PyDoc_STRVAR(l1_norms_doc,
             "l1_norms(vector, mask, block, out): out, float64 (blocks, 2), sum(|x|) of each block, "
             "and of what the mask (uint8, or None) keeps; 0 without a mask");

typedef void (*Sum)(const Vector *, const uint8_t *, int64_t, double *);

static PyObject *sums_by_block(PyObject *args, Sum sum, int numbers) {
    PyObject *vector, *mask, *given_block, *out, *result = NULL;
    int64_t block;
    Array kept = {0}, to = {0};
    if (!PyArg_ParseTuple(args, "OOOO", &vector, &mask, &given_block, &out)) return NULL;
    const VectorObject *v = take_vector(vector, "vector");
    if (!v || !take_mask(mask, v->length, &kept) || !take_block(given_block, &block) ||
        !take_array(out, "out", "d", 8, 1, blocks_of(v->length, block) * numbers, &to))
        goto done;
    Vector whole = vector_of(v);
    int overflows;
    BEGIN_SUMS;
    double *found = to.view.buf;
    const uint8_t *m = mask_of(&kept);
    for (int64_t start = 0; start < v->length; start += block, found += numbers) {
        Vector x = from(&whole, start);
        sum(&x, m ? m + start : NULL, elements_of(start, block, v->length), found);
    }
    END_SUMS(overflows);
    result = PyBool_FromLong(overflows);
done:
    drop_array(&to);
    drop_array(&kept);
    return result;
}

static PyObject *sums_of_squares(PyObject *self, PyObject *args) {
    (void)self;
    return sums_by_block(args, kernels->sum_of_squares, 1);
}

static PyObject *l1_norms(PyObject *self, PyObject *args) {
    (void)self;
    return sums_by_block(args, kernels->l1_norms, 2);
}

PyDoc_STRVAR(add_majority_mean_doc,
             "add_majority_mean(base, vectors, mask, weights, out): "
             "out = base + sum(a_i * w_i * d_i) / sum(a_i * w_i)");

static PyObject *add_majority_mean(PyObject *self, PyObject *args) {
    (void)self;
    int overflows;
    PyObject *given_base, *vectors, *mask, *weights, *out, *result = NULL;
    Vector base;
    Vectors v = {0};
    Array kept = {0};
    float *w = NULL, *scratch = NULL;
    Output to;
    if (!PyArg_ParseTuple(args, "OOOOO:add_majority_mean", &given_base, &vectors, &mask, &weights,
                          &out))
        return NULL;
    if (!take_differences(given_base, vectors, 0, &base, &v) ||
        !take_mask(mask, v.length, &kept) || !(w = take_floats(weights, "weights", v.number)) ||
        !take_output(out, v.length, &to) || !(scratch = take_scratch(v.number, sizeof(float))))
        goto done;
    RUN_SUMS(overflows, kernels->add_majority_mean(&base, v.items, mask_of(&kept), w, v.number,
                                                   v.length, scratch, &to));
    result = PyBool_FromLong(overflows);
done:
    free(scratch);
    free(w);
    drop_array(&kept);
    drop_vectors(&v);
    return result;
}

PyDoc_STRVAR(trimmed_mean_doc,
             "trimmed_mean(vectors, cut, out): the mean without the cut lowest and highest");

static PyObject *trimmed_mean(PyObject *self, PyObject *args) {
    (void)self;
    int overflows;
    PyObject *vectors, *given_cut, *out, *result = NULL;
    int64_t cut;
    Vectors v = {0};
    float *scratch = NULL;
    Output to;
    if (!PyArg_ParseTuple(args, "OOO:trimmed_mean", &vectors, &given_cut, &out)) return NULL;
    if (!take_vectors(vectors, "vectors", &v) ||
        !take_integer(given_cut, "cut", 0, (v.number - 1) / 2, &cut) ||
        !take_output(out, v.length, &to) || !(scratch = take_scratch(v.number, sizeof(float))))
        goto done;
    RUN_SUMS(overflows,
             kernels->trimmed_mean(v.items, v.number, (int)cut, v.length, scratch, &to));
    result = PyBool_FromLong(overflows);
done:
    free(scratch);
    drop_vectors(&v);
    return result;
}

PyDoc_STRVAR(random_mask_doc,
             "random_mask(key, first, block, whole, fraction, out): out, uint8, 1 where a random "
             "byte is below whole, or equal and 64 more bits below fraction; first is the number of "
             "the first block");

static PyObject *random_mask(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *key, *first, *given_block, *given_whole, *given_fraction, *out, *result = NULL;
    int64_t block, whole;
    uint64_t fraction;
    Seed seed;
    Array mask = {0};
    if (!PyArg_ParseTuple(args, "OOOOOO:random_mask", &key, &first, &given_block, &given_whole,
                          &given_fraction, &out))
        return NULL;
    if (!take_seed(key, first, &seed) || !take_block(given_block, &block) ||
        !take_integer(given_whole, "whole", 0, 255, &whole) ||
        !take_uint64(given_fraction, "fraction", &fraction) ||
        !take_array(out, "out", "B", 1, 1, ANY_LENGTH, &mask))
        goto done;
    Py_BEGIN_ALLOW_THREADS;
    uint8_t *to = mask.view.buf;
    for (int64_t start = 0; start < mask.view.len; start += block, seed.block++) {
        kernels->random_mask(&seed, (uint8_t)whole, fraction,
                             elements_of(start, block, mask.view.len), to + start);
    }
    Py_END_ALLOW_THREADS;
    result = Py_NewRef(Py_None);
done:
    drop_array(&mask);
    return result;
}

PyDoc_STRVAR(rank_mask_doc,
             "rank_mask(vector, key, first, block, row, stride, density, reach, out): out, uint8, 1 "
             "for elements drawn with probabilities that grow with their ranks in their rows");

static PyObject *rank_mask(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *vector, *key, *first, *given_block, *given_row, *given_stride, *out, *result = NULL;
    double density, reach;
    int64_t block, row, stride;
    Seed seed;
    Array mask = {0};
    if (!PyArg_ParseTuple(args, "OOOOOOO&O&O:rank_mask", &vector, &key, &first, &given_block,
                          &given_row, &given_stride, take_double, &density, take_double, &reach,
                          &out))
        return NULL;
    const VectorObject *v = take_vector(vector, "vector");
    if (!v || !take_seed(key, first, &seed) || !take_block(given_block, &block) ||
        !take_integer(given_row, "row", 1, INT32_MAX, &row) ||
        !take_integer(given_stride, "stride", 1, INT32_MAX, &stride) ||
        !take_array(out, "out", "B", 1, 1, v->length, &mask))
        goto done;
    if (block % (row * stride) || v->length % (row * stride)) {
        PyErr_Format(PyExc_ValueError, "vector, block: expected whole rows, of %lld elements",
                     (long long)(row * stride));
        goto done;
    }
    double spread = row > 1 ? fabs(reach) : 0.0;
    if (!(density - spread >= 0.0 && density + spread < 1.0)) {
        PyErr_SetString(PyExc_ValueError, "density, reach: expected probabilities in [0, 1)");
        goto done;
    }
    Vector whole = vector_of(v);
    int failed = 0;
    Py_BEGIN_ALLOW_THREADS;
    uint8_t *to = mask.view.buf;
    for (int64_t start = 0; start < v->length && !failed; start += block, seed.block++) {
        Vector x = from(&whole, start);
        failed = kernels->rank_mask(&x, &seed, elements_of(start, block, v->length), row, stride,
                                    density, reach, to + start);
    }
    Py_END_ALLOW_THREADS;
    result = none_if_memory(failed);
done:
    drop_array(&mask);
    return result;
}

PyDoc_STRVAR(gram_doc,
             "gram(vectors, row, out): out, float64 (rows, n, n), the dot products of every two "
             "vectors, for each row of elements; the last row may be shorter");

static PyObject *gram(PyObject *self, PyObject *args) {
    (void)self;
    int overflows;
    PyObject *vectors, *given_row, *out, *result = NULL;
    int64_t row;
    int failed;
    Vectors v = {0};
    Array to = {0};
    if (!PyArg_ParseTuple(args, "OOO:gram", &vectors, &given_row, &out)) return NULL;
    if (!take_vectors(vectors, "vectors", &v) ||
        !take_integer(given_row, "row", 1, INT64_MAX / 2, &row) ||
        !take_products(out, &v, blocks_of(v.length, row), &to))
        goto done;
    RUN_SUMS(overflows, failed = kernels->gram(v.items, v.number, row, v.length, to.view.buf));
    result = failed < 0 ? PyErr_NoMemory() : PyBool_FromLong(overflows);
done:
    drop_array(&to);
    drop_vectors(&v);
    return result;
}

PyDoc_STRVAR(column_gram_doc,
             "column_gram(vectors, row, block, out): out, float64 (blocks, n, n, row), the dot "
             "products of every two vectors' columns, for each block of whole rows");

static PyObject *column_gram(PyObject *self, PyObject *args) {
    (void)self;
    int overflows;
    PyObject *vectors, *given_row, *given_block, *out, *result = NULL;
    int64_t row, block;
    Vectors v = {0};
    Array to = {0};
    double *wide = NULL;
    if (!PyArg_ParseTuple(args, "OOOO:column_gram", &vectors, &given_row, &given_block, &out))
        return NULL;
    if (!take_vectors(vectors, "vectors", &v) ||
        !take_integer(given_row, "row", 1, INT64_MAX / 2, &row) || !take_block(given_block, &block))
        goto done;
    if (block % row || v.length % row) {
        PyErr_Format(PyExc_ValueError, "vectors, block: expected whole rows, of %lld elements",
                     (long long)row);
        goto done;
    }
    if (!take_products(out, &v, blocks_of(v.length, block) * row, &to) ||
        !(wide = take_scratch(v.number, sizeof(double))))
        goto done;
    BEGIN_SUMS;
    double *found = to.view.buf;
    for (int64_t start = 0; start < v.length; start += block) {
        int64_t count = elements_of(start, block, v.length);
        kernels->column_gram(v.items, v.number, count / row, row, wide, found);
        advance(&v, count);
        found += (int64_t)v.number * v.number * row;
    }
    END_SUMS(overflows);
    result = PyBool_FromLong(overflows);
done:
    free(wide);
    drop_array(&to);
    drop_vectors(&v);
    return result;
}

PyDoc_STRVAR(keys_doc, "keys(vector, ordered, out): out, uint32, in the order of the magnitudes, or "
                       "of the numbers");

static PyObject *keys(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *vector, *out, *result = NULL;
    int ordered;
    Array to = {0};
    if (!PyArg_ParseTuple(args, "OpO:keys", &vector, &ordered, &out)) return NULL;
    const VectorObject *v = take_vector(vector, "vector");
    if (!v || !take_array(out, "out", "IL", 4, 1, v->length, &to)) goto done;
    Vector x = vector_of(v);
    RUN(kernels->keys(&x, v->length, ordered, to.view.buf));
    result = Py_NewRef(Py_None);
done:
    drop_array(&to);
    return result;
}

PyDoc_STRVAR(keys_in_bracket_doc,
             "keys_in_bracket(vector, ordered, low, high, block): (above, keys, counts, ends): the "
             "number of keys above the bracket low..high; the different keys inside of each block, "
             "ascending, one block after the other, and how many elements have each, as bytes of "
             "uint32; and for each block how many of these keys come before its end");

static PyObject *keys_in_bracket(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *vector, *given_low, *given_high, *given_block, *result = NULL, *ends = NULL;
    int ordered;
    uint32_t low, high;
    int64_t block;
    if (!PyArg_ParseTuple(args, "OpOOO:keys_in_bracket", &vector, &ordered, &given_low, &given_high,
                          &given_block))
        return NULL;
    const VectorObject *v = take_vector(vector, "vector");
    if (!v || !take_uint32(given_low, "low", &low) || !take_uint32(given_high, "high", &high) ||
        !take_block(given_block, &block))
        return NULL;
    if (low > high) {
        PyErr_SetString(PyExc_ValueError, "low, high: expected low <= high");
        return NULL;
    }
    Vector whole = vector_of(v);
    int64_t blocks = v->length / block + (v->length % block != 0), above = 0, different = 0;
    uint32_t *found = malloc(sizeof(uint32_t) * 2 * (size_t)(v->length ? v->length : 1));
    int64_t *before = malloc(sizeof(int64_t) * (size_t)(blocks ? blocks : 1));
    if (!found || !before) {
        PyErr_NoMemory();
        goto done;
    }
    uint32_t *counts = found + v->length;
    int64_t here = 0;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t k = 0; k < blocks && here >= 0; k++) {
        int64_t larger = 0;
        Vector x = from(&whole, k * block);
        here = kernels->keys_in_bracket(&x, elements_of(k * block, block, v->length), ordered, low,
                                        high, &larger, found + different, counts + different);
        above += larger;
        different += here;
        before[k] = different;
    }
    Py_END_ALLOW_THREADS;
    if (here < 0) {
        PyErr_NoMemory();
        goto done;
    }
    if (!(ends = PyList_New((Py_ssize_t)blocks))) goto done;
    for (int64_t k = 0; k < blocks; k++) {
        PyObject *end = PyLong_FromLongLong((long long)before[k]);
        if (!end || PyList_SetItem(ends, (Py_ssize_t)k, end) < 0) goto done;
    }
    Py_ssize_t size = (Py_ssize_t)different * (Py_ssize_t)sizeof(uint32_t);
    result = Py_BuildValue("Ly#y#O", (long long)above, (char *)found, size, (char *)counts, size,
                           ends);
done:
    Py_XDECREF(ends);
    free(before);
    free(found);
    return result;
}

PyDoc_STRVAR(key_of_rank_doc,
             "key_of_rank(keys, counts, rank): (key, rank among equal ones) of the rank-th largest of "
             "so many elements of each key, uint32; None where there are fewer, or rank < 1");

static PyObject *key_of_rank(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *given_keys, *given_counts, *given_rank, *result = NULL;
    Array keys = {0}, counts = {0};
    int64_t rank, among;
    uint32_t key;
    if (!PyArg_ParseTuple(args, "OOO:key_of_rank", &given_keys, &given_counts, &given_rank))
        return NULL;
    if (!take_integer(given_rank, "rank", INT64_MIN, INT64_MAX, &rank) ||
        !take_array(given_keys, "keys", "IL", 4, 0, ANY_LENGTH, &keys) ||
        !take_array(given_counts, "counts", "IL", 4, 0, keys.view.len / 4, &counts))
        goto done;
    int found;
    RUN(found = kernels->key_of_rank(keys.view.buf, counts.view.buf, keys.view.len / 4, rank, &key,
                                     &among));
    result = found ? Py_BuildValue("IL", (unsigned int)key, (long long)among) : Py_NewRef(Py_None);
done:
    drop_array(&counts);
    drop_array(&keys);
    return result;
}

PyDoc_STRVAR(equal_counts_doc,
             "equal_counts(vector, ordered, key, block): how many elements of each block have a key");

static PyObject *equal_counts(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *vector, *given_key, *given_block;
    int ordered;
    uint32_t key;
    int64_t block;
    if (!PyArg_ParseTuple(args, "OpOO:equal_counts", &vector, &ordered, &given_key, &given_block))
        return NULL;
    const VectorObject *v = take_vector(vector, "vector");
    if (!v || !take_uint32(given_key, "key", &key) || !take_block(given_block, &block)) return NULL;
    Vector whole = vector_of(v);
    PyObject *result = PyList_New(0);
    for (int64_t start = 0; result && start < v->length; start += block) {
        Vector x = from(&whole, start);
        int64_t count = elements_of(start, block, v->length), equal;
        RUN(equal = kernels->equal_count(&x, count, ordered, key));
        PyObject *one = PyLong_FromLongLong(equal);
        if (!one || PyList_Append(result, one) < 0) Py_CLEAR(result);
        Py_XDECREF(one);
    }
    return result;
}

PyDoc_STRVAR(mask_above_doc,
             "mask_above(vector, ordered, threshold, quota, out): out, uint8, 1 where a key is above "
             "the threshold, and for the first `quota` that are equal to it");

static PyObject *mask_above(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *vector, *given_threshold, *given_quota, *out, *result = NULL;
    int ordered;
    uint32_t threshold;
    int64_t quota;
    Array mask = {0};
    if (!PyArg_ParseTuple(args, "OpOOO:mask_above", &vector, &ordered, &given_threshold,
                          &given_quota, &out))
        return NULL;
    const VectorObject *v = take_vector(vector, "vector");
    if (!v || !take_uint32(given_threshold, "threshold", &threshold) ||
        !take_integer(given_quota, "quota", 0, INT64_MAX, &quota) ||
        !take_array(out, "out", "B", 1, 1, v->length, &mask))
        goto done;
    Vector x = vector_of(v);
    RUN(kernels->mask_above(&x, v->length, ordered, threshold, quota, mask.view.buf));
    result = Py_NewRef(Py_None);
done:
    drop_array(&mask);
    return result;
}

/* For each vector what it keeps: a mask, a threshold with its quota, or everything. */
typedef struct {
    int number;
    Array *arrays;
    const uint8_t **masks;
    uint32_t *thresholds;
    int64_t *quotas;
} Kept;

static void drop_kept(Kept *kept) {
    for (int k = 0; kept->arrays && k < kept->number; k++) drop_array(&kept->arrays[k]);
    free(kept->arrays);
    free(kept->masks);
    free(kept->thresholds);
    free(kept->quotas);
}

static int take_kept_one(PyObject *given, int64_t length, Kept *kept, int k) {
    kept->quotas[k] = -1;
    if (!PyTuple_Check(given)) {
        if (!take_mask(given, length, &kept->arrays[k])) return 0;
        kept->masks[k] = mask_of(&kept->arrays[k]);
        return 1;
    }
    if (PyTuple_Size(given) != 2) {
        PyErr_SetString(PyExc_ValueError, "masks: expected (threshold, quota)");
        return 0;
    }
    return take_uint32(PyTuple_GetItem(given, 0), "threshold", &kept->thresholds[k]) &&
           take_integer(PyTuple_GetItem(given, 1), "quota", 0, INT64_MAX, &kept->quotas[k]);
}

static int take_kept(PyObject *given, int number, int64_t length, Kept *kept) {
    PyObject *objects = PySequence_Tuple(given);
    if (!objects) return 0;
    int fits = check_length(PyTuple_Size(objects), "masks", number);
    if (fits) {
        size_t n = (size_t)number;
        kept->number = number;
        kept->arrays = calloc(n, sizeof *kept->arrays);
        kept->masks = calloc(n, sizeof *kept->masks);
        kept->thresholds = calloc(n, sizeof *kept->thresholds);
        kept->quotas = calloc(n, sizeof *kept->quotas);
        fits = kept->arrays && kept->masks && kept->thresholds && kept->quotas;
        if (!fits) PyErr_NoMemory();
    }
    for (int k = 0; fits && k < number; k++)
        fits = take_kept_one(PyTuple_GetItem(objects, k), length, kept, k);
    Py_DECREF(objects);
    return fits;
}

PyDoc_STRVAR(add_task_vectors_doc,
             "add_task_vectors(base, vectors, masks, factors, divisor_weights, elect_signs, "
             "normalize, scale, out): out = base + scale * sum(a_i * f_i * m_i * d_i); a mask is uint8, "
             "(threshold, quota), or None");

static PyObject *add_task_vectors(PyObject *self, PyObject *args) {
    (void)self;
    int overflows;
    PyObject *given_base, *vectors, *masks, *factors, *divisor_weights, *out, *result = NULL;
    int elect_signs, normalize, failed;
    double scale;
    Vector base;
    Vectors v = {0};
    Kept kept = {0};
    float *f = NULL, *w = NULL;
    Output to;
    if (!PyArg_ParseTuple(args, "OOOOOppO&O:add_task_vectors", &given_base, &vectors, &masks,
                          &factors, &divisor_weights, &elect_signs, &normalize, take_double,
                          &scale, &out))
        return NULL;
    if (!take_differences(given_base, vectors, 1, &base, &v) ||
        !take_kept(masks, v.number, v.length, &kept) ||
        !(f = take_floats(factors, "factors", v.number)) ||
        !(w = take_floats(divisor_weights, "divisor_weights", v.number)) ||
        !take_output(out, v.length, &to))
        goto done;
    int flags = (elect_signs ? ELECT_SIGNS : 0) | (normalize ? NORMALIZE : 0);
    RUN_SUMS(overflows, failed = kernels->add_task_vectors(
                            &base, v.items, kept.masks, kept.thresholds, kept.quotas, f, w,
                            v.number, flags, (float)scale, v.length, &to));
    result = failed < 0 ? PyErr_NoMemory() : PyBool_FromLong(overflows);
done:
    free(w);
    free(f);
    drop_kept(&kept);
    drop_vectors(&v);
    return result;
}

PyDoc_STRVAR(add_voted_sum_doc,
             "add_voted_sum(base, vectors, weights, thresholds, least, scale, out): "
             "out = base + scale * sum(w_i * d_i) where at least `least` vectors vote");

static PyObject *add_voted_sum(PyObject *self, PyObject *args) {
    (void)self;
    int overflows;
    PyObject *given_base, *vectors, *weights, *thresholds, *given_least, *out, *result = NULL;
    double scale;
    int64_t least;
    Vector base;
    Vectors v = {0};
    float *w = NULL, *t = NULL, *scratch = NULL;
    Output to;
    if (!PyArg_ParseTuple(args, "OOOOOO&O:add_voted_sum", &given_base, &vectors, &weights,
                          &thresholds, &given_least, take_double, &scale, &out))
        return NULL;
    if (!take_differences(given_base, vectors, 0, &base, &v) ||
        !(w = take_floats(weights, "weights", v.number)) ||
        !(t = take_floats(thresholds, "thresholds", v.number)) ||
        !take_integer(given_least, "least", 0, INT32_MAX, &least) ||
        !take_output(out, v.length, &to) || !(scratch = take_scratch(v.number, sizeof(float))))
        goto done;
    RUN_SUMS(overflows, kernels->add_voted_sum(&base, v.items, w, t, v.number, (int)least,
                                               (float)scale, v.length, scratch, &to));
    result = PyBool_FromLong(overflows);
done:
    free(scratch);
    free(t);
    free(w);
    drop_vectors(&v);
    return result;
}

/* Room for the hashes of a buffer's blocks, as bytes; empty where a block is too short. */
static PyObject *make_hashes(const Py_buffer *view, int64_t block, Hashes *to) {
    int64_t count = blocks_of(view->len, block), last = view->len - (count - 1) * block;
    int hashed = count && last >= SHORTEST_HASHED;
    PyObject *found = PyBytes_FromStringAndSize(NULL, hashed ? count * HASH_BYTES : 0);
    if (!found || !hashed) return found;
    to->hash = kernels->hash;
    to->block = block;
    to->to = (uint8_t *)PyBytes_AsString(found);
    return found;
}

PyDoc_STRVAR(hash_blocks_doc,
             "hash_blocks(data, block): xxh3-128 of each block of so many bytes, one after the "
             "other; nothing where one is shorter than 241 bytes");

static PyObject *hash_blocks(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *data, *given_block, *result = NULL;
    int64_t block;
    Array from = {0};
    Hashes to = {0};
    if (!PyArg_ParseTuple(args, "OO:hash_blocks", &data, &given_block)) return NULL;
    if (!take_array(data, "data", "B", 1, 0, ANY_LENGTH, &from) ||
        !take_block(given_block, &block) || !(result = make_hashes(&from.view, block, &to)))
        goto done;
    const uint8_t *bytes = from.view.buf;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t start = 0; to.block && start < from.view.len; start += block, to.to += HASH_BYTES)
        to.hash(bytes + start, elements_of(start, block, from.view.len), to.to);
    Py_END_ALLOW_THREADS;
done:
    drop_array(&from);
    return result;
}

PyDoc_STRVAR(read_ranges_doc,
             "read_ranges(ranges): read (descriptor, offset in bytes, array, block) each; for each "
             "the hashes of its blocks as of hash_blocks, nothing where block is 0; None if a "
             "range could not be read, or a file was too short");

static PyObject *read_ranges(PyObject *self, PyObject *given) {
    (void)self;
    PyObject *objects = PySequence_Tuple(given), *found = NULL, *result = NULL;
    if (!objects) return NULL;
    Py_ssize_t number = PyTuple_Size(objects);
    Range *ranges = calloc((size_t)number + 1, sizeof *ranges);
    Py_buffer *views = calloc((size_t)number + 1, sizeof *views);
    Py_ssize_t taken = 0;
    int whole;
    if (!ranges || !views) {
        PyErr_NoMemory();
        goto done;
    }
    if (!(found = PyTuple_New(number))) goto done;
    while (taken < number) {
        PyObject *one = PyTuple_GetItem(objects, taken), *hashes;
        int64_t file, block;
        Range *range = &ranges[taken];
        Py_buffer *view = &views[taken];
        if (!PyTuple_Check(one) || PyTuple_Size(one) != 4) {
            PyErr_SetString(PyExc_TypeError, "ranges: expected (descriptor, offset, array, block)");
            goto done;
        }
        if (!take_integer(PyTuple_GetItem(one, 0), "descriptor", 0, INT32_MAX, &file) ||
            !take_integer(PyTuple_GetItem(one, 1), "offset", 0, INT64_MAX, &range->offset) ||
            !take_integer(PyTuple_GetItem(one, 3), "block", 0, INT64_MAX / 8, &block) ||
            !take_buffer(PyTuple_GetItem(one, 2), "array", view))
            goto done;
        taken++;
        range->file = (int)file;
        range->to = view->buf;
        range->size = view->len;
        if (!check_format(view, "array", "BbHhIiLlQqefd", view->itemsize) ||
            !check_writable(view, "array"))
            goto done;
        if (range->size > INT64_MAX - range->offset) {
            PyErr_SetString(PyExc_ValueError, "ranges: too far");
            goto done;
        }
        hashes = block ? make_hashes(view, block, &range->hashes)
                       : PyBytes_FromStringAndSize(NULL, 0);
        if (!hashes) goto done;
        PyTuple_SetItem(found, taken - 1, hashes);
    }
    RUN(whole = read_ranges_unchecked(ranges, number));
    result = Py_NewRef(whole ? found : Py_None);
done:
    while (taken) PyBuffer_Release(&views[--taken]);
    free(views);
    free(ranges);
    Py_XDECREF(found);
    Py_DECREF(objects);
    return result;
}

static const struct {
    const char *name;
    const Kernels *kernels;
} sets[] = {
    {"baseline", &resumerge_baseline},
#if defined(__x86_64__) && defined(__GNUC__)
    {"avx2", &resumerge_avx2},
    {"avx512", &resumerge_avx512},
#endif
};

/* How many of the sets this processor can run. */
static int usable_sets(void) {
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2")) return 1;
    int wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return wide ? 3 : 2;
#else
    return 1;
#endif
}

PyDoc_STRVAR(instruction_sets_doc,
             "instruction_sets(): those that this processor can run, the fastest last");

static PyObject *instruction_sets(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    int number = usable_sets();
    PyObject *found = PyTuple_New(number);
    for (int k = 0; found && k < number; k++) {
        PyObject *name = PyUnicode_FromString(sets[k].name);
        if (!name) Py_CLEAR(found);
        else PyTuple_SetItem(found, k, name);
    }
    return found;
}

PyDoc_STRVAR(decode_doc,
             "decode(codes, table, out): out = the numbers of each byte, of which table has one or two");

static PyObject *decode(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *given_codes, *given_table, *given_out, *result = NULL;
    Array codes = {0}, table = {0}, out = {0};
    if (!PyArg_ParseTuple(args, "OOO:decode", &given_codes, &given_table, &given_out)) return NULL;
    if (!take_array(given_codes, "codes", "B", 1, 0, ANY_LENGTH, &codes) ||
        !take_array(given_table, "table", "f", 4, 0, ANY_LENGTH, &table))
        goto done;
    int64_t entries = table.view.len / 4;
    if (entries != 256 && entries != 512) {
        PyErr_SetString(PyExc_ValueError, "table: expected 256 or 512 numbers");
        goto done;
    }
    int numbers = (int)(entries / 256);
    if (!take_array(given_out, "out", "f", 4, 1, codes.view.len * numbers, &out)) goto done;
    RUN(kernels->decode(codes.view.buf, codes.view.len, table.view.buf, numbers, out.view.buf));
    result = Py_NewRef(Py_None);
done:
    drop_array(&codes);
    drop_array(&table);
    drop_array(&out);
    return result;
}

PyDoc_STRVAR(apply_grid_doc,
             "apply_grid(matrix, columns, grid, block, subtracts): rows of so many columns are cut "
             "into blocks; a number of the grid is subtracted from each, or multiplies it");

static PyObject *apply_grid(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *given_matrix, *given_columns, *given_grid, *given_block, *result = NULL;
    int subtracts;
    int64_t columns, block;
    Array matrix = {0}, grid = {0};
    if (!PyArg_ParseTuple(args, "OOOOp:apply_grid", &given_matrix, &given_columns, &given_grid,
                          &given_block, &subtracts))
        return NULL;
    if (!take_integer(given_columns, "columns", 1, INT64_MAX / 8, &columns) ||
        !take_block(given_block, &block) ||
        !take_array(given_matrix, "matrix", "f", 4, 1, ANY_LENGTH, &matrix))
        goto done;
    int64_t length = matrix.view.len / 4, rows = length / columns;
    if (rows * columns != length) {
        PyErr_SetString(PyExc_ValueError, "matrix: expected whole rows");
        goto done;
    }
    if (!take_array(given_grid, "grid", "f", 4, 0, rows * blocks_of(columns, block), &grid)) goto done;
    RUN(kernels->apply_grid(matrix.view.buf, rows, columns, grid.view.buf, block, subtracts));
    result = Py_NewRef(Py_None);
done:
    drop_array(&matrix);
    drop_array(&grid);
    return result;
}

PyDoc_STRVAR(block_maxima_doc,
             "block_maxima(matrix, columns, block, out): rows of so many columns are cut into "
             "blocks; out = the largest magnitude of each");

static PyObject *block_maxima(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *given_matrix, *given_columns, *given_block, *given_out, *result = NULL;
    int64_t columns, block;
    Array matrix = {0}, out = {0};
    if (!PyArg_ParseTuple(args, "OOOO:block_maxima", &given_matrix, &given_columns, &given_block,
                          &given_out))
        return NULL;
    if (!take_integer(given_columns, "columns", 1, INT64_MAX / 8, &columns) ||
        !take_block(given_block, &block) ||
        !take_array(given_matrix, "matrix", "f", 4, 0, ANY_LENGTH, &matrix))
        goto done;
    int64_t length = matrix.view.len / 4, rows = length / columns;
    if (rows * columns != length) {
        PyErr_SetString(PyExc_ValueError, "matrix: expected whole rows");
        goto done;
    }
    if (!take_array(given_out, "out", "f", 4, 1, rows * blocks_of(columns, block), &out)) goto done;
    RUN(kernels->block_maxima(matrix.view.buf, rows, columns, block, out.view.buf));
    result = Py_NewRef(Py_None);
done:
    drop_array(&matrix);
    drop_array(&out);
    return result;
}

PyDoc_STRVAR(quantise_doc,
             "quantise(matrix, columns, grid, block, kind, out): rows of so many columns are cut "
             "into blocks; out = the codes of each one's numbers, divided by its number of the "
             "grid; of 8 bits if kind is 0 (float8 E4M3), or two in a byte: whole numbers from -8 "
             "to 7, with 8 added, if it is 1, FP4 E2M1 if it is 2");

static PyObject *quantise(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *given_matrix, *given_columns, *given_grid, *given_block, *given_kind, *given_out;
    PyObject *result = NULL;
    int64_t columns, block, kind;
    Array matrix = {0}, grid = {0}, out = {0};
    if (!PyArg_ParseTuple(args, "OOOOOO:quantise", &given_matrix, &given_columns, &given_grid,
                          &given_block, &given_kind, &given_out))
        return NULL;
    if (!take_integer(given_columns, "columns", 1, INT64_MAX / 8, &columns) ||
        !take_block(given_block, &block) || !take_integer(given_kind, "kind", 0, 2, &kind) ||
        !take_array(given_matrix, "matrix", "f", 4, 0, ANY_LENGTH, &matrix))
        goto done;
    int64_t length = matrix.view.len / 4, rows = length / columns;
    if (rows * columns != length) {
        PyErr_SetString(PyExc_ValueError, "matrix: expected whole rows");
        goto done;
    }
    if (kind && (columns % 2 || block % 2)) {
        PyErr_SetString(PyExc_ValueError, "columns, block: expected even numbers");
        goto done;
    }
    if (!take_array(given_grid, "grid", "f", 4, 0, rows * blocks_of(columns, block), &grid) ||
        !take_array(given_out, "out", "B", 1, 1, kind ? length / 2 : length, &out))
        goto done;
    RUN(kernels->quantise(matrix.view.buf, rows, columns, grid.view.buf, block, (int)kind,
                          out.view.buf));
    result = Py_NewRef(Py_None);
done:
    drop_array(&matrix);
    drop_array(&grid);
    drop_array(&out);
    return result;
}

PyDoc_STRVAR(use_doc, "use(name): compute with an instruction set that this processor can run");

static PyObject *use(PyObject *self, PyObject *given) {
    (void)self;
    PyObject *wanted = PyUnicode_AsUTF8String(given);
    if (!wanted) return NULL;
    const char *name = PyBytes_AsString(wanted);
    int number = usable_sets(), k = 0;
    while (k < number && strcmp(sets[k].name, name) != 0) k++;
    Py_DECREF(wanted);
    if (k == number) return PyErr_Format(PyExc_ValueError, "no instruction set here: %R", given);
    kernels = sets[k].kernels;
    return Py_NewRef(Py_None);
}

#define FUNCTION(name) {#name, name, METH_VARARGS, name##_doc}

static PyMethodDef functions[] = {
    FUNCTION(measure),
    FUNCTION(distance),
    FUNCTION(add_majority_mean),
    FUNCTION(add_mean_change),
    FUNCTION(add_task_vectors),
    FUNCTION(add_voted_sum),
    FUNCTION(apply_grid),
    FUNCTION(block_maxima),
    FUNCTION(clamp_to_distance),
    FUNCTION(column_gram),
    FUNCTION(count_changes),
    FUNCTION(count_conflicts),
    FUNCTION(decode),
    FUNCTION(equal_counts),
    FUNCTION(gram),
    FUNCTION(hash_blocks),
    FUNCTION(key_of_rank),
    FUNCTION(keys),
    FUNCTION(keys_in_bracket),
    FUNCTION(l1_norms),
    FUNCTION(mask_above),
    FUNCTION(quantise),
    FUNCTION(random_mask),
    FUNCTION(rank_mask),
    FUNCTION(round_to),
    FUNCTION(sums_of_squares),
    FUNCTION(trimmed_mean),
    FUNCTION(variance),
    FUNCTION(weighted_sum),
    FUNCTION(weighted_sum_along),
    {"instruction_sets", instruction_sets, METH_NOARGS, instruction_sets_doc},
    {"read_ranges", read_ranges, METH_O, read_ranges_doc},
    {"use", use, METH_O, use_doc},
    {0},
};

static int fill(PyObject *module) {
    kernels = sets[usable_sets() - 1].kernels;
    if (!vector_type) vector_type = (PyTypeObject *)PyType_FromSpec(&vector_spec);
    return !vector_type || PyModule_AddType(module, vector_type) < 0 ||
                   PyModule_AddIntConstant(module, "F32", F32) < 0 ||
                   PyModule_AddIntConstant(module, "BF16", BF16) < 0 ||
                   PyModule_AddIntConstant(module, "F16", F16) < 0 ||
                   PyModule_AddIntConstant(module, "F64", F64) < 0 ||
                   PyModule_AddIntConstant(module, "F8_E4M3", F8_E4M3) < 0 ||
                   PyModule_AddIntConstant(module, "F8_E5M2", F8_E5M2) < 0 ||
                   PyModule_AddIntConstant(module, "MEASURED_SUMS", MEASURED_SUMS) < 0 ||
                   PyModule_AddIntConstant(module, "MEASURED_MODEL_SUMS", MEASURED_MODEL_SUMS) < 0 ||
                   PyModule_AddIntConstant(module, "CHUNK", CHUNK) < 0
               ? -1
               : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill}, {0, NULL}};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_kernels",
    .m_doc = "The compiled kernels; see resumerge.kernels.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__kernels(void) { return PyModuleDef_Init(&definition); }
