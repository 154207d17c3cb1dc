/* The search trees of all roots of a vector: their nodes, and the arithmetic that both rules share.
 *
 * Includes point one way: _tree.c, which ties the trees to Python, then _walk.c, which goes down and up, then _puct.c
 * and _gumbel.c, which choose the action of a walk, then this file.
 */
#ifndef REMUDA_MUZERO_NODES_H
#define REMUDA_MUZERO_NODES_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ILLEGAL -1.0f /* in place of a prior, as in roots.py */

/* Each root has its own nodes, one after the other; what is known of a node's actions lies side by side. */
typedef struct {
    ptrdiff_t roots, actions, nodes; /* nodes: of each root, one more than simulations */
    ptrdiff_t filled;                /* nodes of each root so far; 0 before the first reset */
    double discount;                 /* of the next state's value; negative where two players take turns */
    double sign;                     /* 1 or -1: the next state's value is that of the same player, or of the other */
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
    ptrdiff_t most_considered;
    int32_t *schedule;   /* [most_considered + 1][simulations], as gumbel.py makes it */
    int32_t *considered; /* [roots] */
    double *scores;      /* [roots][actions] noise + logits */
    double *own_value;   /* [roots][nodes] */
    float *logits;       /* [roots][nodes][actions] */
    double *sigma;       /* [actions] of the node that is looked at */
} Trees;

/* What a model says of the nodes that are new in all trees: [roots], [roots][actions]. */
typedef struct {
    const float *reward, *prior, *value;
    const float *logits;  /* for the rule of Gumbel MuZero */
    const double *scores; /* of roots, for the same */
} NewNodes;

/* The action with the highest score so far; of equals that with the highest prior, and of these the first. */
typedef struct {
    double score;
    float prior;
    ptrdiff_t action;
} Best;

#define NONE_YET {-INFINITY, ILLEGAL, 0}

static inline void
offer(Best *best, double score, float prior, ptrdiff_t action)
{
    if (score > best->score || (score == best->score && prior > best->prior)) {
        *best = (Best){score, prior, action};
    }
}

/* By what values above the lowest are multiplied, to lie between 0 and 1. */
static inline double
scale_of(const Trees *trees, ptrdiff_t root)
{
    double range = trees->high[root] - trees->low[root];
    return 1.0 / (range > trees->value_delta_min ? range : trees->value_delta_min);
}

static inline double
normalized(double value, double low, double scale)
{
    value = (value - low) * scale;
    value = value > 0.0 ? value : 0.0;
    return value < 1.0 ? value : 1.0;
}

#endif
