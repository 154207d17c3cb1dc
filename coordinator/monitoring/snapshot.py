"""Snapshot of a coordinator's loop, sent every second, with health and metrics derived from the snapshot.

A snapshot holds no path and no key, and of foreign text only the names of runs. Metrics have the text format of
Prometheus, version 0.0.4: prometheus_client would replace 50 of these lines, for 46 ms of import, and the server of
prometheus_client does not limit open connections.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import asdict

from remuda.wire.messages import ExperimentState, ExperimentStatus, RefusalCounts, Role, Used, WorkerState

LOOP_LIMIT_S = 5.0
"""A loop without a snapshot for this long does not turn. Snapshots come every second."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class RunMeasures(Struct, frozen=True):
    """Measures of an experiment. See ExperimentStatus."""

    experiment: str
    name: str
    state: ExperimentState
    env_step: int
    train_iter: int
    episode: int
    policy_version: int
    wall_s: float
    policy_lag: int
    samples_per_insert: float | None
    last_return: float | None
    best_return: float | None
    user: str = ""
    project: str = ""
    used: Used = Used()

    @staticmethod
    def of(status: ExperimentStatus) -> RunMeasures:
        """Return the measures in a status."""
        return RunMeasures(
            experiment=status.id,
            name=status.name,
            state=status.state,
            env_step=status.env_step,
            train_iter=status.train_iter,
            episode=status.episode,
            policy_version=status.policy_version,
            wall_s=status.wall_s,
            policy_lag=status.policy_lag,
            samples_per_insert=status.samples_per_insert,
            last_return=status.last_return,
            best_return=status.best_return,
            user=status.user,
            project=status.project,
            used=status.used,
        )


class Snapshot(Struct, frozen=True, kw_only=True):
    """The coordinator at a moment."""

    measured_s: float
    """By the clock shared by all processes of a machine (`time.monotonic`)."""
    version: str
    """Of Remuda."""
    protocol: int
    uptime_s: float
    draining: bool
    """True during shutdown."""
    turns: int
    """Turns of the loop since the start."""
    longest_turn_s: float
    """In the last minute."""
    descriptors: int
    descriptor_limit: int
    rss_bytes: int
    cpu_s: float
    """Processor time since the start."""
    workers: dict[Role, dict[WorkerState, int]]
    refusals: RefusalCounts
    malformed: int
    """Number of unreadable messages."""
    journal_lag_s: float
    """Longest time that a write has been waiting for a run's disk; 0 without a waiting write."""
    held_up: int
    """Runs whose disks accept no writes."""
    runs: list[RunMeasures]


class Health(Struct, frozen=True):
    """The answer to `/health`."""

    status: Literal["ok", "starting", "stalled", "draining"]
    reason: str = ""
    """Empty for a healthy coordinator."""
    loop_age_s: float | None = None
    """Age of the newest snapshot; null before the first."""

    @property
    def is_well(self) -> bool:
        """True if the coordinator takes work."""
        return self.status == "ok"


def health(snapshot: Snapshot | None, now_s: float) -> Health:
    """Judge; `now_s` is by the clock of `Snapshot.measured_s`."""
    if snapshot is None:
        return Health("starting", "the coordinator is starting: its loop does not turn yet")
    age_s = round(max(now_s - snapshot.measured_s, 0.0), 3)
    if age_s > LOOP_LIMIT_S:
        reason = f"the coordinator's loop has not turned for {age_s:.1f} s; {LOOP_LIMIT_S:g} s are allowed"
        return Health("stalled", reason, age_s)
    if snapshot.draining:
        return Health("draining", "the coordinator is shutting down", age_s)
    return Health("ok", "", age_s)


@dataclass(frozen=True)
class Sample:
    """A value, with distinct labels within the family."""

    value: float
    labels: Mapping[str, str]


@dataclass(frozen=True)
class Family:
    """All samples of a metric. A counter's name ends in `_total`."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    samples: tuple[Sample, ...]

    @staticmethod
    def single(name: str, kind: Literal["counter", "gauge"], help: str, value: float) -> Family:
        """Return a family with a single sample and no labels."""
        return Family(name, kind, help, (Sample(value, {}),))


def exposition_text(families: Iterable[Family]) -> str:
    """Return the text of all families with samples."""
    return "".join(f"{line}\n" for family in families if family.samples for line in _lines(family))


def _lines(family: Family) -> list[str]:
    head = [f"# HELP {family.name} {_help(family.help)}", f"# TYPE {family.name} {family.kind}"]
    return head + [f"{family.name}{_labels(sample.labels)} {_number(sample.value)}" for sample in family.samples]


def _labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{_value(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _help(help: str) -> str:
    return help.replace("\\", "\\\\").replace("\n", "\\n")


def _value(value: str) -> str:
    """Escape a label's value. Half of a surrogate pair, impossible in UTF-8, becomes a question mark."""
    encodable = value.encode(errors="replace").decode()
    return encodable.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


_Kind = Literal["counter", "gauge"]


@dataclass(frozen=True)
class _OfRuns:
    name: str
    kind: _Kind
    help: str
    value: Callable[[RunMeasures], float | None]
    """None: no value yet."""


