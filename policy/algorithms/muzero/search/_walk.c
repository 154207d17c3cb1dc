/* From a root to the place of its next node, and from a new node back to the root. */
#include "_walk.h"

#include <string.h>

#include "_gumbel.h"
#include "_puct.h"

static void
stretch(Trees *trees, ptrdiff_t root, double value)
{
    trees->low[root] = value < trees->low[root] ? value : trees->low[root];
    trees->high[root] = value > trees->high[root] ? value : trees->high[root];
}

/* Write a node without visits over what an older tree held at its place. */
static void
begin_node(Trees *trees, ptrdiff_t root, ptrdiff_t place, const NewNodes *given)
{
    ptrdiff_t node = root * trees->nodes + place, edges = node * trees->actions, actions = trees->actions;
    memcpy(trees->prior + edges, given->prior + root * actions, (size_t)actions * sizeof(*trees->prior));
    memset(trees->q + edges, 0, (size_t)actions * sizeof(*trees->q));
    memset(trees->made + edges, 0, (size_t)actions * sizeof(*trees->made));
    memset(trees->child + edges, 0, (size_t)actions * sizeof(*trees->child));
    trees->value_sum[node] = 0.0;
    trees->visits[node] = 0;
    if (trees->gumbel) { /* values of nodes stand in for those of actions that were not tried */
        memcpy(trees->logits + edges, given->logits + root * actions, (size_t)actions * sizeof(*trees->logits));
        trees->own_value[node] = (double)given->value[root];
        stretch(trees, root, trees->own_value[node]);
    }
}

void
begin_root(Trees *trees, ptrdiff_t root, const NewNodes *given)
{
    trees->low[root] = INFINITY;
    trees->high[root] = -INFINITY;
    begin_node(trees, root, 0, given);
    trees->value_sum[root * trees->nodes] = (double)given->value[root];
    trees->visits[root * trees->nodes] = 1;
    if (trees->gumbel) {
        ptrdiff_t first = root * trees->actions, legal = 0;
        for (ptrdiff_t a = 0; a < trees->actions; a++) {
            legal += given->prior[first + a] >= 0.0f;
        }
        memcpy(trees->scores + first, given->scores + first, (size_t)trees->actions * sizeof(*trees->scores));
        trees->considered[root] = (int32_t)(legal < trees->most_considered ? legal : trees->most_considered);
    }
}

void
select_in(Trees *trees, ptrdiff_t root)
{
    ptrdiff_t first = root * trees->nodes, place = 0, action;
    double handed_down = 0.0, scale = scale_of(trees, root);
    for (;;) {
        action = trees->gumbel ? by_gumbel(trees, root, place) : by_puct(trees, root, place, scale, &handed_down);
        int32_t child = trees->child[(first + place) * trees->actions + action];
        if (child == 0) {
            break;
        }
        place = child;
    }
    trees->parent[first + trees->filled] = (int32_t)place;
    trees->action[first + trees->filled] = (int32_t)action;
}

/* Carry the value of the new node up to the root. */
static void
back_up(Trees *trees, ptrdiff_t root, double value)
{
    ptrdiff_t first = root * trees->nodes, node = first + trees->filled;
    for (;;) {
        trees->value_sum[node] += value;
        trees->visits[node] += 1;
        if (node == first) {
            return;
        }
        double q = trees->reward[node] + trees->discount * (trees->value_sum[node] / (double)trees->visits[node]);
        ptrdiff_t above = first + trees->parent[node], edge = above * trees->actions + trees->action[node];
        trees->q[edge] = q;
        trees->made[edge] = trees->visits[node];
        stretch(trees, root, q);
        value = trees->reward[node] + trees->discount * value;
        node = above;
    }
}

void
expand_in(Trees *trees, ptrdiff_t root, const NewNodes *given)
{
    ptrdiff_t first = root * trees->nodes, node = first + trees->filled;
    begin_node(trees, root, trees->filled, given);
    trees->reward[node] = (double)given->reward[root];
    trees->child[(first + trees->parent[node]) * trees->actions + trees->action[node]] = (int32_t)trees->filled;
    back_up(trees, root, (double)given->value[root]);
}
