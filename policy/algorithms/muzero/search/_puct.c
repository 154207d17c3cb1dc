/* The rule of MuZero: what puct.py says, in C. */
#include "_puct.h"

/* What an action that was not tried counts as: the mean of those that were, and below the root of one more. */
static double
mean_q(const Trees *trees, ptrdiff_t edges, double inherited, bool at_root)
{
    const double *q = trees->q + edges;
    const int32_t *made = trees->made + edges;
    double total = 0.0;
    ptrdiff_t tried = 0;
    for (ptrdiff_t a = 0; a < trees->actions; a++) {
        total += q[a]; /* 0 where it was not tried */
        tried += made[a] > 0;
    }
    return at_root ? total / (double)(tried > 0 ? tried : 1) : (inherited + total) / (double)(tried + 1);
}

ptrdiff_t
by_puct(const Trees *trees, ptrdiff_t root, ptrdiff_t place, double scale, double *handed_down)
{
    ptrdiff_t node = root * trees->nodes + place, edges = node * trees->actions;
    const double *q = trees->q + edges;
    const float *prior = trees->prior + edges;
    const int32_t *made = trees->made + edges;
    double mean = mean_q(trees, edges, *handed_down, place == 0);
    double explore = trees->exploration[trees->visits[node] - 1];
    double low = trees->low[root];
    Best best = NONE_YET;
    for (ptrdiff_t a = 0; a < trees->actions; a++) {
        if (prior[a] >= 0.0f) {
            double value = normalized(made[a] > 0 ? q[a] : mean, low, scale);
            offer(&best, explore / (double)(made[a] + 1) * (double)prior[a] + value, prior[a], a);
        }
    }
    *handed_down = trees->sign * mean;
    return best.action;
}
