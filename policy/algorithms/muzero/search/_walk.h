/* From a root to the place of its next node, and from a new node back to the root. */
#ifndef REMUDA_MUZERO_WALK_H
#define REMUDA_MUZERO_WALK_H

#include "_nodes.h"

/* Begin a new tree. */
void begin_root(Trees *trees, ptrdiff_t root, const NewNodes *given);

/* Walk from the root to an action that leads to no node yet: there the next node goes. */
void select_in(Trees *trees, ptrdiff_t root);

/* Add a node where `select_in` said. */
void expand_in(Trees *trees, ptrdiff_t root, const NewNodes *given);

#endif