_OF_RUNS = (
    _OfRuns("remuda_env_steps_total", "counter", "Environment steps in accepted chunks.", lambda run: run.env_step),
    _OfRuns("remuda_train_iters_total", "counter", "Gradient updates.", lambda run: run.train_iter),
    _OfRuns("remuda_episodes_total", "counter", "Training episodes that ended.", lambda run: run.episode),
    _OfRuns("remuda_policy_version", "gauge", "The newest published policy.", lambda run: run.policy_version),
    _OfRuns("remuda_run_seconds", "gauge", "Duration of the run.", lambda run: run.wall_s),
    _OfRuns(
        "remuda_policy_lag_versions",
        "gauge",
        "Versions between the newest policy and the policy that collected the newest experience.",
        lambda run: run.policy_lag,
    ),
    _OfRuns(
        "remuda_samples_per_insert_ratio",
        "gauge",
        "Average number of samples per row.",
        lambda run: run.samples_per_insert,
    ),
    _OfRuns("remuda_last_return", "gauge", "Mean return of the last evaluation.", lambda run: run.last_return),
    _OfRuns("remuda_best_return", "gauge", "Mean return of the best evaluation.", lambda run: run.best_return),
)


def families(snapshot: Snapshot | None, now_s: float) -> Iterator[Family]:
    """Return all metrics; before the first snapshot, only `remuda_up` with value 0."""
    yield Family.single("remuda_up", "gauge", "1 once the coordinator's loop runs.", 0 if snapshot is None else 1)
    if snapshot is None:
        return
    yield from _of_process(snapshot, now_s)
    yield from _of_herd(snapshot)
    for each in _OF_RUNS:
        values = ((run, each.value(run)) for run in snapshot.runs)
        samples = tuple(Sample(value, _who(run)) for run, value in values if value is not None)
        yield Family(each.name, each.kind, each.help, samples)
    for name, help, amount in _USED:
        used = tuple(
            Sample(amount(run.used), {**_who(run), "user": run.user, "project": run.project}) for run in snapshot.runs
        )
        yield Family(name, "counter", help, used)


_USED: tuple[tuple[str, str, Callable[[Used], float]], ...] = (
    ("remuda_used_worker_seconds_total", "Time of workers at a run.", lambda used: used.worker_us / 1e6),
    ("remuda_used_gpu_seconds_total", "Time of GPUs at a run.", lambda used: used.gpu_us / 1e6),
    ("remuda_used_cpu_seconds_total", "Processor time of workers for a run.", lambda used: used.cpu_us / 1e6),
    ("remuda_used_env_steps_total", "Environment steps since the submission.", lambda used: used.env_steps),
    ("remuda_used_updates_total", "Computed updates, repeated updates included.", lambda used: used.updates),
    ("remuda_used_payload_bytes_total", "Size of the counted chunks.", lambda used: used.payload_bytes),
)


def _of_process(snapshot: Snapshot, now_s: float) -> Iterator[Family]:
    about = {"version": snapshot.version, "protocol": str(snapshot.protocol)}
    yield Family("remuda_info", "gauge", "The coordinator's version; always 1.", (Sample(1, about),))
    single = Family.single
    yield single("remuda_uptime_seconds", "gauge", "Time since the start of the coordinator.", snapshot.uptime_s)
    yield single("remuda_draining", "gauge", "1 during a shutdown.", int(snapshot.draining))
    yield single(
        "remuda_snapshot_age_seconds",
        "gauge",
        "Age of these numbers, which the loop renews every second.",
        max(now_s - snapshot.measured_s, 0.0),
    )
    yield single("remuda_loop_turns_total", "counter", "Turns of the coordinator's loop.", snapshot.turns)
    yield single(
        "remuda_loop_longest_turn_seconds",
        "gauge",
        "The longest turn of the loop in the last minute; no request is answered during a turn.",
        snapshot.longest_turn_s,
    )
    yield single("remuda_resident_memory_bytes", "gauge", "Memory of the coordinator's process.", snapshot.rss_bytes)
    yield single("remuda_cpu_seconds_total", "counter", "Processor time of the coordinator's process.", snapshot.cpu_s)
    if snapshot.descriptor_limit:  # measured some seconds after the start
        yield single("remuda_open_descriptors", "gauge", "Open files and connections.", snapshot.descriptors)
        yield single(
            "remuda_descriptor_limit", "gauge", "Limit of open files and connections.", snapshot.descriptor_limit
        )
    yield single(
        "remuda_journal_lag_seconds",
        "gauge",
        "Longest present wait for a disk that accepts no writes; 0 without waits.",
        snapshot.journal_lag_s,
    )


def _of_herd(snapshot: Snapshot) -> Iterator[Family]:
    workers = tuple(
        Sample(count, {"role": role, "state": state})
        for role, counts in snapshot.workers.items()
        for state, count in counts.items()
    )
    yield Family("remuda_workers", "gauge", "Registered workers, by role and state.", workers)
    states: dict[str, int] = dict.fromkeys(get_args(ExperimentState), 0)
    for run in snapshot.runs:
        states[run.state] += 1
    experiments = tuple(Sample(count, {"state": state}) for state, count in states.items())
    yield Family("remuda_experiments", "gauge", "Experiments by state; `queued` is the queue's length.", experiments)
    yield Family.single(
        "remuda_held_up_experiments", "gauge", "Experiments whose disks accept no writes.", snapshot.held_up
    )
    refusals = tuple(Sample(count, {"reason": reason}) for reason, count in asdict(snapshot.refusals).items())
    yield Family("remuda_refusals_total", "counter", "Refused connections and requests, by reason.", refusals)
    yield Family.single(
        "remuda_malformed_messages_total", "counter", "Messages that could not be read.", snapshot.malformed
    )


def _who(run: RunMeasures) -> dict[str, str]:
    return {"run": run.name, "experiment": run.experiment}
