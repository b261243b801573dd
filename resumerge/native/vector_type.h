/* The type `Vector`: a view of an array's elements, or of their differences from a base. The checks
 * of its constructor hold as long as it lives: the buffer cannot be freed or resized. */
#pragma once

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "table.h"

typedef struct VectorObject {
    PyObject_HEAD
    PyObject *data;
    struct VectorObject *base;
    Py_buffer view;
    int taken;
    int dtype;
    int64_t length;
    PyObject *exact_array;
    Py_buffer exact; /* the first `measured` results of each block before they are rounded */
    int kept;
    int64_t block;
    int64_t measured;
} VectorObject;

static PyTypeObject *vector_type;

/* The formats of arrays of each element type: numbers if NumPy has the type, else bits. */
static const char *const formats[DTYPES] = {"f", "H", "H", "d", "B", "B"};

/* An integer in least..most. */
static int take_integer(PyObject *given, const char *name, int64_t least, int64_t most,
                        int64_t *to) {
    PyObject *index = PyNumber_Index(given);
    if (!index) return 0;
    int overflow;
    long long found = PyLong_AsLongLongAndOverflow(index, &overflow);
    Py_DECREF(index);
    if (!overflow && found >= least && found <= most) {
        *to = found;
        return 1;
    }
    PyErr_Format(PyExc_ValueError, "%s: expected an integer in %lld..%lld, found %R", name,
                 (long long)least, (long long)most, given);
    return 0;
}

static int check_length(int64_t found, const char *name, int64_t expected) {
    if (found == expected) return 1;
    PyErr_Format(PyExc_ValueError, "%s: expected %lld elements, found %lld", name,
                 (long long)expected, (long long)found);
    return 0;
}

static int check_writable(const Py_buffer *view, const char *name) {
    if (!view->readonly) return 1;
    PyErr_Format(PyExc_ValueError, "%s: expected memory that can be written", name);
    return 0;
}

static int take_buffer(PyObject *given, const char *name, Py_buffer *to) {
    if (!PyObject_CheckBuffer(given)) {
        PyErr_Format(PyExc_TypeError, "%s: expected an array, found %R", name,
                     (PyObject *)Py_TYPE(given));
        return 0;
    }
    if (PyObject_GetBuffer(given, to, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) == 0) return 1;
    PyErr_Format(PyExc_ValueError, "%s: expected a contiguous array", name);
    return 0;
}

/* One native format of the `struct` module, of elements that are aligned to their width. */
static int check_format(const Py_buffer *view, const char *name, const char *formats,
                        Py_ssize_t width) {
    const char *found = view->format ? view->format : "B";
    if (!found[0] || found[1] || !strchr(formats, found[0]) || view->itemsize != width) {
        PyErr_Format(PyExc_TypeError,
                     "%s: expected elements of %zd bytes of a format in '%s', found '%s'", name,
                     width, formats, found);
        return 0;
    }
    if (view->len && (uintptr_t)view->buf % (uintptr_t)width) {
        PyErr_Format(PyExc_ValueError, "%s: expected elements that are aligned to %zd bytes", name,
                     width);
        return 0;
    }
    return 1;
}

static const VectorObject *take_vector(PyObject *given, const char *name) {
    if (PyObject_TypeCheck(given, vector_type)) return (const VectorObject *)given;
    PyErr_Format(PyExc_TypeError, "%s: expected a Vector, found %R", name,
                 (PyObject *)Py_TYPE(given));
    return NULL;
}

static int check_plain(const VectorObject *vector, const char *name) {
    if (!vector->base) return 1;
    PyErr_Format(PyExc_ValueError, "%s: expected a vector without a base", name);
    return 0;
}

static Vector vector_of(const VectorObject *vector) {
    Vector found = {.data = vector->view.buf, .dtype = vector->dtype};
    if (vector->base) {
        found.base = vector->base->view.buf;
        found.base_dtype = vector->base->dtype;
    }
    return found;
}

