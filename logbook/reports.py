"""Reports: frozen types, shown by every view in the same way."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from msgspec.structs import asdict
from tabulate import tabulate

from remuda.config.declaration import BESIDES_MEAN
from remuda.logbook.lines import Value, grid
from remuda.logbook.series import EventKind, Usage
from remuda.wire.messages import Film, Histogram, LedgerCounts

Topic = Literal[
    "collect",
    "episode",
    "evaluation",
    "learn",
    "buffer_sample",
    "buffer_throughput",
    "collector_worker",
    "evaluator_worker",
    "vitals",
    "event",
    "weights",
    "actions",
    "film",
    "callback",
    "callback_histogram",
]
"""Topic of a report; a logbook has a list of views for each topic."""


@dataclass(frozen=True, kw_only=True)
class Report(ABC):
    """Base of reports: position in the run, values in order, and text for a log."""

    train_iter: int
    """Gradient updates done at the time of the report."""
    env_step: int
    """Environment steps counted at the time of the report."""

    _topic: ClassVar[Topic]

    @property
    def topic(self) -> Topic:
        """Topic, which decides the views."""
        return self._topic

    @abstractmethod
    def fields(self) -> dict[str, Value]:
        """Return the values under their promised names, in their promised order."""

    @abstractmethod
    def text(self) -> str:
        """Format the report for a text log."""


class LogTarget(Protocol):
    """File that grows piece by piece."""

    @property
    def path(self) -> Path:
        """Path of the file."""
        ...


class View(Protocol):
    """Shows reports in one file."""

    @property
    def file(self) -> LogTarget:
        """Path of the file."""
        ...

    def show(self, report: Report) -> None:
        """Write the report to the file. Raises OSError."""
        ...


@dataclass(frozen=True, kw_only=True)
class HistogramReport(Report):
    """Histograms of the weights of a checkpoint, of the actions in its evaluation, or of numbers that a callback
    logs."""

    of: Literal["weights", "actions", "callback_histogram"]
    histograms: Mapping[str, Histogram]
    """By layer, by the action's number, or by the callback's name for the numbers."""

    @property
    def topic(self) -> Topic:
        return self.of

    def fields(self) -> dict[str, Value]:
        return {name: sum(histogram.counts) for name, histogram in self.histograms.items()}

    def text(self) -> str:
        return f"histograms of {self.of}: {', '.join(self.histograms)}"


@dataclass(frozen=True, kw_only=True)
class FilmReport(Report):
    """The first episode of a checkpoint's evaluation as a film."""

    _topic: ClassVar[Topic] = "film"
    film: Film

    def fields(self) -> dict[str, Value]:
        return {"height": self.film.height, "width": self.film.width, "bytes": len(self.film.gif)}

    def text(self) -> str:
        return f"a film of {len(self.film.gif)} bytes"


@dataclass(frozen=True, kw_only=True)
class EventReport(Report):
    """A worker joined or left, the run was held up, and the like."""

    _topic: ClassVar[Topic] = "event"
    wall_s: float
    """Seconds since the run began."""
    kind: EventKind
    what: str
    """In words."""
    role: str | None = None
    """Role of the worker concerned; None, like `worker`, for an event without a worker."""
    worker: str | None = None
    """UUID of the worker."""

    def fields(self) -> dict[str, Value]:
        return {"event": self.kind, "role": self.role or "", "worker": self.worker or ""}

    def text(self) -> str:
        return self.what


@dataclass(frozen=True, kw_only=True)
class LearnReport(Report):
    """The algorithm's metrics since the last report."""

    _topic: ClassVar[Topic] = "learn"
    variables: Mapping[str, float]
    """Average of each metric by name; for some metrics also other statistics, like `total_loss_max` of `total_loss`."""
    settings: Mapping[str, float] = field(default_factory=dict[str, float])
    """Current values of numeric settings that may change, by dotted key."""
    world_size: int = 1
    """Number of ranks that learned together; shown if above 1."""

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
    """Numbers logged by a callback of the user."""

    _topic: ClassVar[Topic] = "callback"
    callback: str
    """Class name of the callback."""
    wall_s: float
    """Seconds since the run began."""
    numbers: Mapping[str, float]

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

    _topic: ClassVar[Topic] = "buffer_sample"
    sample_count: int
    """Batches drawn since the run began."""
    use_avg: float
    """Average count of draws of a drawn row; nan without draws, like all numbers below."""
    use_max: float
    priority_avg: float
    priority_max: float
    priority_min: float
    staleness_avg: float
    """Age in gradient updates: train_iter of the learner minus train_iter of the acting policy."""
    staleness_max: float

    def fields(self) -> dict[str, Value]:
        return {name: value for name, value in vars(self).items() if name.endswith(("_avg", "_max", "_min"))}

    def text(self) -> str:
        return f"=== Sample data {self.sample_count} Times ===\n{grid(self.fields())}"


@dataclass(frozen=True, kw_only=True)
class BufferThroughputReport(Report):
    """Number of rows that passed through the replay index in the past seconds."""

    _topic: ClassVar[Topic] = "buffer_throughput"
    wall_s: float
    """Seconds since the run began; x of the curves."""
    past_s: float
    """Seconds covered by the report."""
    pushed_in: int
    sampled_out: int
    removed: int
    current_have: int
    """Rows in the index now."""
    samples_per_insert: float = math.nan
    """Average count of samples per row since the run began; nan before training."""
    policy_lag: int = 0
    """Versions between the newest policy and the policy that collected the newest chunk."""
    ledger: LedgerCounts | None = None
    """Counts of accepted and lost chunks, only in the time series."""
    num_transitions: int = 0
    """Environment steps in the rows of the index: one per row, or the length of a segment."""
    num_collected_episodes: int = 0
    """Episodes since the run began."""
    payload_bytes: int = 0
    """Bytes of the experience behind the rows in the index, and of experience that the learner still has to load."""
    reanalyze_time_ms: float | None = None
    """Average time of reanalyzers for a chunk of the past seconds; nan without chunks, None in runs without
    reanalyzers."""

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


@dataclass(frozen=True, kw_only=True)
class VitalsReport(Report):
    """All roles of a run over the past seconds."""

    _topic: ClassVar[Topic] = "vitals"
    wall_s: float
    """Seconds since the run began; x of the curves."""
    past_s: float
    """Seconds covered by the report."""
    roles: Sequence[Usage]
    workers: Mapping[str, Usage] = field(default_factory=dict[str, Usage])
    """Usage of workers by UUID, for a limited number of workers; only in the time series."""
    episode: int = 0
    policy_version: int = 0

    def fields(self) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for vitals in self.roles:
            found |= {f"{vitals.role}_{name}": value for name, value in asdict(vitals).items() if name != "role"}
        return found

    def text(self) -> str:
        names = Usage.__struct_fields__
        heads, *rows = [[name, *(_cell(name, getattr(vitals, name)) for vitals in self.roles)] for name in names]
        table = tabulate(rows, headers=heads, tablefmt="grid", disable_numparse=True)
        return f"Where the past {round(self.past_s, 1):g} seconds went:\n{table}"


def _cell(name: str, value: str | float) -> str:
    if isinstance(value, str | int):
        return str(value)
    if name == "cpu_cores":
        return f"{value:.2f}"
    return f"{value:.0f}" if name == "rss_mib" else f"{100 * value:.1f} %"
