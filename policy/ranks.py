"""Interface between an algorithm and the other ranks of its learner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Numbers = NDArray[np.float64]


class Ranks(ABC):
    """The ranks of a learner. All ranks make the same calls in the same order, with tensors of the same shapes; each
    call waits for all ranks. Decide about further calls from values that are equal in all ranks."""

    rank: int = 0
    """Index of this process, 0 … world_size - 1. Rank 0 has the first rows of a batch, rank 1
    the next, and so on."""
    world_size: int = 1
    """Number of ranks."""

    @abstractmethod
    def average(self, weight: float, *tensors: torch.Tensor) -> None:
        """Replace each of these tensors by its average over the ranks, in one message: gradients and means.

        Args:
            weight: number of rows or steps behind the means in this rank's tensors. With weight 0 the tensors
                do not count and may hold anything. If all weights are 0, the averages are 0.
            tensors: changed in place; the dtype of the first tensor is used for all sums.

        Raises:
            RankLostError: another rank has ended, or did not answer in time.
        """

    @abstractmethod
    def gather(self, numbers: Numbers) -> Numbers:
        """Return the numbers of all ranks, float64 [n] each, as float64 [world_size, n]: counts and moments. Raises
        RankLostError."""


class RankLostError(Exception):
    """A rank has ended or does not answer, so the ranks cannot continue."""


class OneRank(Ranks):
    """A learner without other ranks: `average` changes nothing, and no call waits."""

    def average(self, weight: float, *tensors: torch.Tensor) -> None:
        """See Ranks."""

    def gather(self, numbers: Numbers) -> Numbers:
        return numbers[None]


ONE_RANK = OneRank()
