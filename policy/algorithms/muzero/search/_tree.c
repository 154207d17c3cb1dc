/* The search trees of MuZero and Gumbel MuZero, of all roots of a vector.
 *
 * What remuda.policy.algorithms.muzero.search.tree promises, compiled: the same choices and the same numbers as the
 * numpy trees, bit for bit. So sums are made in the same order, and setup.py forbids the compiler to fuse a product
 * and a sum. Each root has its own nodes, one after the other; what is known of a node's actions lies side by side.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define ILLEGAL -1.0f                      /* in place of a prior, as in roots.py */
#define MOST_NUMBERS ((Py_ssize_t)1 << 40) /* far more than any memory holds, and no product overflows */

typedef struct {
    PyObject_HEAD
    Py_ssize_t roots, actions, nodes; /* nodes: of each root, one more than simulations */
    double discount;                  /* of the next state's value; negative where two players take turns */
    double sign;                      /* 1 or -1: the next state's value is that of the same player, or of the other */
    double value_delta_min;
    double *low, *high; /* [roots] of all values so far */
    /* [roots][nodes] */
    double *value_sum, *reward;
    int32_t *visits, *parent, *action;
    /* [roots][nodes][actions] */
    double *q;
    float *prior;
    int32_t *made, *child; /* no child: 0, as the root is nobody's child */
    /* the rule of MuZero: */
    double *exploration; /* [nodes] the factor of the priors, by simulations of a node */
    /* the rule of Gumbel MuZero: */
    bool gumbel;
    double c_visit, c_scale;
    Py_ssize_t most_considered;
    int32_t *schedule;   /* [most_considered + 1][simulations], as gumbel.py makes it */
    int32_t *considered; /* [roots] */
    double *scores;      /* [roots][actions] Gumbel noise + logits */
    double *own_value;   /* [roots][nodes] */
    float *logits;       /* [roots][nodes][actions] */
    double *sigma;       /* [actions] of the node that is looked at */

    Py_ssize_t filled; /* nodes of each root so far; 0 before the first reset */
    bool selected, busy;
    void *memory;
} Tree;

/* --- both rules ------------------------------------------------------------------------------------------------- */

/* The action with the highest score so far; of equals that with the highest prior, and of these the first. */
typedef struct {
    double score;
    float prior;
    Py_ssize_t action;
} Best;

static const Best NONE_YET = {-INFINITY, ILLEGAL, 0};

static void
offer(Best *best, double score, float prior, Py_ssize_t action)
{
    if (score > best->score || (score == best->score && prior > best->prior)) {
        *best = (Best){score, prior, action};
    }
}

/* By what values above the lowest are multiplied, to lie between 0 and 1. */
static double
scale_of(const Tree *tree, Py_ssize_t root)
{
    double range = tree->high[root] - tree->low[root];
    return 1.0 / (range > tree->value_delta_min ? range : tree->value_delta_min);
}

static double
normalized(double value, double low, double scale)
{
    value = (value - low) * scale;
    value = value > 0.0 ? value : 0.0;
    return value < 1.0 ? value : 1.0;
}

/* --- the rule of MuZero: puct.py -------------------------------------------------------------------------------- */

/* What an action that was not tried counts as: the mean of those that were, and below the root of one more. */
static double
mean_q(const Tree *tree, Py_ssize_t node, double inherited, bool at_root)
{
    const double *q = tree->q + node * tree->actions;
    const int32_t *made = tree->made + node * tree->actions;
    double total = 0.0;
    Py_ssize_t tried = 0;
    for (Py_ssize_t a = 0; a < tree->actions; a++) {
        total += q[a]; /* 0 where it was not tried */
        tried += made[a] > 0;
    }
    return at_root ? total / (double)(tried > 0 ? tried : 1) : (inherited + total) / (double)(tried + 1);
}

