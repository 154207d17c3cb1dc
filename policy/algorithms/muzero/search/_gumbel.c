/* The rule of Gumbel MuZero: what gumbel.py says, in C. */
#include "_gumbel.h"

#include <float.h>
#include <string.h>

/* e to the power of a number that is not positive, 0 below -700. */
static double
exponential(double power)
{
    static const double coefficients[] = {
        1.0,         1.0,          1.0 / 2.0,     1.0 / 6.0,      1.0 / 24.0,      1.0 / 120.0,      1.0 / 720.0,
        1.0 / 5040., 1.0 / 40320., 1.0 / 362880., 1.0 / 3628800., 1.0 / 39916800., 1.0 / 479001600., 1.0 / 6227020800.,
    };
    const double log2_e = 1.4426950408889634;
    const double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;
    if (power < -700.0) {
        return 0.0;
    }
    int64_t halvings = (int64_t)(power * log2_e - 0.5);
    double rest = (power - (double)halvings * ln2_high) - (double)halvings * ln2_low;
    double total = coefficients[13];
    for (int term = 12; term >= 0; term--) {
        total = total * rest + coefficients[term];
    }
    uint64_t bits = (uint64_t)(halvings + 1023) << 52; /* 2 to the power of halvings, as a float64 */
    double factor;
    memcpy(&factor, &bits, sizeof(factor));
    return total * factor;
}

/* Write the transformed completed values of a node's actions to trees->sigma, and return its simulations. */
static double
transform(const Trees *trees, ptrdiff_t root, ptrdiff_t node)
{
    const double *q = trees->q + node * trees->actions;
    const float *prior = trees->prior + node * trees->actions;
    const int32_t *made = trees->made + node * trees->actions;
    double mass = 0.0, total = 0.0, simulations = 0.0;
    int32_t most = 0;
    for (ptrdiff_t a = 0; a < trees->actions; a++) {
        if (made[a] > 0) {
            double weight = (double)(prior[a] > FLT_MIN ? prior[a] : FLT_MIN);
            mass += weight;
            total += weight * q[a];
            simulations += (double)made[a];
            most = made[a] > most ? made[a] : most;
        }
    }
    double mean = total / (mass > 0.0 ? mass : 1.0);
    double mixed = (trees->own_value[node] + simulations * mean) / (1.0 + simulations); /* of actions not tried */
    double factor = (trees->c_visit + (double)most) * trees->c_scale;
    double low = trees->low[root], scale = scale_of(trees, root);
    for (ptrdiff_t a = 0; a < trees->actions; a++) {
        trees->sigma[a] = factor * normalized(made[a] > 0 ? q[a] : mixed, low, scale);
    }
    return simulations;
}

/* At a root: the action with the highest score among those that were simulated as often as it is due. */
static ptrdiff_t
by_halving(const Trees *trees, ptrdiff_t root)
{
    ptrdiff_t node = root * trees->nodes, simulations = trees->nodes - 1;
    const double *scores = trees->scores + root * trees->actions;
    const float *prior = trees->prior + node * trees->actions;
    const int32_t *made = trees->made + node * trees->actions;
    int32_t wanted = trees->schedule[trees->considered[root] * simulations + trees->filled - 1];
    Best best = NONE_YET;
    transform(trees, root, node);
    for (ptrdiff_t a = 0; a < trees->actions; a++) {
        if (made[a] == wanted && prior[a] >= 0.0f) {
            offer(&best, scores[a] + trees->sigma[a], prior[a], a);
        }
    }
    return best.action;
}

/* Below the roots: the action whose share of the simulations is furthest below its probability. */
static ptrdiff_t
by_improved_policy(const Trees *trees, ptrdiff_t root, ptrdiff_t node)
{
    const float *prior = trees->prior + node * trees->actions, *logits = trees->logits + node * trees->actions;
    const int32_t *made = trees->made + node * trees->actions;
    double simulations = transform(trees, root, node), *scores = trees->sigma, highest = -INFINITY, total = 0.0;
    for (ptrdiff_t a = 0; a < trees->actions; a++) {
        scores[a] = (double)logits[a] + scores[a];
        highest = scores[a] > highest ? scores[a] : highest;
    }
    for (ptrdiff_t a = 0; a < trees->actions; a++) {
        scores[a] = exponential(scores[a] - highest);
        total += scores[a];
    }
    Best best = NONE_YET;
    for (ptrdiff_t a = 0; a < trees->actions; a++) {
        offer(&best, scores[a] / total - (double)made[a] / (1.0 + simulations), prior[a], a);
    }
    return best.action;
}

ptrdiff_t
by_gumbel(const Trees *trees, ptrdiff_t root, ptrdiff_t place)
{
    return place == 0 ? by_halving(trees, root) : by_improved_policy(trees, root, root * trees->nodes + place);
}
