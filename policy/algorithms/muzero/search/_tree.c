/* The search trees of MuZero and Gumbel MuZero, of all roots of a vector: what Python hands over and gets back.
 *
 * What remuda.policy.algorithms.muzero.search.tree promises, compiled: the same choices and the same numbers as the
 * numpy trees, bit for bit. So sums are made in the same order, and setup.py forbids the compiler to fuse a product
 * and a sum.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <float.h>
#include <string.h>

#include "_walk.h"

#define INT32 "i" /* as numpy names them */
#define INT64 (sizeof(long) == 8 ? "l" : "q")
#define MOST_NUMBERS ((Py_ssize_t)1 << 40) /* far more than any memory holds, and no product overflows */

typedef struct {
    PyObject_HEAD
    Trees trees;
    bool selected; /* and not expanded yet */
    bool busy;
    void *memory;
} Tree;

/* --- what Python hands over ------------------------------------------------------------------------------------- */

/* Look at the memory of a contiguous array, [roots] or, if `of_actions`, [roots, actions]. */
static bool
look_at(const Trees *trees, PyObject *array, const char *format, bool of_actions, int flags, Py_buffer *view)
{
    if (PyObject_GetBuffer(array, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | flags) < 0) {
        view->obj = NULL;
        return false;
    }
    if (strcmp(view->format, format) != 0) {
        PyErr_Format(PyExc_TypeError, "an array of type '%s' instead of '%s'", view->format, format);
        return false;
    }
    if (view->ndim != 1 + of_actions || view->shape[0] != trees->roots
        || (of_actions && view->shape[1] != trees->actions)) {
        PyErr_Format(PyExc_ValueError, "an array of another shape than %zd roots%s have", (Py_ssize_t)trees->roots,
                     of_actions ? " and their actions" : "");
        return false;
    }
    return true;
}

/* Whether all numbers are finite and at least `least`; a comparison with nan is false. */
static bool
are_numbers(const Py_buffer *view, float least)
{
    const float *numbers = view->buf;
    bool good = true;
    for (Py_ssize_t i = 0; i < view->len / (Py_ssize_t)sizeof(*numbers); i++) {
        good &= numbers[i] >= least && numbers[i] <= FLT_MAX;
    }
    if (!good) {
        PyErr_SetString(PyExc_ValueError, "rewards, priors and values must be finite, and priors not negative");
    }
    return good;
}

/* The arrays of one call. */
typedef struct {
    Py_buffer reward, prior, value, logits, scores;
} Given;

static NewNodes
new_nodes(const Given *given)
{
    return (NewNodes){given->reward.buf, given->prior.buf, given->value.buf, given->logits.buf, given->scores.buf};
}

static void
let_go(Given *given)
{
    Py_buffer *views[] = {&given->reward, &given->prior, &given->value, &given->logits, &given->scores};
    for (size_t i = 0; i < sizeof(views) / sizeof(*views); i++) {
        PyBuffer_Release(views[i]); /* nothing where its obj is NULL */
    }
}

/* Nobody else may look at the trees while a thread without the interpreter's lock works on them. */
static bool
is_free(const Tree *tree)
{
    if (tree->busy) {
        PyErr_SetString(PyExc_RuntimeError, "another thread searches these trees");
    }
    return !tree->busy;
}

/* --- the calls of a search -------------------------------------------------------------------------------------- */

static PyObject *
tree_reset(Tree *self, PyObject *args)
{
    PyObject *prior, *value, *logits, *scores;
    float least;
    Given given = {0};
    Trees *trees = &self->trees;
    if (!PyArg_ParseTuple(args, "OOOOf:reset", &prior, &value, &logits, &scores, &least) || !is_free(self)) {
        return NULL;
    }
    bool good = look_at(trees, prior, "f", true, 0, &given.prior) && look_at(trees, value, "f", false, 0, &given.value)
                && (!trees->gumbel || look_at(trees, logits, "f", true, 0, &given.logits))
                && (!trees->gumbel || look_at(trees, scores, "d", true, 0, &given.scores))
                && are_numbers(&given.prior, least) && are_numbers(&given.value, -FLT_MAX);
    if (good) {
        NewNodes nodes = new_nodes(&given);
        for (Py_ssize_t root = 0; root < trees->roots; root++) {
            begin_root(trees, root, &nodes);
        }
        trees->filled = 1;
        self->selected = false;
    }
    let_go(&given);
    return good ? Py_NewRef(Py_None) : NULL;
}

