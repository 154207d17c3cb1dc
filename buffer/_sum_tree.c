/* Sums of non-negative values over slots, and which slot a point on the line of all values falls on.
 *
 * What remuda.buffer.sum_tree promises, compiled: the same slots and the same sums as the numpy tree, bit for bit.
 * Eight neighbours make a node, whose sum lies on the level above; they are one line of the cache, and the only memory
 * that a search reads on their level. Inside of a node sums are taken in pairs and points go by halves, as they would
 * in a binary tree. The highest level is searched by its cumulative sums.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#define CHILDREN 8
#define CHILDREN_BITS 3
#define CACHE_LINE 64
#define TOP_NODES 4096 /* a level this narrow is the highest; sum_tree.py says why */
#define MOST_LEVELS 16
#define MOST_SLOTS ((Py_ssize_t)1 << 48)

#if defined(__GNUC__)
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define PREFETCH(address) ((void)(address))
#endif

typedef struct {
    PyObject_HEAD
    Py_ssize_t capacity;
    int levels;
    double *sums[MOST_LEVELS]; /* the values; above each level, an eighth as many sums */
    Py_ssize_t top_nodes;
    double *starts; /* [top_nodes + 1]: where each node of the highest level starts on the line, and the total */
    bool starts_are_old;
    void *memory;
} SumTree;

/* --- sums ------------------------------------------------------------------------------------------------------- */

static double
sum_of_children(const double *child)
{
    return ((child[0] + child[1]) + (child[2] + child[3])) + ((child[4] + child[5]) + (child[6] + child[7]));
}

/* Recompute every sum over `slots`. Slots that follow each other share most of their nodes, which are summed once. */
static void
carry_up(SumTree *tree, const int64_t *slots, Py_ssize_t count)
{
    for (int level = 1; level < tree->levels; level++) {
        const double *below = tree->sums[level - 1];
        int64_t summed = -1;
        for (Py_ssize_t i = 0; i < count; i++) {
            int64_t node = slots[i] >> (CHILDREN_BITS * level);
            if (node != summed) {
                tree->sums[level][node] = sum_of_children(below + CHILDREN * node);
                summed = node;
            }
        }
    }
    tree->starts_are_old = true;
}

static double
total_of(SumTree *tree)
{
    if (tree->starts_are_old) {
        const double *top = tree->sums[tree->levels - 1];
        for (Py_ssize_t node = 0; node < tree->top_nodes; node++) {
            tree->starts[node + 1] = tree->starts[node] + top[node];
        }
        tree->starts_are_old = false;
    }
    return tree->starts[tree->top_nodes];
}

/* --- search ----------------------------------------------------------------------------------------------------- */

/* Lead each point to the last node of the highest level that starts at or before it, by bisection: all points a step
 * before the next, as the steps of one point have to wait for each other. */
static void
find_top(const SumTree *tree, int64_t *nodes, const double *points, Py_ssize_t count)
{
    memset(nodes, 0, count * sizeof(*nodes));
    Py_ssize_t half;
    for (Py_ssize_t left = tree->top_nodes; left > 1; left -= half) {
        half = left / 2;
        for (Py_ssize_t i = 0; i < count; i++) {
            nodes[i] += half * (tree->starts[nodes[i] + half] <= points[i]);
        }
    }
}

/* Whether `point` lies right of the `left` sum; if so it is counted from there on. No branch: it is a coin toss. */
static int
goes_right(double *point, double left)
{
    int right = *point >= left;
    *point -= right * left;
    return right;
}

/* Lead each point from its node on the level above to one of the node's children on `level`. */
static void
descend(SumTree *tree, int level, int64_t *nodes, double *points, Py_ssize_t count)
{
    const double *sums = tree->sums[level], *below = tree->sums[level ? level - 1 : 0];
    for (Py_ssize_t i = 0; i < count; i++) {
        const double *child = sums + CHILDREN * nodes[i];
        double point = points[i];
        child += 4 * goes_right(&point, (child[0] + child[1]) + (child[2] + child[3]));
        child += 2 * goes_right(&point, child[0] + child[1]);
        child += goes_right(&point, child[0]);
        nodes[i] = child - sums;
        points[i] = point;
        if (level > 0) { /* all points are led down a level before the next: that is when the memory is there */
            PREFETCH(below + CHILDREN * nodes[i]);
        }
    }
}

/* Write to `slots` where each of the `points` falls, and in place of the points the values of these slots. */
static void
find(SumTree *tree, double *points, int64_t *slots, Py_ssize_t count)
{
    const double *values = tree->sums[0];
    double end = nextafter(total_of(tree), 0.0);
    for (Py_ssize_t i = 0; i < count; i++) {
        points[i] = points[i] < end ? points[i] : end;
    }
    find_top(tree, slots, points, count);
    for (Py_ssize_t i = 0; i < count; i++) {
        points[i] -= tree->starts[slots[i]];
    }
    for (int level = tree->levels - 2; level >= 0; level--) {
        descend(tree, level, slots, points, count);
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        while (slots[i] > 0 && !(values[slots[i]] > 0.0)) {
            slots[i]--; /* rounding has carried the point over the end of a node: back to the last slot with a value */
        }
        points[i] = values[slots[i]];
    }
}

