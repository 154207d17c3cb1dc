"""Means of a policy's metrics over the steps of a chunk."""

from __future__ import annotations

from collections.abc import Mapping, Set

import numpy as np

from remuda.environments.spaces import Array
from remuda.policy.base import Policy
from remuda.wire.messages import LARGEST_METRIC, MetricMean


class MetricError(ValueError):
    """Undeclared metrics of a policy, or metrics for the wrong number of steps."""


def metric_means(policy: Policy, columns: Mapping[str, Array], names: Set[str], *, steps: int) -> dict[str, MetricMean]:
    """Compute a policy's metrics for a chunk, and return the mean of each over the steps with a value.

    Args:
        policy: the acting policy.
        columns: see Policy.collected_metrics; each [steps, …].
        names: Declaration.collected.
        steps: number of steps.

    Returns:
        By name. A metric without a value is left out.

    Raises:
        MetricError: an unknown name, or not one number for each step.
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
