"""A chunk of experience from a rollout, and the error for unusable experience."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from remuda.buffer.chunk import chunk_name
from remuda.collector.steps import Slots
from remuda.environments.spaces import Array
from remuda.wire.messages import ChunkId, ChunkMeta, MetricMean, PolicyRef


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
