"""The means of the metrics that a policy has of the steps it was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Set

import numpy as np

from remuda.environments.spaces import Array
from remuda.policy.base import Policy
from remuda.wire.messages import LARGEST_METRIC, MetricMean


class MetricError(ValueError):
    """A policy returned metrics that its algorithm did not declare, or of other steps than it was asked for."""


def metric_means(policy: Policy, columns: Mapping[str, Array], names: Set[str], *, steps: int) -> dict[str, MetricMean]:
    """Ask a policy once for the metrics of a chunk, and return the mean of each over the steps that have a value.

    Args:
        policy: the one that acted.
        columns: see Policy.collected_metrics; each [steps, …].
        names: Declaration.collected.
        steps: how many there are.

    Returns:
        By name. A metric without a value is left out.

    Raises:
        MetricError: the policy returned another name, or not one number for each step.
    """
    means: dict[str, MetricMean] = {}
    for name, of_steps in policy.collected_metrics(columns).items():
        if name not in names:
            raise MetricError(f"{_who(policy)} returned {name!r}, which its declaration does not list in `collected`")
        values = np.asarray(of_steps, np.float64)
        if values.shape != (steps,):
            raise MetricError(f"{_who(policy)} returned {name!r} of shape {values.shape} for {steps} steps")
        finite = values[np.abs(values) <= LARGEST_METRIC]  # nor nan
        if finite.size:
            means[name] = MetricMean(float(finite.mean()), finite.size)
    return means


def _who(policy: Policy) -> str:
    return f"{type(policy).__name__}.collected_metrics"