static PyObject *vector_make(PyTypeObject *type, PyObject *data, int dtype, PyObject *given_base) {
    const VectorObject *base = NULL;
    if (given_base != Py_None) {
        base = take_vector(given_base, "base");
        if (!base || !check_plain(base, "base")) return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    VectorObject *vector = (VectorObject *)allocate(type, 0);
    if (!vector) return NULL;
    Py_ssize_t width = width_of(dtype);
    if (!take_buffer(data, "data", &vector->view)) goto failed;
    vector->taken = 1;
    if (!check_format(&vector->view, "data", formats[dtype], width)) goto failed;
    vector->dtype = dtype;
    vector->length = vector->view.len / width;
    if (base && !check_length(vector->length, "data", base->length)) goto failed;
    vector->data = Py_NewRef(data);
    if (base) vector->base = (VectorObject *)Py_NewRef(given_base);
    return (PyObject *)vector;
failed:
    Py_DECREF(vector);
    return NULL;
}

static int64_t blocks_of(int64_t length, int64_t block) {
    return length ? (length - 1) / block + 1 : 0;
}

/* Make a vector of results keep some results before they are rounded. */
static int keep(VectorObject *vector, PyObject *exact, PyObject *block, PyObject *measured) {
    if (!check_plain(vector, "a vector that keeps exact results") ||
        !take_integer(block, "block", 1, INT64_MAX / 8, &vector->block) ||
        !take_integer(measured, "measured", 1, vector->block, &vector->measured) ||
        !take_buffer(exact, "exact", &vector->exact))
        return 0;
    vector->kept = 1;
    vector->exact_array = Py_NewRef(exact);
    int64_t blocks = blocks_of(vector->length, vector->block);
    int64_t last = vector->length - (blocks ? blocks - 1 : 0) * vector->block;
    int64_t expected = (blocks ? blocks - 1 : 0) * vector->measured +
                       (last < vector->measured ? last : vector->measured);
    return check_format(&vector->exact, "exact", "f", 4) &&
           check_writable(&vector->exact, "exact") &&
           check_length(vector->exact.len / 4, "exact", expected);
}

static PyObject *vector_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"data", "dtype", "base", "exact", "block", "measured", NULL};
    PyObject *data, *given_dtype = NULL, *base = Py_None;
    PyObject *exact = Py_None, *block = Py_None, *measured = Py_None;
    int64_t dtype = F32;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OOOOO:Vector", names, &data, &given_dtype,
                                     &base, &exact, &block, &measured))
        return NULL;
    if (given_dtype && !take_integer(given_dtype, "dtype", 0, DTYPES - 1, &dtype)) return NULL;
    PyObject *vector = vector_make(type, data, (int)dtype, base);
    if (vector && exact != Py_None && !keep((VectorObject *)vector, exact, block, measured)) {
        Py_DECREF(vector);
        return NULL;
    }
    return vector;
}

static void vector_dealloc(PyObject *self) {
    VectorObject *vector = (VectorObject *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (vector->taken) PyBuffer_Release(&vector->view);
    if (vector->kept) PyBuffer_Release(&vector->exact);
    Py_XDECREF(vector->exact_array);
    Py_XDECREF(vector->data);
    Py_XDECREF((PyObject *)vector->base);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static Py_ssize_t vector_length(PyObject *self) {
    return (Py_ssize_t)((VectorObject *)self)->length;
}

static PyObject *vector_less(PyObject *self, PyObject *base) {
    VectorObject *vector = (VectorObject *)self;
    return vector_make(vector_type, vector->data, vector->dtype, base);
}

static PyObject *vector_get_data(PyObject *self, void *closure) {
    (void)closure;
    return Py_NewRef(((VectorObject *)self)->data);
}

static PyObject *vector_get_dtype(PyObject *self, void *closure) {
    (void)closure;
    return PyLong_FromLong(((VectorObject *)self)->dtype);
}

static PyObject *vector_get_base(PyObject *self, void *closure) {
    (void)closure;
    PyObject *base = (PyObject *)((VectorObject *)self)->base;
    return Py_NewRef(base ? base : Py_None);
}

static PyObject *vector_get_exact(PyObject *self, void *closure) {
    (void)closure;
    PyObject *exact = ((VectorObject *)self)->exact_array;
    return Py_NewRef(exact ? exact : Py_None);
}

static PyObject *vector_get_block(PyObject *self, void *closure) {
    (void)closure;
    return PyLong_FromLongLong(((VectorObject *)self)->block);
}

static PyObject *vector_get_measured(PyObject *self, void *closure) {
    (void)closure;
    return PyLong_FromLongLong(((VectorObject *)self)->measured);
}

static PyMethodDef vector_methods[] = {
    {"less", vector_less, METH_O, "Its difference from a base: a vector of the same array."},
    {0},
};

static PyGetSetDef vector_attributes[] = {
    {"data", vector_get_data, NULL, "The array of its elements.", NULL},
    {"dtype", vector_get_dtype, NULL, "The code of the element type.", NULL},
    {"base", vector_get_base, NULL, "The vector that is subtracted, or None.", NULL},
    {"exact", vector_get_exact, NULL, "Where results are kept before they are rounded, or None.",
     NULL},
    {"block", vector_get_block, NULL, "The elements of a block; 0 where nothing is kept.", NULL},
    {"measured", vector_get_measured, NULL, "The first elements of each block, which are kept.",
     NULL},
    {0},
};

static PyType_Slot vector_slots[] = {
    {Py_tp_doc, "A flat vector as it is stored, or its difference from a base."},
    {Py_tp_new, vector_new},
    {Py_tp_dealloc, vector_dealloc},
    {Py_tp_methods, vector_methods},
    {Py_tp_getset, vector_attributes},
    {Py_sq_length, vector_length},
    {0, NULL},
};

static PyType_Spec vector_spec = {
    .name = "resumerge.native.Vector",
    .basicsize = sizeof(VectorObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = vector_slots,
};
