/* The rule of MuZero. */
#ifndef REMUDA_MUZERO_PUCT_H
#define REMUDA_MUZERO_PUCT_H

#include "_nodes.h"

/* The action with the highest score, of the node at this place among the root's nodes. `scale` is the tree's,
 * `handed_down` is the mean of the level above, and is replaced by this one's. */
ptrdiff_t by_puct(const Trees *trees, ptrdiff_t root, ptrdiff_t place, double scale, double *handed_down);

#endif
