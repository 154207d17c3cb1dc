"""Reports about learning: the algorithm's metrics, what callbacks log of it, and the replay that it learns from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from remuda.config.declaration import BESIDES_MEAN
from remuda.logbook.grid_format import Value, grid
from remuda.logbook.reports import Report, Topic
from remuda.wire.messages import LedgerCounts


@dataclass(frozen=True, kw_only=True)
class LearnReport(Report):
    """The algorithm's metrics since the last report."""

    variables: Mapping[str, float]
    """The average of each metric by its name; of some metrics the other statistics too, as `total_loss_max` of
    `total_loss`."""
    settings: Mapping[str, float] = field(default_factory=dict[str, float])
    """Numbers of the config that may change, as they are now, by dotted key."""
    world_size: int = 1
    """The ranks that learned together; shown if there are several."""

    @property
    def topic(self) -> Topic:
        return "learn"

    def fields(self) -> dict[str, Value]:
        ranks: dict[str, Value] = {"world_size": self.world_size} if self.world_size > 1 else {}
        variables: dict[str, Value] = {self._shown(name): value for name, value in self.variables.items()}
        return ranks | variables | {f"settings/{key}": value for key, value in self.settings.items()}

    def text(self) -> str:
        return f"=== Training Iteration {self.train_iter} Result ===\n{grid(self.fields())}"

    def _shown(self, name: str) -> str:
        metric, _, statistic = name.rpartition("_")
        return name if statistic in BESIDES_MEAN and metric in self.variables else f"{name}_avg"


@dataclass(frozen=True, kw_only=True)
class CallbackReport(Report):
    """Numbers that a callback of the user logs."""

    callback: str
    """Its class."""
    wall_s: float
    """Seconds since the run began."""
    numbers: Mapping[str, float]

    @property
    def topic(self) -> Topic:
        return "callback"

    def fields(self) -> dict[str, Value]:
        return dict(self.numbers)

    def text(self) -> str:
        return f"=== Callback {self.callback} at env_step {self.env_step} ===\n{grid(self.fields())}"

    def record(self) -> dict[str, float]:
        """The numbers as a row for experiment trackers."""
        return {"env_step": float(self.env_step), **{f"callback/{name}": n for name, n in self.numbers.items()}}


@dataclass(frozen=True, kw_only=True)
class BufferSampleReport(Report):
    """Statistics of the rows drawn since the last report."""

    sample_count: int
    """Batches drawn since the run began."""
    use_avg: float
    """How often a drawn row was drawn until now; nan if none was drawn, like all below."""
    use_max: float
    priority_avg: float
    priority_max: float
    priority_min: float
    staleness_avg: float
    """Age in gradient updates: the learner's train_iter less that of the policy that acted."""
    staleness_max: float

    @property
    def topic(self) -> Topic:
        return "buffer_sample"

    def fields(self) -> dict[str, Value]:
        return {
            "use_avg": self.use_avg,
            "use_max": self.use_max,
            "priority_avg": self.priority_avg,
            "priority_max": self.priority_max,
            "priority_min": self.priority_min,
            "staleness_avg": self.staleness_avg,
            "staleness_max": self.staleness_max,
        }

    def text(self) -> str:
        return f"=== Sample data {self.sample_count} Times ===\n{grid(self.fields())}"


@dataclass(frozen=True, kw_only=True)
class BufferThroughputReport(Report):
    """The number of rows that went through the replay index in the past seconds."""

    wall_s: float
    """Seconds since the run began; the x of its curves."""
    past_s: float
    """Seconds it covers."""
    pushed_in: int
    sampled_out: int
    removed: int
    current_have: int
    """Rows in the index now."""
    samples_per_insert: float = math.nan
    """How often a row was sampled on average since the run began; nan before training."""
    policy_lag: int = 0
    """Versions between the newest policy and the one that collected the newest chunk."""
    ledger: LedgerCounts | None = None
    """How the chunks of the run fared, only in the time series."""
    num_transitions: int = 0
    """Environment steps that the rows in the index hold: one each, or those of a segment."""
    num_collected_episodes: int = 0
    """Episodes since the run began."""
    payload_bytes: int = 0
    """Bytes of the experience that the rows in the index belong to, and of what the learner has still to load."""
    reanalyze_time_ms: float | None = None
    """How long reanalyzers took for a chunk on average, of those that came in the past seconds; nan if none came, None
    in runs without reanalyzers."""

    @property
    def topic(self) -> Topic:
        return "buffer_throughput"

    def fields(self) -> dict[str, Value]:
        fields: dict[str, Value] = {
            "pushed_in": self.pushed_in,
            "sampled_out": self.sampled_out,
            "removed": self.removed,
            "current_have": self.current_have,
            "samples_per_insert": self.samples_per_insert,
            "policy_lag": self.policy_lag,
            "num_transitions": self.num_transitions,
            "num_collected_episodes": self.num_collected_episodes,
            "memory_usage_mb/buffer": self.payload_bytes / 2**20,
        }
        return fields if self.reanalyze_time_ms is None else {**fields, "reanalyze_time_ms": self.reanalyze_time_ms}

    def text(self) -> str:
        past = f"{round(self.past_s, 1):g}"
        return f"In the past {past} seconds, buffer statistics is as follows:\n{grid(self.fields())}"
