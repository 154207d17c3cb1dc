/* The rule of Gumbel MuZero. */
#ifndef REMUDA_MUZERO_GUMBEL_H
#define REMUDA_MUZERO_GUMBEL_H

#include "_nodes.h"

/* The action that the rule chooses, of the node at this place among the root's nodes. */
ptrdiff_t by_gumbel(const Trees *trees, ptrdiff_t root, ptrdiff_t place);

#endif