static Py_ssize_t
by_puct(const Tree *tree, Py_ssize_t root, Py_ssize_t node, double mean)
{
    const double *q = tree->q + node * tree->actions;
    const float *prior = tree->prior + node * tree->actions;
    const int32_t *made = tree->made + node * tree->actions;
    double explore = tree->exploration[tree->visits[node] - 1];
    double low = tree->low[root], scale = scale_of(tree, root);
    Best best = NONE_YET;
    for (Py_ssize_t a = 0; a < tree->actions; a++) {
        if (prior[a] >= 0.0f) {
            double value = normalized(made[a] > 0 ? q[a] : mean, low, scale);
            offer(&best, explore / (double)(made[a] + 1) * (double)prior[a] + value, prior[a], a);
        }
    }
    return best.action;
}

/* --- the rule of Gumbel MuZero: gumbel.py ----------------------------------------------------------------------- */

/* e to the power of a number that is not positive, 0 below -700. */
static double
exponential(double power)
{
    static const double coefficients[] = {
        1.0,           1.0,            1.0 / 2.0,       1.0 / 6.0,        1.0 / 24.0,        1.0 / 120.0,
        1.0 / 720.0,   1.0 / 5040.0,   1.0 / 40320.0,   1.0 / 362880.0,   1.0 / 3628800.0,   1.0 / 39916800.0,
        1.0 / 479001600.0, 1.0 / 6227020800.0,
    };
    if (power < -700.0) {
        return 0.0;
    }
    int64_t halvings = (int64_t)(power * 1.4426950408889634 - 0.5);
    double rest = (power - (double)halvings * 6.93147180369123816490e-01) - (double)halvings * 1.90821492927058770002e-10;
    double total = coefficients[13];
    for (int term = 12; term >= 0; term--) {
        total = total * rest + coefficients[term];
    }
    uint64_t bits = (uint64_t)(halvings + 1023) << 52; /* 2 to the power of halvings, as a float64 */
    double factor;
    memcpy(&factor, &bits, sizeof(factor));
    return total * factor;
}

/* What an action that was not tried counts as: what the node is worth as far as is known. */
static double
mixed_value(const Tree *tree, Py_ssize_t node)
{
    const double *q = tree->q + node * tree->actions;
    const float *prior = tree->prior + node * tree->actions;
    const int32_t *made = tree->made + node * tree->actions;
    double mass = 0.0, total = 0.0, simulations = 0.0;
    for (Py_ssize_t a = 0; a < tree->actions; a++) {
        if (made[a] > 0) {
            double weight = (double)(prior[a] > FLT_MIN ? prior[a] : FLT_MIN);
            mass += weight;
            total += weight * q[a];
            simulations += (double)made[a];
        }
    }
    double mean = total / (mass > 0.0 ? mass : 1.0);
    return (tree->own_value[node] + simulations * mean) / (1.0 + simulations);
}

/* Write the transformed completed values of a node's actions, and return its simulations. */
static double
transform(const Tree *tree, Py_ssize_t root, Py_ssize_t node)
{
    const double *q = tree->q + node * tree->actions;
    const int32_t *made = tree->made + node * tree->actions;
    double mixed = mixed_value(tree, node), low = tree->low[root], scale = scale_of(tree, root), simulations = 0.0;
    int32_t most = 0;
    for (Py_ssize_t a = 0; a < tree->actions; a++) {
        most = made[a] > most ? made[a] : most;
        simulations += (double)made[a];
    }
    double factor = (tree->c_visit + (double)most) * tree->c_scale;
    for (Py_ssize_t a = 0; a < tree->actions; a++) {
        tree->sigma[a] = factor * normalized(made[a] > 0 ? q[a] : mixed, low, scale);
    }
    return simulations;
}

/* At a root: the action with the highest score among those that were simulated as often as it is due. */
static Py_ssize_t
by_halving(const Tree *tree, Py_ssize_t root, Py_ssize_t node)
{
    const double *scores = tree->scores + root * tree->actions;
    const float *prior = tree->prior + node * tree->actions;
    const int32_t *made = tree->made + node * tree->actions;
    int32_t wanted = tree->schedule[tree->considered[root] * (tree->nodes - 1) + tree->filled - 1];
    Best best = NONE_YET;
    transform(tree, root, node);
    for (Py_ssize_t a = 0; a < tree->actions; a++) {
        if (made[a] == wanted && prior[a] >= 0.0f) {
            offer(&best, scores[a] + tree->sigma[a], prior[a], a);
        }
    }
    return best.action;
}

