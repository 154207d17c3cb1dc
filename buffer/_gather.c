/* Rows of several columns, picked from all over the memory.
 *
 * A row that was not seen lately has to come from far away, and what costs is the waiting. So the memory of rows that
 * are due soon is asked for while those before them are copied, all columns of a row together.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define MOST_COLUMNS 64
#define ROWS_AHEAD 24 /* measured with 6 columns of 10^6 rows: 8 are a third slower, 48 no faster */

#if defined(__GNUC__)
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define PREFETCH(address) ((void)(address))
#endif

typedef struct {
    Py_buffer from, to;
    Py_ssize_t row_bytes;
} Column;

static void
copy_rows(const Column *columns, Py_ssize_t count, const int64_t *slots, Py_ssize_t rows)
{
    for (Py_ssize_t row = 0; row < rows; row++) {
        for (Py_ssize_t i = 0; i < count && row + ROWS_AHEAD < rows; i++) {
            PREFETCH((const char *)columns[i].from.buf + slots[row + ROWS_AHEAD] * columns[i].row_bytes);
        }
        for (Py_ssize_t i = 0; i < count; i++) {
            Py_ssize_t bytes = columns[i].row_bytes;
            memcpy((char *)columns[i].to.buf + row * bytes, (const char *)columns[i].from.buf + slots[row] * bytes, bytes);
        }
    }
}

/* --- what Python hands over ------------------------------------------------------------------------------------- */

static bool
slots_are_within(const int64_t *slots, Py_ssize_t rows, Py_ssize_t height)
{
    for (Py_ssize_t row = 0; row < rows; row++) {
        if (slots[row] < 0 || slots[row] >= height) {
            PyErr_Format(PyExc_IndexError, "slot %lld of a column of %zd", (long long)slots[row], height);
            return false;
        }
    }
    return true;
}

/* Look at a column and at the array that takes its rows. Nothing is held where that fails. */
static bool
view_column(PyObject *from, PyObject *to, Py_ssize_t rows, Column *column)
{
    if (PyObject_GetBuffer(from, &column->from, PyBUF_C_CONTIGUOUS) < 0) {
        return false;
    }
    if (PyObject_GetBuffer(to, &column->to, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&column->from);
        return false;
    }
    Py_ssize_t height = column->from.ndim ? column->from.shape[0] : 0;
    column->row_bytes = height ? column->from.len / height : 0;
    if (column->to.len == rows * column->row_bytes) {
        return true;
    }
    PyErr_Format(PyExc_ValueError, "%zd bytes for %zd rows of %zd", column->to.len, rows, column->row_bytes);
    PyBuffer_Release(&column->from);
    PyBuffer_Release(&column->to);
    return false;
}

static bool
gather_into(PyObject *from, PyObject *to, const int64_t *slots, Py_ssize_t rows)
{
    Column columns[MOST_COLUMNS];
    Py_ssize_t wanted = PyTuple_GET_SIZE(from), count = 0;
    bool fits = wanted == PyTuple_GET_SIZE(to) && wanted <= MOST_COLUMNS;
    if (!fits) {
        PyErr_Format(PyExc_ValueError, "%zd columns into %zd arrays; the most is %d", wanted, PyTuple_GET_SIZE(to),
                     MOST_COLUMNS);
    }
    while (fits && count < wanted) {
        fits = view_column(PyTuple_GET_ITEM(from, count), PyTuple_GET_ITEM(to, count), rows, &columns[count]);
        count += fits;
    }
    for (Py_ssize_t i = 0; fits && i < count; i++) {
        const Py_buffer *view = &columns[i].from;
        if (i == 0 || view->shape[0] != columns[i - 1].from.shape[0]) {
            fits = slots_are_within(slots, rows, view->ndim ? view->shape[0] : 0);
        }
    }
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        copy_rows(columns, count, slots, rows);
        Py_END_ALLOW_THREADS
    }
    while (count-- > 0) {
        PyBuffer_Release(&columns[count].from);
        PyBuffer_Release(&columns[count].to);
    }
    return fits;
}

static PyObject *
gather(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *from, *to, *slots_array;
    Py_buffer slots;
    if (!PyArg_ParseTuple(args, "O!O!O:gather", &PyTuple_Type, &from, &PyTuple_Type, &to, &slots_array)
        || PyObject_GetBuffer(slots_array, &slots, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
        return NULL;
    }
    bool done = slots.itemsize == 8 && strlen(slots.format) == 1 && strchr("lq", slots.format[0]);
    if (done) {
        done = gather_into(from, to, slots.buf, slots.len / 8);
    }
    else {
        PyErr_Format(PyExc_TypeError, "slots of type '%s' instead of int64", slots.format);
    }
    PyBuffer_Release(&slots);
    return done ? Py_NewRef(Py_None) : NULL;
}

static PyMethodDef functions[] = {
    {"gather", gather, METH_VARARGS, "gather(columns, out, slots): see remuda.buffer.gathering."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "remuda.buffer._gather",
    .m_doc = "The compiled gather.",
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit__gather(void)
{
    return PyModuleDef_Init(&module);
}
