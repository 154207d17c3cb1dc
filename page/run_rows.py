"""One row for each run: what its folder says, and over it what a coordinator says of it now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict, replace

from remuda.page.headlines import Headline, Shares, Tone, headline
from remuda.page.numbers import finite
from remuda.page.run_ids import RunIds, of_policy
from remuda.page.stored_run import PolicyRow, StoredRun, StoredState
from remuda.page.waiting import Queued
from remuda.training.commander.together import mean_return
from remuda.wire.messages import OVER, ExperimentStatus, PolicyStatus, Status


class RunRow(Struct, frozen=True, kw_only=True):
    """A run as the page lists it. See StoredRun and ExperimentStatus."""

    run: str | None
    """None: its folder is not below the runs folder."""
    name: str
    group: str
    seed: int | None = None
    algorithm: str | None = None
    env: str | None = None
    sweep: str | None = None
    mode: Literal["serial", "parallel"] = "parallel"
    experiment: str | None = None
    state: StoredState = "unknown"
    reason: str | None = None
    why: str | None = None
    """What it waits for."""
    priority: int | None = None
    env_step: int = 0
    train_iter: int = 0
    episode: int = 0
    policy_version: int = 0
    wall_s: float = 0.0
    last_return: float | None = None
    best_return: float | None = None
    env_steps_per_s: float | None = None
    train_iters_per_s: float | None = None
    policy_lag: int | None = None
    samples_per_insert: float | None = None
    changed_s: float | None = None
    policies: list[PolicyRow] = []
    """If there are several; the numbers above are then sums, and the returns means."""
    note: str = ""
    """Text that people wrote about the run."""
    tags: list[str] = []
    tone: Tone = "still"
    says: str = ""
    """How it is, and why it waits if it does: a sentence."""
    live: bool = False
    """These are the coordinator's numbers of this moment."""


def run_rows(stored: Iterable[StoredRun], status: Status | None, ids: RunIds) -> list[RunRow]:
    """All runs: first those that are not over, then in the order of `stored`. What a coordinator says goes before
    what the folder says; of several in one folder the newest counts."""
    known = {} if status is None else _by_run(status.experiments, ids)
    folders = [stored_row(each) for each in stored]
    here = {row.run for row in folders}
    rows = [row if row.run not in known else live_row(row, known[row.run]) for row in folders]
    new = [live_row(None, each, run) for run, each in known.items() if run not in here]
    if status is not None:
        new += [live_row(None, each) for each in status.experiments if ids.id_of(each.run_dir) is None]
    return sorted([*new, *rows], key=lambda row: row.state in (*OVER, "unknown"))


def with_headline(row: RunRow, queued: Queued | None, recent: Shares, stop: Mapping[str, object]) -> RunRow:
    """The row with its sentence."""
    said: Headline = headline(row, queued=queued, recent=recent, stop=stop)
    return replace(row, tone=said.tone, says=said.text)


def run_ids(status: Status, ids: RunIds) -> dict[str, str]:
    """The ids of runs by that of their experiment, for those below the runs folder."""
    return {each.id: run for each in status.experiments if (run := ids.id_of(each.run_dir)) is not None}


def stored_row(stored: StoredRun) -> RunRow:
    """The row of a run folder alone."""
    shown = asdict(stored)
    del shown["tasks"]  # marks of the run's curves
    return RunRow(**shown)


def live_row(row: RunRow | None, status: ExperimentStatus, run: str | None = None) -> RunRow:
    """The row with what the coordinator says; `row` is that of its folder, if there is one."""
    base = RunRow(run=run, name=status.name, group=status.name) if row is None else row
    policies = [
        replace(PolicyRow(**asdict(each), run=base.run and of_policy(base.run, each.name)), **_finite(each))
        for each in status.policies
    ]
    found = replace(base, **_of(status), policies=policies, live=status.state not in OVER)
    return replace(found, best_return=mean_return([each.best_return for each in policies])) if policies else found


def _of(status: ExperimentStatus) -> dict[str, object]:
    return {
        "name": status.name,
        "experiment": status.id,
        "state": status.state,
        "reason": status.reason,
        "why": status.waiting_for,
        "priority": status.priority,
        "env_step": status.env_step,
        "train_iter": status.train_iter,
        "episode": status.episode,
        "policy_version": status.policy_version,
        "wall_s": status.wall_s,
        "env_steps_per_s": status.env_steps_per_s,
        "train_iters_per_s": status.train_iters_per_s,
        "policy_lag": status.policy_lag,
        **_finite(status),
    }


def _finite(status: ExperimentStatus | PolicyStatus) -> dict[str, float | None]:
    """What may be missing, or no number."""
    return {
        "last_return": finite(status.last_return),
        "best_return": finite(status.best_return),
        "samples_per_insert": finite(status.samples_per_insert),
    }


def _by_run(experiments: Iterable[ExperimentStatus], ids: RunIds) -> dict[str | None, ExperimentStatus]:
    """The newest of each folder: one that goes on before one that is over."""
    found: dict[str | None, ExperimentStatus] = {}
    for each in experiments:
        run = ids.id_of(each.run_dir)
        before = found.get(run)
        if run is not None and (before is None or before.state in OVER):
            found[run] = each
    return found
