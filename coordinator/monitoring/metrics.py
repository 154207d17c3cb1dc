"""The metrics of a coordinator and the text format, version 0.0.4 of Prometheus.

prometheus_client would replace 50 of these lines, for 46 ms of import; the server of prometheus_client does not limit
open connections.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from msgspec.structs import asdict

from remuda.coordinator.monitoring.snapshot import RunMeasures, Snapshot
from remuda.wire.messages import ExperimentState, Used

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


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
