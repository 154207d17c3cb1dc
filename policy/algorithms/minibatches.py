"""How the rows of a batch, of which every rank has a part, are shuffled into minibatches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def shuffled(
    rng: np.random.Generator, *, whole: int, first: int, own: int, shares: int
) -> tuple[NDArray[np.int64], list[int]]:
    """Deal all rows of a batch out to minibatches whose sizes differ by at most one.

    Args:
        rng: shuffles; the same in all ranks.
        whole: rows in the whole batch.
        first: rows in the parts of lower ranks.
        own: rows in the part of this rank.
        shares: the number of minibatches, at most `whole`.

    Returns:
        Rows of this rank's part, those of the first minibatch first, and how many each minibatch has of them.
    """
    order = rng.permutation(whole) - first
    here = (order >= 0) & (order < own)
    begins = [share * (whole // shares) + min(share, whole % shares) for share in range(shares)]
    return order[here], np.add.reduceat(here, begins, dtype=np.int64).tolist()
