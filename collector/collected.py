"""A chunk of experience from a rollout, the metrics of its policy, and the errors for unusable experience."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

import numpy as np

from remuda.buffer.chunk import chunk_name
from remuda.collector.steps import Slots
from remuda.environments.spaces import Array
from remuda.policy.base import Policy
from remuda.wire.messages import LARGEST_METRIC, ChunkId, ChunkMeta, MetricMean, PolicyRef


class CorruptExperienceError(ValueError):
    """Unusable experience: a number that is not finite, or an impossible ending."""

    def __init__(self, problem: str, *, env_index: int, vector_step: int) -> None:
        super().__init__(f"environment {env_index} {problem} at step {vector_step} of the vector")
        self.env_index = env_index
        self.vector_step = vector_step


@dataclass(frozen=True)
class Collected:
    """A chunk of experience, ready to be written."""

    columns: dict[str, Array]
    """By name; see NStepRows, SegmentRows and UnrollRows. Observations are float32 (or float64, see
    Actor.keeps_float64) or the space's integer type, actions the space's type."""
    env_steps: int
    """Environment steps really taken for this chunk (resets not counted)."""
    policy: PolicyRef
    """The oldest policy of the chunk."""
    episode_returns: list[float]
    """Undiscounted, unclipped, of whole games; in order of ending."""
    episode_lengths: list[int]
    collect_s: float
    episode_info: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Further numbers of the episodes, by name: the discounted return and the requested info. Episodes without a number
    are left out."""
    metrics: dict[str, MetricMean] = field(default_factory=dict[str, MetricMean])
    """Metrics of the policy for these steps; see Policy.collected_metrics."""
    counts: Counter[str] = field(default_factory=Counter[str])
    """Counted events, by their names in logs and curves."""
    task: int = 0
    """Number of the task."""
    slots: Slots | None = None
    """All slots of the chunk, if they are kept."""

    @property
    def rows(self) -> int:
        """Rows in every column."""
        return len(self.columns["reward"])

    def meta(self, chunk: ChunkId) -> ChunkMeta:
        """Return the metadata, without size and checksum of the payload file; see write_chunk."""
        return ChunkMeta(
            chunk=chunk,
            file=chunk_name(chunk),
            rows=self.rows,
            env_steps=self.env_steps,
            payload_bytes=sum(column.nbytes for column in self.columns.values()),
            checksum=0,
            policy=self.policy,
            collect_s=self.collect_s,
            episode_returns=self.episode_returns,
            episode_lengths=self.episode_lengths,
            episode_info=self.episode_info,
            metrics=self.metrics,
            task=self.task,
        )


class MetricError(ValueError):
    """Undeclared metrics of a policy, or metrics for the wrong number of steps."""


def metric_means(policy: Policy, columns: Mapping[str, Array], names: Set[str], *, steps: int) -> dict[str, MetricMean]:
    """Compute a policy's metrics for a chunk; return the mean of each over the steps with a value, by name. A metric
    without a value is left out. `columns`: see Policy.collected_metrics; `names`: Declaration.collected.

    Raises MetricError for an unknown name, or for other than one number per step.
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