/* Below the roots: the action whose share of the simulations is furthest below its probability. */
static Py_ssize_t
by_improved_policy(const Tree *tree, Py_ssize_t root, Py_ssize_t node)
{
    const float *prior = tree->prior + node * tree->actions, *logits = tree->logits + node * tree->actions;
    const int32_t *made = tree->made + node * tree->actions;
    double simulations = transform(tree, root, node), *scores = tree->sigma, highest = -INFINITY, total = 0.0;
    for (Py_ssize_t a = 0; a < tree->actions; a++) {
        scores[a] = (double)logits[a] + scores[a];
        highest = scores[a] > highest ? scores[a] : highest;
    }
    for (Py_ssize_t a = 0; a < tree->actions; a++) {
        scores[a] = exponential(scores[a] - highest);
        total += scores[a];
    }
    Best best = NONE_YET;
    for (Py_ssize_t a = 0; a < tree->actions; a++) {
        offer(&best, scores[a] / total - (double)made[a] / (1.0 + simulations), prior[a], a);
    }
    return best.action;
}

/* --- going down ------------------------------------------------------------------------------------------------- */

/* Walk from the root to an action that leads to no node yet: there the next node goes. */
static void
select_in(Tree *tree, Py_ssize_t root)
{
    Py_ssize_t first = root * tree->nodes, node = 0, action;
    double mean, inherited = 0.0;
    for (;;) {
        if (!tree->gumbel) {
            mean = mean_q(tree, first + node, inherited, node == 0);
            action = by_puct(tree, root, first + node, mean);
            inherited = tree->sign * mean;
        }
        else {
            action = node == 0 ? by_halving(tree, root, first) : by_improved_policy(tree, root, first + node);
        }
        int32_t child = tree->child[(first + node) * tree->actions + action];
        if (child == 0) {
            break;
        }
        node = child;
    }
    tree->parent[first + tree->filled] = (int32_t)node;
    tree->action[first + tree->filled] = (int32_t)action;
}

/* --- going up --------------------------------------------------------------------------------------------------- */

static void
stretch(Tree *tree, Py_ssize_t root, double value)
{
    tree->low[root] = value < tree->low[root] ? value : tree->low[root];
    tree->high[root] = value > tree->high[root] ? value : tree->high[root];
}

/* Write a node without visits over what an older tree held at its place. */
static void
begin_node(Tree *tree, Py_ssize_t root, Py_ssize_t place, const float *prior, double value, const float *logits)
{
    Py_ssize_t node = root * tree->nodes + place, edge = node * tree->actions, actions = tree->actions;
    memcpy(tree->prior + edge, prior + root * actions, actions * sizeof(*tree->prior));
    memset(tree->q + edge, 0, actions * sizeof(*tree->q));
    memset(tree->made + edge, 0, actions * sizeof(*tree->made));
    memset(tree->child + edge, 0, actions * sizeof(*tree->child));
    tree->value_sum[node] = 0.0;
    tree->visits[node] = 0;
    if (tree->gumbel) { /* values of nodes stand in for those of actions that were not tried */
        memcpy(tree->logits + edge, logits + root * actions, actions * sizeof(*tree->logits));
        tree->own_value[node] = value;
        stretch(tree, root, value);
    }
}

/* Carry the value of a new node up to the root. */
static void
back_up(Tree *tree, Py_ssize_t root, double value)
{
    Py_ssize_t first = root * tree->nodes, node = first + tree->filled;
    for (;;) {
        tree->value_sum[node] += value;
        tree->visits[node] += 1;
        if (node == first) {
            return;
        }
        double q = tree->reward[node] + tree->discount * (tree->value_sum[node] / (double)tree->visits[node]);
        Py_ssize_t above = first + tree->parent[node], edge = above * tree->actions + tree->action[node];
        tree->q[edge] = q;
        tree->made[edge] = tree->visits[node];
        stretch(tree, root, q);
        value = tree->reward[node] + tree->discount * value;
        node = above;
    }
}

