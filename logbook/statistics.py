"""Statistics of a few values, of which there may be none."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remuda.wire.messages import MetricMean


@dataclass(frozen=True)
class Statistics:
    """Mean, population standard deviation, largest, smallest and median; all nan if there are no values."""

    mean: float = math.nan
    std: float = math.nan
    max: float = math.nan
    min: float = math.nan
    median: float = math.nan

    @classmethod
    def of(cls, values: Sequence[float] | NDArray[np.generic]) -> Statistics:
        """Take the values of any shape."""
        array = np.asarray(values, dtype=np.float64)
        if array.size == 0:
            return cls()
        ordered = np.sort(array, axis=None)  # np.median alone takes four times as long as all that is here
        smallest, largest = float(ordered[0]), float(ordered[-1])
        if math.isnan(largest):
            return cls()
        with np.errstate(all="ignore"):  # an infinite reward is the user's; it must not end a log
            median = float((ordered[(array.size - 1) // 2] + ordered[array.size // 2]) / 2)
            return cls(float(array.mean()), float(array.std()), largest, smallest, median)

    def named(self, quantity: str) -> dict[str, float]:
        """The five under `<quantity>_mean` and so on."""
        return {f"{quantity}_{statistic}": value for statistic, value in vars(self).items()}

    def besides_mean(self, quantity: str) -> dict[str, float]:
        """The other four, under `<quantity>_std` and so on."""
        return {name: value for name, value in self.named(quantity).items() if name != f"{quantity}_mean"}


def episode_statistics(
    returns: Sequence[float], lengths: Sequence[float], info: Mapping[str, Sequence[float]]
) -> dict[str, float]:
    """Five statistics each of the episodes' returns (`reward_mean` …), lengths, and further values."""
    quantities: dict[str, Sequence[float]] = {"reward": returns, "length": lengths, **info}
    return {
        name: value for key, values in quantities.items() for name, value in Statistics.of(values).named(key).items()
    }


def mean(values: NDArray[np.float64]) -> float:
    """The mean alone, which takes a tenth of the time of all five; nan if there are no values."""
    with np.errstate(all="ignore"):
        return float(values.mean()) if values.size else math.nan


def merged(infos: Iterable[Mapping[str, Sequence[float]]]) -> dict[str, list[float]]:
    """Further values of the episodes of several stretches, in order, by name."""
    all_: dict[str, list[float]] = {}
    for info in infos:
        for name, values in info.items():
            all_.setdefault(name, []).extend(values)
    return all_


def weighted_means(chunks: Iterable[Mapping[str, MetricMean]]) -> dict[str, float]:
    """The mean of each metric over the steps of several chunks, by name; always finite."""
    all_: dict[str, list[MetricMean]] = {}
    for chunk in chunks:
        for name, mean in chunk.items():
            all_.setdefault(name, []).append(mean)
    steps = {name: sum(mean.steps for mean in means) for name, means in all_.items()}
    return {name: sum(mean.mean * (mean.steps / steps[name]) for mean in means) for name, means in all_.items()}


def ratio(total: float, count: float) -> float:
    """Divide; nan if the divisor is 0."""
    return total / count if count > 0 else math.nan