/* Cut the line into as many `parts` as a row of `shares` is long; in place of each share of a part, write its point. */
static void
spread(SumTree *tree, double *shares, Py_ssize_t count, Py_ssize_t parts)
{
    double width = total_of(tree) / (double)parts;
    for (Py_ssize_t row = 0; row < count; row += parts) {
        for (Py_ssize_t part = 0; part < parts; part++) {
            shares[row + part] = ((double)part + shares[row + part]) * width;
        }
    }
}

/* --- what Python hands over and gets back ----------------------------------------------------------------------- */

/* Look at the memory of a contiguous array of 8-byte numbers whose type is one of `formats`. */
static bool
view_array(PyObject *array, const char *formats, Py_buffer *view)
{
    if (PyObject_GetBuffer(array, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
        return false;
    }
    if (view->itemsize == 8 && strlen(view->format) == 1 && strchr(formats, view->format[0])) {
        return true;
    }
    PyErr_Format(PyExc_TypeError, "an array of type '%s' instead of one of '%s'", view->format, formats);
    PyBuffer_Release(view);
    return false;
}

static bool
view_slots(SumTree *tree, PyObject *array, Py_buffer *view)
{
    if (!view_array(array, "lq", view)) {
        return false;
    }
    const int64_t *slots = view->buf;
    for (Py_ssize_t i = 0; i < view->len / 8; i++) {
        if (slots[i] < 0 || slots[i] >= tree->capacity) {
            PyErr_Format(PyExc_IndexError, "slot %lld of a sum tree of %zd", (long long)slots[i], tree->capacity);
            PyBuffer_Release(view);
            return false;
        }
    }
    return true;
}

/* Numbers from 0 to below `end`; a comparison with nan is false. */
static bool
view_numbers(PyObject *array, double end, const char *demand, Py_buffer *view)
{
    if (!view_array(array, "d", view)) {
        return false;
    }
    const double *numbers = view->buf;
    for (Py_ssize_t i = 0; i < view->len / 8; i++) {
        if (!(numbers[i] >= 0.0 && numbers[i] <= end)) {
            PyErr_SetString(PyExc_ValueError, demand);
            PyBuffer_Release(view);
            return false;
        }
    }
    return true;
}

static PyObject *
tree_set(SumTree *self, PyObject *args)
{
    PyObject *slots_array, *values_array;
    Py_buffer slots_view, values_view;
    if (!PyArg_ParseTuple(args, "OO:set", &slots_array, &values_array)
        || !view_slots(self, slots_array, &slots_view)) {
        return NULL;
    }
    if (!view_numbers(values_array, DBL_MAX, "values must be finite and not negative", &values_view)) {
        PyBuffer_Release(&slots_view);
        return NULL;
    }
    const int64_t *slots = slots_view.buf;
    const double *values = values_view.buf;
    Py_ssize_t count = slots_view.len / 8, given = values_view.len / 8;
    bool fits = given == count || given == 1;
    if (fits) {
        for (Py_ssize_t i = 0; i < count; i++) {
            self->sums[0][slots[i]] = values[given == 1 ? 0 : i];
        }
        carry_up(self, slots, count);
    }
    else {
        PyErr_Format(PyExc_ValueError, "%zd values for %zd slots", given, count);
    }
    PyBuffer_Release(&values_view);
    PyBuffer_Release(&slots_view);
    return fits ? Py_NewRef(Py_None) : NULL;
}

static PyObject *
tree_get(SumTree *self, PyObject *slots_array)
{
    Py_buffer slots_view;
    if (!view_slots(self, slots_array, &slots_view)) {
        return NULL;
    }
    PyObject *result = PyByteArray_FromStringAndSize(NULL, slots_view.len);
    if (result != NULL) {
        const int64_t *slots = slots_view.buf;
        double *values = (double *)PyByteArray_AS_STRING(result);
        for (Py_ssize_t i = 0; i < slots_view.len / 8; i++) {
            values[i] = self->sums[0][slots[i]];
        }
    }
    PyBuffer_Release(&slots_view);
    return result;
}

/* Look for points, or for shares of the parts that the line is cut into; the values are then shares of the total. */
static PyObject *
search(SumTree *self, PyObject *array, bool in_parts)
{
    Py_buffer view;
    if (!(total_of(self) > 0.0 && isfinite(total_of(self)))) {
        PyErr_SetString(PyExc_ValueError, "a sum tree whose sum is 0 or infinite cannot be searched");
        return NULL;
    }
    if (!view_numbers(array, INFINITY, "points must not be negative", &view)) {
        return NULL;
    }
    PyObject *slots = PyByteArray_FromStringAndSize(NULL, view.len);
    PyObject *values = PyByteArray_FromStringAndSize(view.buf, view.len);
    PyObject *result = slots && values ? PyTuple_Pack(2, slots, values) : NULL;
    if (result != NULL) {
        double *points = (double *)PyByteArray_AS_STRING(values);
        Py_ssize_t count = view.len / 8;
        if (in_parts) {
            spread(self, points, count, view.ndim ? view.shape[view.ndim - 1] : 1);
        }
        find(self, points, (int64_t *)PyByteArray_AS_STRING(slots), count);
        for (Py_ssize_t i = 0; in_parts && i < count; i++) {
            points[i] /= total_of(self);
        }
    }
    Py_XDECREF(slots);
    Py_XDECREF(values);
    PyBuffer_Release(&view);
    return result;
}

static PyObject *
tree_find(SumTree *self, PyObject *points)
{
    return search(self, points, false);
}

static PyObject *
tree_draw(SumTree *self, PyObject *shares)
{
    return search(self, shares, true);
}

static PyObject *
tree_total(SumTree *self, void *Py_UNUSED(closure))
{
    return PyFloat_FromDouble(total_of(self));
}

/* --- the type --------------------------------------------------------------------------------------------------- */

/* Ask for large pages: slots are looked at all over the memory, and finding a small page takes as long as reading it. */
static void
prefer_large_pages(void *memory, size_t bytes)
{
#if defined(MADV_HUGEPAGE)
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = ((uintptr_t)memory + page - 1) / page * page;
    if (start < (uintptr_t)memory + bytes) {
        (void)madvise((void *)start, (uintptr_t)memory + bytes - start, MADV_HUGEPAGE); /* a wish: it may fail */
    }
#else
    (void)memory, (void)bytes;
#endif
}

/* Take memory for all levels, each of them on lines of its own, and divide it among them. */
static bool
allocate(SumTree *tree)
{
    Py_ssize_t width = 1, numbers = 0;
    while (width < tree->capacity) {
        width *= 2;
    }
    tree->top_nodes = width;
    for (tree->levels = 1; tree->top_nodes > TOP_NODES; tree->levels++) {
        numbers += tree->top_nodes;
        tree->top_nodes /= CHILDREN;
    }
    numbers += 2 * tree->top_nodes + 1 + CACHE_LINE / sizeof(double);
    tree->memory = PyMem_RawCalloc(numbers, sizeof(double));
    if (tree->memory == NULL) {
        PyErr_NoMemory();
        return false;
    }
    prefer_large_pages(tree->memory, numbers * sizeof(double));
    double *next = (double *)(((uintptr_t)tree->memory + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    for (int level = 0; level < tree->levels; level++) {
        tree->sums[level] = next;
        next += width;
        width /= CHILDREN;
    }
    tree->starts = next;
    return true;
}

static PyObject *
tree_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords))
{
    Py_ssize_t capacity;
    if (!PyArg_ParseTuple(args, "n:SumTree", &capacity)) {
        return NULL;
    }
    if (capacity < 1) {
        return PyErr_Format(PyExc_ValueError, "a sum tree needs at least one slot, not %zd", capacity);
    }
    if (capacity > MOST_SLOTS) {
        return PyErr_NoMemory();
    }
    SumTree *self = (SumTree *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->capacity = capacity;
        if (!allocate(self)) {
            Py_CLEAR(self);
        }
    }
    return (PyObject *)self;
}

static void
tree_dealloc(SumTree *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyMem_RawFree(self->memory);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef tree_methods[] = {
    {"set", (PyCFunction)tree_set, METH_VARARGS, "set(slots, values): give each slot its value, or all of them one."},
    {"get", (PyCFunction)tree_get, METH_O, "get(slots): the bytes of their values."},
    {"find", (PyCFunction)tree_find, METH_O, "find(points): the bytes of the slots they fall on, and of their values."},
    {"draw", (PyCFunction)tree_draw, METH_O,
     "draw(shares): the bytes of the slots at these shares of equal parts, and of their shares of the total."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef tree_getters[] = {
    {"total", (getter)tree_total, NULL, "The sum of all values.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot tree_slots[] = {
    {Py_tp_doc, "SumTree(capacity): see remuda.buffer.sum_tree."},
    {Py_tp_new, tree_new},
    {Py_tp_dealloc, tree_dealloc},
    {Py_tp_methods, tree_methods},
    {Py_tp_getset, tree_getters},
    {0, NULL},
};

static PyType_Spec tree_spec = {
    .name = "remuda.buffer._sum_tree.SumTree",
    .basicsize = sizeof(SumTree),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = tree_slots,
};

static int
add_type(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &tree_spec, NULL);
    int result = type == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)type);
    Py_XDECREF(type);
    return result;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, add_type},
    {0, NULL},
};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "remuda.buffer._sum_tree",
    .m_doc = "The compiled sum tree.",
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__sum_tree(void)
{
    return PyModuleDef_Init(&module);
}