static void
begin_root(Tree *tree, Py_ssize_t root, const float *prior, double value, const float *logits, const double *scores)
{
    tree->low[root] = INFINITY;
    tree->high[root] = -INFINITY;
    begin_node(tree, root, 0, prior, value, logits);
    tree->value_sum[root * tree->nodes] = value;
    tree->visits[root * tree->nodes] = 1;
    if (tree->gumbel) {
        Py_ssize_t actions = tree->actions, legal = 0;
        for (Py_ssize_t a = 0; a < actions; a++) {
            legal += prior[root * actions + a] >= 0.0f;
        }
        memcpy(tree->scores + root * actions, scores + root * actions, actions * sizeof(*scores));
        tree->considered[root] = (int32_t)(legal < tree->most_considered ? legal : tree->most_considered);
    }
}

static void
expand_in(Tree *tree, Py_ssize_t root, double reward, const float *prior, double value, const float *logits)
{
    Py_ssize_t first = root * tree->nodes, node = first + tree->filled;
    begin_node(tree, root, tree->filled, prior, value, logits);
    tree->reward[node] = reward;
    tree->child[(first + tree->parent[node]) * tree->actions + tree->action[node]] = (int32_t)tree->filled;
    back_up(tree, root, value);
}

/* --- what Python hands over ------------------------------------------------------------------------------------- */


