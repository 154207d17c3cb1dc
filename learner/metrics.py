"""The algorithm's metrics of each update, kept on the learner's device until they are reported."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from remuda.logbook.statistics import Statistics, mean

KEPT = 1_000_000
"""The most numbers of a metric that are kept: the newest. There are more only if reports are very far apart."""
JOINED = 1_000
"""After this number of updates their metrics become one tensor: small tensors take much more memory than their
numbers."""


class Metrics:
    """Collects the metrics of updates; adding some does not wait for the device."""

    def __init__(self, with_statistics: Collection[str]) -> None:
        """`with_statistics` is Declaration's."""
        self._with_statistics = with_statistics
        self._told: dict[str, list[float | torch.Tensor]] = {}
        self._updates = 0

    def add(self, metrics: Mapping[str, float | torch.Tensor]) -> None:
        """Keep the metrics of an update; see LearnResult."""
        for name, values in metrics.items():
            self._told.setdefault(name, []).append(values)
        self._updates += 1
        if self._updates % JOINED == 0:
            self._told = {name: _joined(values) for name, values in self._told.items()}

    @property
    def is_empty(self) -> bool:
        """Whether there was no update since the last `take`."""
        return not self._told

    def take(self) -> dict[str, float]:
        """Sum up the metrics since the last call; empty if there was no update. Waits for the device.

        First the average of each metric by its name, then the other statistics of those with statistics. Every number
        has the same weight; for a metric with one number per row, that means every row.
        """
        told, self._told = self._told, {}
        averages: dict[str, float] = {}
        others: dict[str, float] = {}
        for name, values in told.items():
            if name in self._with_statistics:
                statistics = Statistics.of(on_host(values))
                averages[name] = statistics.mean
                others |= statistics.besides_mean(name)
            else:
                averages[name] = mean(on_host(values))
        return averages | others


def on_host(values: Sequence[float | torch.Tensor]) -> NDArray[np.float64]:
    """All numbers in them: float64 [n]. Waits for the device."""
    numbers, tensors = _apart(values)
    parts = [np.array(numbers, np.float64)] + [tensor.detach().cpu().double().numpy() for tensor in tensors]
    return np.concatenate(parts)


def _joined(values: Sequence[float | torch.Tensor]) -> list[float | torch.Tensor]:
    """The newest KEPT of the plain numbers, and of those in tensors, which become one."""
    numbers, tensors = _apart(values)
    joined = torch.cat(tensors)[-KEPT:] if tensors else None
    return [*([] if joined is None else [joined]), *numbers[-KEPT:]]


def _apart(values: Sequence[float | torch.Tensor]) -> tuple[list[float], list[torch.Tensor]]:
    """Plain numbers, and at most two tensors [n] with all that tensors hold, longer ones first."""
    numbers: list[float] = [value for value in values if not isinstance(value, torch.Tensor)]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    single = [tensor for tensor in tensors if not tensor.dim()]
    longer = [tensor if tensor.dim() == 1 else tensor.flatten() for tensor in tensors if tensor.dim()]
    return numbers, [*([torch.cat(longer)] if longer else []), *([torch.stack(single)] if single else [])]
