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

typedef struct {
    Py_buffer row_of_slot, rows; /* int64 */
    Py_ssize_t slots, wanted;    /* how many they are */
} Rows;

/* Where a row lies: its id modulo the slots there are. */
static Py_ssize_t
slot_of(int64_t row, Py_ssize_t slots)
{
    Py_ssize_t slot = row % slots;
    return slot < 0 ? slot + slots : slot;
}

/* Copy what lies in the slots of the rows that are wanted; whether these are the rows that lie there. */
static bool
copy_rows(const Column *columns, Py_ssize_t count, const Rows *rows)
{
    const int64_t *row_of_slot = rows->row_of_slot.buf, *row = rows->rows.buf;
    bool held = true;
    for (Py_ssize_t i = 0; i < rows->wanted; i++) {
        if (i + ROWS_AHEAD < rows->wanted) {
            Py_ssize_t due = slot_of(row[i + ROWS_AHEAD], rows->slots);
            PREFETCH(row_of_slot + due);
            for (Py_ssize_t c = 0; c < count; c++) {
                PREFETCH((const char *)columns[c].from.buf + due * columns[c].row_bytes);
            }
        }
        Py_ssize_t slot = slot_of(row[i], rows->slots);
        held &= row[i] >= 0 && row_of_slot[slot] == row[i];
        for (Py_ssize_t c = 0; c < count; c++) {
            Py_ssize_t bytes = columns[c].row_bytes;
            memcpy((char *)columns[c].to.buf + i * bytes, (const char *)columns[c].from.buf + slot * bytes, bytes);
        }
    }
    return held;
}

/* --- what Python hands over ------------------------------------------------------------------------------------- */

static bool
view_int64(PyObject *array, Py_buffer *view)
{
    if (PyObject_GetBuffer(array, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
        return false;
    }
    if (view->itemsize == 8 && strlen(view->format) == 1 && strchr("lq", view->format[0])) {
        return true;
    }
    PyErr_Format(PyExc_TypeError, "rows of type '%s' instead of int64", view->format);
    PyBuffer_Release(view);
    return false;
}

static bool
view_rows(PyObject *row_of_slot, PyObject *wanted, Rows *rows)
{
    if (!view_int64(row_of_slot, &rows->row_of_slot)) {
        return false;
    }
    if (!view_int64(wanted, &rows->rows)) {
        PyBuffer_Release(&rows->row_of_slot);
        return false;
    }
    rows->slots = rows->row_of_slot.len / 8;
    rows->wanted = rows->rows.len / 8;
    if (rows->slots > 0) {
        return true;
    }
    PyErr_SetString(PyExc_ValueError, "columns without a slot");
    PyBuffer_Release(&rows->rows);
    PyBuffer_Release(&rows->row_of_slot);
    return false;
}

/* Look at a column and at the array that takes its rows. Nothing is held where that fails. */
static bool
view_column(PyObject *from, PyObject *to, const Rows *rows, Column *column)
{
    if (PyObject_GetBuffer(from, &column->from, PyBUF_C_CONTIGUOUS) < 0) {
        return false;
    }
    if (PyObject_GetBuffer(to, &column->to, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&column->from);
        return false;
    }
    Py_ssize_t height = column->from.ndim ? column->from.shape[0] : 0;
    column->row_bytes = column->from.len / rows->slots;
    if (height != rows->slots) {
        PyErr_Format(PyExc_ValueError, "a column of %zd for %zd slots", height, rows->slots);
    }
    else if (column->to.len != rows->wanted * column->row_bytes) {
        PyErr_Format(PyExc_ValueError, "%zd bytes for %zd rows of %zd", column->to.len, rows->wanted,
                     column->row_bytes);
    }
    else {
        return true;
    }
    PyBuffer_Release(&column->from);
    PyBuffer_Release(&column->to);
    return false;
}

/* Returns whether all rows are held; -1 where arrays do not fit. */
static int
gather_into(PyObject *from, PyObject *to, const Rows *rows)
{
    Column columns[MOST_COLUMNS];
    Py_ssize_t wanted = PyTuple_GET_SIZE(from), count = 0;
    bool fits = wanted == PyTuple_GET_SIZE(to) && wanted <= MOST_COLUMNS;
    int held = -1;
    if (!fits) {
        PyErr_Format(PyExc_ValueError, "%zd columns into %zd arrays; the most is %d", wanted, PyTuple_GET_SIZE(to),
                     MOST_COLUMNS);
    }
    while (fits && count < wanted) {
        fits = view_column(PyTuple_GET_ITEM(from, count), PyTuple_GET_ITEM(to, count), rows, &columns[count]);
        count += fits;
    }
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        held = copy_rows(columns, count, rows);
        Py_END_ALLOW_THREADS
    }
    while (count-- > 0) {
        PyBuffer_Release(&columns[count].from);
        PyBuffer_Release(&columns[count].to);
    }
    return held;
}

static PyObject *
gather_rows(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *row_of_slot, *from, *to, *wanted;
    Rows rows;
    if (!PyArg_ParseTuple(args, "OO!O!O:gather_rows", &row_of_slot, &PyTuple_Type, &from, &PyTuple_Type, &to, &wanted)
        || !view_rows(row_of_slot, wanted, &rows)) {
        return NULL;
    }
    int held = gather_into(from, to, &rows);
    PyBuffer_Release(&rows.rows);
    PyBuffer_Release(&rows.row_of_slot);
    return held < 0 ? NULL : PyBool_FromLong(held);
}

static PyMethodDef functions[] = {
    {"gather_rows", gather_rows, METH_VARARGS,
     "gather_rows(row_of_slot, columns, out, rows): see remuda.buffer.ring."},
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
