/* Arguments of the module's functions, checked as they are taken. A function `take_…` returns 0 and
 * raises ValueError or TypeError if an argument does not fulfil what the kernels rely on. */
#pragma once

#include "vector_type.h"

/* More models than anyone merges; the sizes of tables of pairs are far from an overflow. */
#define MOST_VECTORS 32768

static int take_uint32(PyObject *given, const char *name, uint32_t *to) {
    int64_t found;
    if (!take_integer(given, name, 0, UINT32_MAX, &found)) return 0;
    *to = (uint32_t)found;
    return 1;
}

static int take_uint64(PyObject *given, const char *name, uint64_t *to) {
    PyObject *index = PyNumber_Index(given);
    if (!index) return 0;
    unsigned long long found = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    *to = found;
    if (found != (unsigned long long)-1 || !PyErr_Occurred()) return 1;
    PyErr_Clear();
    PyErr_Format(PyExc_ValueError, "%s: expected an integer of 64 bits, found %R", name, given);
    return 0;
}

/* For PyArg_ParseTuple, whose own "d" raises OverflowError. */
static int take_double(PyObject *given, void *to) {
    double found = PyFloat_AsDouble(given);
    *(double *)to = found;
    if (found != -1.0 || !PyErr_Occurred()) return 1;
    if (PyErr_ExceptionMatches(PyExc_OverflowError))
        PyErr_SetString(PyExc_ValueError, "expected a number within the range of float64");
    return 0;
}

/* Elements of each block: positive. */
static int take_block(PyObject *given, int64_t *to) {
    return take_integer(given, "block", 1, INT64_MAX / 8, to);
}

/* Elements of the block that begins at `start`: the last one may be shorter. */
static int64_t elements_of(int64_t start, int64_t block, int64_t length) {
    return length - start < block ? length - start : block;
}

/* An array: a C-contiguous buffer of one of the formats (of the `struct` module), in its owner's
 * memory until `drop_array`. */
typedef struct {
    Py_buffer view;
    int taken;
} Array;

#define ANY_LENGTH (-1)

static int take_array(PyObject *given, const char *name, const char *formats, Py_ssize_t width,
                      int writable, int64_t length, Array *to) {
    if (!take_buffer(given, name, &to->view)) return 0;
    to->taken = 1;
    return check_format(&to->view, name, formats, width) &&
           (!writable || check_writable(&to->view, name)) &&
           (length == ANY_LENGTH || check_length(to->view.len / width, name, length));
}

static void drop_array(Array *array) {
    if (array->taken) PyBuffer_Release(&array->view);
}

static int take_mask(PyObject *given, int64_t length, Array *to) {
    return given == Py_None || take_array(given, "mask", "B?", 1, 0, length, to);
}

static const uint8_t *mask_of(const Array *array) { return array->taken ? array->view.buf : NULL; }

/* Vectors of one length: their Python objects, which are held, and the structs that kernels read.
 * */
typedef struct {
    PyObject *objects;
    Vector *items;
    int number;
    int64_t length;
} Vectors;

static int take_at_least(int least, PyObject *given, const char *name, Vectors *to) {
    to->objects = PySequence_Tuple(given);
    if (!to->objects) return 0;
    Py_ssize_t number = PyTuple_Size(to->objects);
    if (number < least || number > MOST_VECTORS) {
        PyErr_Format(PyExc_ValueError, "%s: expected %d to %d vectors, found %zd", name, least,
                     MOST_VECTORS, number);
        return 0;
    }
    to->items = malloc(sizeof(Vector) * (size_t)(number + 1));
    if (!to->items) return PyErr_NoMemory() != NULL;
    to->number = (int)number;
    for (Py_ssize_t k = 0; k < number; k++) {
        const VectorObject *vector = take_vector(PyTuple_GetItem(to->objects, k), name);
        if (!vector) return 0;
        if (!k) to->length = vector->length;
        if (!check_length(vector->length, name, to->length)) return 0;
        to->items[k] = vector_of(vector);
    }
    return 1;
}

static int take_vectors(PyObject *given, const char *name, Vectors *to) {
    return take_at_least(1, given, name, to);
}

