"""What ranks compute together: averages of tensors, and numbers of each, over their lines to rank 0."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from remuda.learner.ranks.line import Line, Message
from remuda.policy.ranks import Numbers, Ranks

_SMALLEST_WEIGHT = 1e-30


class RankGroup(Ranks):
    """One rank's part in what all compute together. Each rank sends its numbers to rank 0, which adds them in the order
    of the ranks and sends back the sum: so all have the same to the last bit. Tensors of a GPU go through the host."""

    def __init__(self, rank: int, world_size: int, lines: Sequence[Line]) -> None:
        """`lines`: in rank 0 to all others, in order; in the others to rank 0."""
        self.rank, self.world_size = rank, world_size
        self._lines = lines
        self.spent_s = 0.0
        """Seconds spent in these calls, most of them waiting for other ranks."""

    def average(self, weight: float, *tensors: torch.Tensor) -> None:
        """See Ranks."""
        begun_s = time.perf_counter()
        sums = _weighted(weight, tensors)
        self._sum(sums.numpy())
        sums[:-1].div_(sums[-1].clamp(min=_SMALLEST_WEIGHT))
        start = 0
        for tensor in tensors:
            tensor.detach().copy_(sums[start : start + tensor.numel()].view(tensor.shape))
            start += tensor.numel()
        self.spent_s += time.perf_counter() - begun_s

    def gather(self, numbers: Numbers) -> Numbers:
        """See Ranks."""
        begun_s = time.perf_counter()
        by_rank: Numbers = np.zeros((self.world_size, len(numbers)))
        by_rank[self.rank] = numbers
        self._sum(by_rank)
        self.spent_s += time.perf_counter() - begun_s
        return by_rank

    def _sum(self, numbers: NDArray[np.number]) -> None:
        """Replace these numbers, in each rank as many and contiguous, by their sum over all ranks."""
        mine = numbers.data.cast("B")
        if self.rank:
            (to_rank_0,) = self._lines
            to_rank_0.send(Message.NUMBERS, mine)
            to_rank_0.receive_into(Message.NUMBERS, numbers)
            return
        others = np.empty_like(numbers)
        for line in self._lines:
            line.receive_into(Message.NUMBERS, others)
            numbers += others
        for line in self._lines:
            line.send(Message.NUMBERS, mine)


def _weighted(weight: float, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """All numbers of the tensors times the weight, and the weight itself: one vector on the host."""
    sizes = [tensor.numel() for tensor in tensors]
    dtype = torch.float64 if tensors[0].dtype == torch.float64 else torch.float32
    vector = torch.empty(sum(sizes) + 1, dtype=dtype)
    start = 0
    for tensor, size in zip(tensors, sizes, strict=True):
        vector[start : start + size].copy_(tensor.detach().reshape(-1))
        start += size
    if weight:
        vector[-1] = 1.0
        vector.mul_(weight)
    else:
        vector.zero_()
    return vector