static PyObject *
tree_select(Tree *self, PyObject *args)
{
    PyObject *parents, *actions;
    Py_buffer parent = {0}, action = {0};
    Trees *trees = &self->trees;
    if (!PyArg_ParseTuple(args, "OO:select", &parents, &actions) || !is_free(self)) {
        return NULL;
    }
    if (self->selected || trees->filled == 0 || trees->filled == trees->nodes) {
        PyErr_SetString(PyExc_RuntimeError, "select comes after reset or expand, once for each simulation");
        return NULL;
    }
    bool good = look_at(trees, parents, INT32, false, PyBUF_WRITABLE, &parent)
                && look_at(trees, actions, INT64, false, PyBUF_WRITABLE, &action);
    if (good) {
        self->busy = true;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t root = 0; root < trees->roots; root++) {
            select_in(trees, root);
            ((int32_t *)parent.buf)[root] = trees->parent[root * trees->nodes + trees->filled];
            ((int64_t *)action.buf)[root] = trees->action[root * trees->nodes + trees->filled];
        }
        Py_END_ALLOW_THREADS
        self->busy = false;
        self->selected = true;
    }
    PyBuffer_Release(&parent);
    PyBuffer_Release(&action);
    return good ? Py_NewRef(Py_None) : NULL;
}

static PyObject *
tree_expand(Tree *self, PyObject *args)
{
    PyObject *reward, *prior, *value, *logits;
    Given given = {0};
    Trees *trees = &self->trees;
    if (!PyArg_ParseTuple(args, "OOOO:expand", &reward, &prior, &value, &logits) || !is_free(self)) {
        return NULL;
    }
    if (!self->selected) {
        PyErr_SetString(PyExc_RuntimeError, "expand comes after select");
        return NULL;
    }
    bool good = look_at(trees, reward, "f", false, 0, &given.reward) && look_at(trees, prior, "f", true, 0, &given.prior)
                && look_at(trees, value, "f", false, 0, &given.value)
                && (!trees->gumbel || look_at(trees, logits, "f", true, 0, &given.logits))
                && are_numbers(&given.reward, -FLT_MAX) && are_numbers(&given.prior, 0.0f)
                && are_numbers(&given.value, -FLT_MAX);
    if (good) {
        NewNodes nodes = new_nodes(&given);
        self->busy = true;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t root = 0; root < trees->roots; root++) {
            expand_in(trees, root, &nodes);
        }
        Py_END_ALLOW_THREADS
        self->busy = false;
        trees->filled++;
        self->selected = false;
    }
    let_go(&given);
    return good ? Py_NewRef(Py_None) : NULL;
}

/* --- what Python gets back -------------------------------------------------------------------------------------- */

/* Copy what lies at the root of each tree: `bytes` of the `stride` bytes that a tree takes. */
static PyObject *
of_roots(const Tree *tree, const void *numbers, Py_ssize_t bytes, Py_ssize_t stride)
{
    Py_ssize_t roots = tree->trees.roots;
    PyObject *result = is_free(tree) ? PyByteArray_FromStringAndSize(NULL, roots * bytes) : NULL;
    for (Py_ssize_t root = 0; result != NULL && root < roots; root++) {
        memcpy(PyByteArray_AS_STRING(result) + root * bytes, (const char *)numbers + root * stride, bytes);
    }
    return result;
}

static PyObject *
tree_visits(Tree *self, PyObject *Py_UNUSED(nothing))
{
    Py_ssize_t bytes = self->trees.actions * (Py_ssize_t)sizeof(int32_t);
    return of_roots(self, self->trees.made, bytes, self->trees.nodes * bytes);
}

static PyObject *
tree_q_values(Tree *self, PyObject *Py_UNUSED(nothing))
{
    Py_ssize_t bytes = self->trees.actions * (Py_ssize_t)sizeof(double);
    return of_roots(self, self->trees.q, bytes, self->trees.nodes * bytes);
}

