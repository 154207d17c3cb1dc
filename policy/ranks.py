"""Several processes that learn together, each from a part of every batch: what an algorithm sees of the others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Numbers = NDArray[np.float64]


class Ranks(ABC):
    """The learner's ranks. All of them make the same calls in the same order, with tensors of the same shapes, and each
    call waits for the others. So a decision about a further call must be the same in all of them."""

    rank: int = 0
    """Of this process: 0 … world_size - 1. Rank 0 has the first rows of every batch, and so on."""
    world_size: int = 1
    """How many ranks there are."""

    @abstractmethod
    def average(self, weight: float, *tensors: torch.Tensor) -> None:
        """Replace each of these tensors by its average over the ranks, in one message: the gradient, and means.

        Args:
            weight: of this rank: the number of rows or steps over which its tensors are means. With 0 its tensors do
                not count, and may hold anything; where all are 0 the averages are 0.
            tensors: changed in place; the first decides in which type all are averaged.

        Raises:
            RankLostError: another rank has ended, or did not answer in time.
        """

    @abstractmethod
    def gather(self, numbers: Numbers) -> Numbers:
        """Numbers float64 [n] of each rank: float64 [world_size, n], for counts and moments. Raises RankLostError."""


class RankLostError(Exception):
    """A rank has ended or does not answer, so the ranks cannot learn any more."""


class OneRank(Ranks):
    """A learner without others: nothing is changed, and nothing waits."""

    def average(self, weight: float, *tensors: torch.Tensor) -> None:
        """See Ranks."""

    def gather(self, numbers: Numbers) -> Numbers:
        """See Ranks."""
        return numbers[None]


ONE_RANK = OneRank()
