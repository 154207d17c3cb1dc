"""Snapshot of a coordinator's loop, sent every second, and the health derived from it.

A snapshot holds no path and no key, and of foreign text only the names of runs.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from remuda.wire.messages import ExperimentState, ExperimentStatus, RefusalCounts, Role, Used, WorkerState

LOOP_LIMIT_S = 5.0
"""A loop without a snapshot for this long does not turn. Snapshots come every second."""


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