static PyObject *
tree_root_values(Tree *self, PyObject *Py_UNUSED(nothing))
{
    const Trees *trees = &self->trees;
    PyObject *result =
        is_free(self) ? PyByteArray_FromStringAndSize(NULL, trees->roots * (Py_ssize_t)sizeof(float)) : NULL;
    for (Py_ssize_t root = 0; result != NULL && root < trees->roots; root++) {
        ptrdiff_t node = root * trees->nodes;
        int32_t visits = trees->visits[node] > 0 ? trees->visits[node] : 1; /* none before the first reset */
        ((float *)PyByteArray_AS_STRING(result))[root] = (float)(trees->value_sum[node] / (double)visits);
    }
    return result;
}

static PyObject *
tree_lows(Tree *self, PyObject *Py_UNUSED(nothing))
{
    return of_roots(self, self->trees.low, sizeof(double), sizeof(double));
}

static PyObject *
tree_highs(Tree *self, PyObject *Py_UNUSED(nothing))
{
    return of_roots(self, self->trees.high, sizeof(double), sizeof(double));
}

/* --- the type --------------------------------------------------------------------------------------------------- */

/* Cut the next `count` numbers of `size` bytes off the memory. Without memory, only count the bytes. */
static void *
cut(char *memory, size_t *used, Py_ssize_t count, size_t size)
{
    void *numbers = memory == NULL ? NULL : memory + *used;
    *used += (size_t)count * size;
    return numbers;
}

/* Divide the memory among the arrays, wide numbers first so that all lie where they should; how much that is. */
static size_t
divide(Trees *trees, char *memory)
{
    Py_ssize_t nodes = trees->roots * trees->nodes, edges = nodes * trees->actions;
    Py_ssize_t simulations = trees->nodes - 1, if_gumbel = trees->gumbel ? 1 : 0;
    size_t used = 0;
    trees->exploration = cut(memory, &used, trees->nodes, sizeof(double));
    trees->low = cut(memory, &used, trees->roots, sizeof(double));
    trees->high = cut(memory, &used, trees->roots, sizeof(double));
    trees->value_sum = cut(memory, &used, nodes, sizeof(double));
    trees->reward = cut(memory, &used, nodes, sizeof(double));
    trees->q = cut(memory, &used, edges, sizeof(double));
    trees->own_value = cut(memory, &used, if_gumbel * nodes, sizeof(double));
    trees->scores = cut(memory, &used, if_gumbel * trees->roots * trees->actions, sizeof(double));
    trees->sigma = cut(memory, &used, if_gumbel * trees->actions, sizeof(double));
    trees->visits = cut(memory, &used, nodes, sizeof(int32_t));
    trees->parent = cut(memory, &used, nodes, sizeof(int32_t));
    trees->action = cut(memory, &used, nodes, sizeof(int32_t));
    trees->made = cut(memory, &used, edges, sizeof(int32_t));
    trees->child = cut(memory, &used, edges, sizeof(int32_t));
    trees->prior = cut(memory, &used, edges, sizeof(float));
    trees->logits = cut(memory, &used, if_gumbel * edges, sizeof(float));
    trees->considered = cut(memory, &used, if_gumbel * trees->roots, sizeof(int32_t));
    trees->schedule = cut(memory, &used, if_gumbel * (trees->most_considered + 1) * simulations, sizeof(int32_t));
    return used;
}