/* Look at the memory of a contiguous array, [roots] or, if `of_actions`, [roots, actions]. */
static bool
look_at(const Tree *tree, PyObject *array, const char *format, bool of_actions, Py_buffer *view)
{
    if (PyObject_GetBuffer(array, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
        view->obj = NULL;
        return false;
    }
    if (strcmp(view->format, format) != 0) {
        PyErr_Format(PyExc_TypeError, "an array of type '%s' instead of '%s'", view->format, format);
        return false;
    }
    if (view->ndim != 1 + of_actions || view->shape[0] != tree->roots
        || (of_actions && view->shape[1] != tree->actions)) {
        PyErr_Format(PyExc_ValueError, "an array of another shape than %zd roots%s have", tree->roots,
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

/* Nobody else may look at the trees while a thread without the interpreter's lock works on them. */
static bool
is_free(const Tree *tree)
{
    if (tree->busy) {
        PyErr_SetString(PyExc_RuntimeError, "another thread searches these trees");
    }
    return !tree->busy;
}

/* The arrays of one call. */
typedef struct {
    Py_buffer prior, value, reward, logits, scores;
} Given;

static void
let_go(Given *given)
{
    Py_buffer *views[] = {&given->prior, &given->value, &given->reward, &given->logits, &given->scores};
    for (size_t i = 0; i < sizeof(views) / sizeof(*views); i++) {
        PyBuffer_Release(views[i]); /* nothing where its obj is NULL */
    }
}

static PyObject *
tree_reset(Tree *self, PyObject *args)
{
    PyObject *prior, *value, *logits, *scores;
    Given given = {0};
    if (!PyArg_ParseTuple(args, "OOOO:reset", &prior, &value, &logits, &scores) || !is_free(self)) {
        return NULL;
    }
    bool good = look_at(self, prior, "f", true, &given.prior) && look_at(self, value, "f", false, &given.value)
                && are_numbers(&given.prior, ILLEGAL) && are_numbers(&given.value, -FLT_MAX);
    if (self->gumbel) {
        good = good && look_at(self, logits, "f", true, &given.logits) && look_at(self, scores, "d", true, &given.scores);
    }
    if (good) {
        for (Py_ssize_t root = 0; root < self->roots; root++) {
            double own = (double)((const float *)given.value.buf)[root];
            begin_root(self, root, given.prior.buf, own, given.logits.buf, given.scores.buf);
        }
        self->filled = 1;
        self->selected = false;
    }
    let_go(&given);
    return good ? Py_NewRef(Py_None) : NULL;
}

static PyObject *
tree_select(Tree *self, PyObject *Py_UNUSED(nothing))
{
    if (!is_free(self)) {
        return NULL;
    }
    if (self->selected || self->filled == 0 || self->filled == self->nodes) {
        PyErr_SetString(PyExc_RuntimeError, "select comes after reset or expand, once for each simulation");
        return NULL;
    }
    PyObject *parents = PyByteArray_FromStringAndSize(NULL, self->roots * (Py_ssize_t)sizeof(int32_t));
    PyObject *actions = PyByteArray_FromStringAndSize(NULL, self->roots * (Py_ssize_t)sizeof(int64_t));
    PyObject *result = parents && actions ? PyTuple_Pack(2, parents, actions) : NULL;
    if (result != NULL) {
        int32_t *parent = (int32_t *)PyByteArray_AS_STRING(parents);
        int64_t *action = (int64_t *)PyByteArray_AS_STRING(actions);
        self->busy = true;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t root = 0; root < self->roots; root++) {
            select_in(self, root);
            parent[root] = self->parent[root * self->nodes + self->filled];
            action[root] = self->action[root * self->nodes + self->filled];
        }
        Py_END_ALLOW_THREADS
        self->busy = false;
        self->selected = true;
    }
    Py_XDECREF(parents);
    Py_XDECREF(actions);
    return result;
}

static PyObject *
tree_expand(Tree *self, PyObject *args)
{
    PyObject *reward, *prior, *value, *logits;
    Given given = {0};
    if (!PyArg_ParseTuple(args, "OOOO:expand", &reward, &prior, &value, &logits) || !is_free(self)) {
        return NULL;
    }
    if (!self->selected) {
        PyErr_SetString(PyExc_RuntimeError, "expand comes after select");
        return NULL;
    }
    bool good = look_at(self, reward, "f", false, &given.reward) && look_at(self, prior, "f", true, &given.prior)
                && look_at(self, value, "f", false, &given.value)
                && (!self->gumbel || look_at(self, logits, "f", true, &given.logits))
                && are_numbers(&given.reward, -FLT_MAX) && are_numbers(&given.prior, 0.0f)
                && are_numbers(&given.value, -FLT_MAX);
    if (good) {
        const float *rewards = given.reward.buf, *values = given.value.buf;
        self->busy = true;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t root = 0; root < self->roots; root++) {
            expand_in(self, root, (double)rewards[root], given.prior.buf, (double)values[root], given.logits.buf);
        }
        Py_END_ALLOW_THREADS
        self->busy = false;
        self->filled++;
        self->selected = false;
    }
    let_go(&given);
    return good ? Py_NewRef(Py_None) : NULL;
}

/* --- what Python gets back -------------------------------------------------------------------------------------- */

/* Copy what lies at the root of each tree: `bytes` of `stride` bytes per tree. */
static PyObject *
of_roots(const Tree *tree, const void *numbers, Py_ssize_t bytes, Py_ssize_t stride)
{
    PyObject *result = is_free(tree) ? PyByteArray_FromStringAndSize(NULL, tree->roots * bytes) : NULL;
    for (Py_ssize_t root = 0; result != NULL && root < tree->roots; root++) {
        memcpy(PyByteArray_AS_STRING(result) + root * bytes, (const char *)numbers + root * stride, bytes);
    }
    return result;
}

static PyObject *
tree_visits(Tree *self, PyObject *Py_UNUSED(nothing))
{
    Py_ssize_t bytes = self->actions * (Py_ssize_t)sizeof(*self->made);
    return of_roots(self, self->made, bytes, self->nodes * bytes);
}

static PyObject *
tree_q_values(Tree *self, PyObject *Py_UNUSED(nothing))
{
    Py_ssize_t bytes = self->actions * (Py_ssize_t)sizeof(*self->q);
    return of_roots(self, self->q, bytes, self->nodes * bytes);
}

static PyObject *
tree_value_sums(Tree *self, PyObject *Py_UNUSED(nothing))
{
    return of_roots(self, self->value_sum, sizeof(*self->value_sum), self->nodes * (Py_ssize_t)sizeof(*self->value_sum));
}

static PyObject *
tree_lows(Tree *self, PyObject *Py_UNUSED(nothing))
{
    return of_roots(self, self->low, sizeof(*self->low), sizeof(*self->low));
}

static PyObject *
tree_highs(Tree *self, PyObject *Py_UNUSED(nothing))
{
    return of_roots(self, self->high, sizeof(*self->high), sizeof(*self->high));
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
divide(Tree *tree, char *memory)
{
    Py_ssize_t nodes = tree->roots * tree->nodes, edges = nodes * tree->actions;
    Py_ssize_t simulations = tree->nodes - 1, if_gumbel = tree->gumbel ? 1 : 0;
    size_t used = 0;
    tree->exploration = cut(memory, &used, tree->nodes, sizeof(double));
    tree->low = cut(memory, &used, tree->roots, sizeof(double));
    tree->high = cut(memory, &used, tree->roots, sizeof(double));
    tree->value_sum = cut(memory, &used, nodes, sizeof(double));
    tree->reward = cut(memory, &used, nodes, sizeof(double));
    tree->q = cut(memory, &used, edges, sizeof(double));
    tree->own_value = cut(memory, &used, if_gumbel * nodes, sizeof(double));
    tree->scores = cut(memory, &used, if_gumbel * tree->roots * tree->actions, sizeof(double));
    tree->sigma = cut(memory, &used, if_gumbel * tree->actions, sizeof(double));
    tree->visits = cut(memory, &used, nodes, sizeof(int32_t));
    tree->parent = cut(memory, &used, nodes, sizeof(int32_t));
    tree->action = cut(memory, &used, nodes, sizeof(int32_t));
    tree->made = cut(memory, &used, edges, sizeof(int32_t));
    tree->child = cut(memory, &used, edges, sizeof(int32_t));
    tree->prior = cut(memory, &used, edges, sizeof(float));
    tree->logits = cut(memory, &used, if_gumbel * edges, sizeof(float));
    tree->considered = cut(memory, &used, if_gumbel * tree->roots, sizeof(int32_t));
    tree->schedule = cut(memory, &used, if_gumbel * (tree->most_considered + 1) * simulations, sizeof(int32_t));
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
    char *memory = tree->memory = PyMem_RawCalloc(divide(tree, NULL), 1);
    if (memory == NULL) {
        PyErr_NoMemory();
        return false;
    }
    divide(tree, memory);
    Py_ssize_t numbers = (tree->most_considered + 1) * (tree->nodes - 1);
    return take_table(exploration, "d", tree->exploration, tree->nodes * (Py_ssize_t)sizeof(double))
           && (!tree->gumbel || take_table(schedule, "i", tree->schedule, numbers * (Py_ssize_t)sizeof(int32_t)));
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
        self->roots = roots;
        self->actions = actions;
        self->nodes = simulations + 1;
        self->discount = sign * discount;
        self->sign = sign;
        self->value_delta_min = value_delta_min;
        self->gumbel = considered > 0;
        self->most_considered = considered;
        self->c_visit = c_visit;
        self->c_scale = c_scale;
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
    {"reset", (PyCFunction)tree_reset, METH_VARARGS, "reset(prior, value, logits, scores): begin new trees."},
    {"select", (PyCFunction)tree_select, METH_NOARGS,
     "select(): the bytes of the parents of the next nodes, and of the actions there."},
    {"expand", (PyCFunction)tree_expand, METH_VARARGS,
     "expand(reward, prior, value, logits): add a node to each tree, and carry its value up."},
    {"visits", (PyCFunction)tree_visits, METH_NOARGS, "visits(): the bytes of the simulations of each root's actions."},
    {"q_values", (PyCFunction)tree_q_values, METH_NOARGS, "q_values(): the bytes of the values of each root's actions."},
    {"value_sums", (PyCFunction)tree_value_sums, METH_NOARGS,
     "value_sums(): the bytes of the sum of all values that came up to each root."},
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