/* Skip the next `count` elements of each vector. */
static void advance(Vectors *vectors, int64_t count) {
    for (int k = 0; k < vectors->number; k++) vectors->items[k] = from(&vectors->items[k], count);
}

static void drop_vectors(Vectors *vectors) {
    Py_XDECREF(vectors->objects);
    free(vectors->items);
}

/* The output array for products of every two vectors, `number` of each two: float64. */
static int take_products(PyObject *given, const Vectors *vectors, int64_t number, Array *to) {
    int64_t pairs = (int64_t)vectors->number * vectors->number;
    if (number > INT64_MAX / 8 / pairs) {
        PyErr_SetString(PyExc_ValueError, "vectors: too many products");
        return 0;
    }
    return take_array(given, "out", "d", 8, 1, number * pairs, to);
}

static int same_base(const Vector *a, const Vector *b) {
    return a->base == b->base && (!a->base || a->base_dtype == b->base_dtype);
}

/* Vectors of one base, or without any. */
static int take_family(PyObject *given, const char *name, Vectors *to) {
    if (!take_vectors(given, name, to)) return 0;
    for (int k = 1; k < to->number; k++)
        if (!same_base(&to->items[0], &to->items[k])) {
            PyErr_Format(PyExc_ValueError, "%s: expected vectors of one base", name);
            return 0;
        }
    return 1;
}

/* A base, and vectors that are differences from it; with `plain`, also vectors without a base. */
static int take_differences(PyObject *given_base, PyObject *given, int plain, Vector *base,
                            Vectors *to) {
    const VectorObject *found = take_vector(given_base, "base");
    if (!found || !check_plain(found, "base") || !take_vectors(given, "vectors", to) ||
        !check_length(to->length, "vectors", found->length))
        return 0;
    *base = vector_of(found);
    Vector expected = {.base = base->data, .base_dtype = base->dtype};
    for (int k = 0; k < to->number; k++)
        if (!same_base(&to->items[k], &expected) && !(plain && !to->items[k].base)) {
            PyErr_SetString(PyExc_ValueError, "vectors: expected differences from the base");
            return 0;
        }
    return 1;
}

/* The output vector: without a base, in memory that may be written. */
static int take_output(PyObject *given, int64_t length, Output *to) {
    const VectorObject *out = take_vector(given, "out");
    if (!out || !check_plain(out, "out") || !check_writable(&out->view, "out") ||
        !check_length(out->length, "out", length))
        return 0;
    to->data = out->view.buf;
    to->dtype = out->dtype;
    to->exact = out->kept ? out->exact.buf : NULL;
    to->block = out->block;
    to->measured = out->measured;
    return 1;
}

/* Numbers, one for each vector; the caller frees them. */
static float *take_floats(PyObject *given, const char *name, int number) {
    PyObject *objects = PySequence_Tuple(given);
    if (!objects) return NULL;
    float *found = NULL;
    if (!check_length(PyTuple_Size(objects), name, number)) goto failed;
    found = malloc(sizeof(float) * (size_t)number);
    if (!found) {
        PyErr_NoMemory();
        goto failed;
    }
    for (int k = 0; k < number; k++) {
        double x;
        if (!take_double(PyTuple_GetItem(objects, k), &x)) goto failed;
        found[k] = (float)x;
    }
    Py_DECREF(objects);
    return found;
failed:
    free(found);
    Py_DECREF(objects);
    return NULL;
}

/* Scratch memory for a chunk of each vector; the caller frees it. */
static void *take_scratch(int number, size_t width) {
    void *found = malloc(width * CHUNK * (size_t)number);
    if (!found) PyErr_NoMemory();
    return found;
}

/* The seed of random bits: a key of 16 bytes, and the number of the first block. */
static int take_seed(PyObject *key, PyObject *block, Seed *to) {
    Array bytes = {0};
    int64_t number;
    int fits = take_array(key, "key", "B", 1, 0, sizeof to->key, &bytes) &&
               take_integer(block, "first", 0, INT64_MAX, &number);
    if (fits) {
        memcpy(to->key, bytes.view.buf, sizeof to->key);
        to->block = (uint64_t)number;
    }
    drop_array(&bytes);
    return fits;
}