/* Copy a table that Python has made into its place. */
static bool
take_table(PyObject *array, const char *format, void *place, Py_ssize_t bytes)
{
    Py_buffer view;
    if (PyObject_GetBuffer(array, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
        return false;
    }
    bool good = strcmp(view.format, format) == 0 && view.len == bytes;
    if (good) {
        memcpy(place, view.buf, bytes);
    }
    else {
        PyErr_Format(PyExc_ValueError, "a table of %zd bytes of type '%s' instead of %zd of '%s'", view.len, view.format,
                     bytes, format);
    }
    PyBuffer_Release(&view);
    return good;
}

/* Take memory for all trees at once, and the tables. */
static bool
set_up(Tree *tree, PyObject *exploration, PyObject *schedule)
{
    Trees *trees = &tree->trees;
    tree->memory = PyMem_RawCalloc(divide(trees, NULL), 1);
    if (tree->memory == NULL) {
        PyErr_NoMemory();
        return false;
    }
    divide(trees, tree->memory);
    Py_ssize_t scheduled = (trees->most_considered + 1) * (trees->nodes - 1);
    return take_table(exploration, "d", trees->exploration, trees->nodes * (Py_ssize_t)sizeof(double))
           && (!trees->gumbel || take_table(schedule, "i", trees->schedule, scheduled * (Py_ssize_t)sizeof(int32_t)));
}

static PyObject *
tree_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords))
{
    Py_ssize_t roots, actions, simulations, considered;
    double discount, sign, value_delta_min, c_visit, c_scale;
    PyObject *exploration, *schedule;
    if (!PyArg_ParseTuple(args, "nnndddO(nddO):Tree", &roots, &actions, &simulations, &discount, &sign,
                          &value_delta_min, &exploration, &considered, &c_visit, &c_scale, &schedule)) {
        return NULL;
    }
    if (roots < 1 || actions < 1 || simulations < 1 || considered < 0) {
        return PyErr_Format(PyExc_ValueError, "a tree needs at least one root and one action, not %zd and %zd", roots,
                            actions);
    }
    if (simulations >= INT32_MAX || actions > INT32_MAX || considered > actions || considered > simulations
        || simulations > MOST_NUMBERS / actions || roots > MOST_NUMBERS / actions / (simulations + 1)) {
        return PyErr_NoMemory();
    }
    Tree *self = (Tree *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->trees = (Trees){
            .roots = roots,
            .actions = actions,
            .nodes = simulations + 1,
            .discount = sign * discount,
            .sign = sign,
            .value_delta_min = value_delta_min,
            .gumbel = considered > 0,
            .most_considered = considered,
            .c_visit = c_visit,
            .c_scale = c_scale,
        };
        if (!set_up(self, exploration, schedule)) {
            Py_CLEAR(self);
        }
    }
    return (PyObject *)self;
}

static void
tree_dealloc(Tree *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyMem_RawFree(self->memory);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef tree_methods[] = {
    {"reset", (PyCFunction)tree_reset, METH_VARARGS, 
     "reset(prior, value, logits, scores, least): begin new trees; no prior is below `least`."},
    {"select", (PyCFunction)tree_select, METH_VARARGS,
     "select(parents, actions): write where the next nodes go, int32 and int64 [roots]."},
    {"expand", (PyCFunction)tree_expand, METH_VARARGS,
     "expand(reward, prior, value, logits): add a node to each tree, and carry its value up."},
    {"visits", (PyCFunction)tree_visits, METH_NOARGS, "visits(): the bytes of the simulations of each root's actions."},
    {"q_values", (PyCFunction)tree_q_values, METH_NOARGS, "q_values(): the bytes of the values of each root's actions."},
    {"root_values", (PyCFunction)tree_root_values, METH_NOARGS,
     "root_values(): the bytes of the mean of all values that came up to each root."},
    {"lows", (PyCFunction)tree_lows, METH_NOARGS, "lows(): the bytes of the lowest value in each tree."},
    {"highs", (PyCFunction)tree_highs, METH_NOARGS, "highs(): the bytes of the highest value in each tree."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot tree_slots[] = {
    {Py_tp_doc, "Tree(roots, actions, simulations, discount, sign, value_delta_min, exploration, (considered, c_visit, "
                "c_scale, schedule)): see remuda.policy.algorithms.muzero.search.tree."},
    {Py_tp_new, tree_new},
    {Py_tp_dealloc, tree_dealloc},
    {Py_tp_methods, tree_methods},
    {0, NULL},
};

static PyType_Spec tree_spec = {
    .name = "remuda.policy.algorithms.muzero.search._tree.Tree",
    .basicsize = sizeof(Tree),
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
    .m_name = "remuda.policy.algorithms.muzero.search._tree",
    .m_doc = "The compiled search trees.",
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__tree(void)
{
    return PyModuleDef_Init(&module);
}
