"""Lineage of a population in a sweep: runs with first checkpoints and returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from remuda.client.sweeps.family import Relative, relatives
from remuda.client.sweeps.record import SweepFile
from remuda.page.stored_runs import RunRow
from remuda.wire.messages import CheckpointRecord

_State = Literal["done", "failed", "under way"]


class Stretch(Struct, frozen=True, kw_only=True):
    """A run between two comparisons."""

    begin: int
    """In env steps, like `end`."""
    end: int
    state: _State
    checkpoint: CheckpointRecord | None
    """At the end; None before the end, and for a failure."""


class Kin(Struct, frozen=True, kw_only=True):
    """A run of the population."""

    name: str
    run: str
    """Id, see RunRow."""
    member: int
    parent: str | None
    """Name of the run with the checkpoint to begin from; None for new weights."""
    origin: CheckpointRecord | None
    """That checkpoint."""
    settings: dict[str, object]
    changed: dict[str, tuple[object, object]]
    """Settings that differ from the parent's: before, and after."""
    replaced: bool
    stretches: list[Stretch]


class Family(Struct, frozen=True, kw_only=True):
    """The whole view."""

    members: int = 0
    """Without a population 0."""
    until_env_steps: list[int] = []
    """Planned end of each interval."""
    runs: list[Kin] = []
    """In the order of their births."""
    problem: str | None = None
    """Reason for an unreadable lineage."""


def family(sweep: str, content: SweepFile, rows: Mapping[str, RunRow]) -> Family:
    """Return the lineage in the sweep.json of a sweep; `rows` by run id know the progress of runs under way."""
    intervals = () if content.lineage is None else content.lineage.intervals
    if content.lineage is None or not intervals:
        return Family()
    runs = {record.name: f"{sweep}/{record.run_dir}" for record in content.runs}
    found = {one.birth.run: one for one in relatives(content.lineage)}
    kin = [_kin(one, found.get(one.birth.parent or ""), runs.get(name, ""), rows) for name, one in found.items()]
    return Family(
        members=len(intervals[-1].origins), until_env_steps=[one.until_env_step for one in intervals], runs=kin
    )


def _kin(one: Relative, parent: Relative | None, run: str, rows: Mapping[str, RunRow]) -> Kin:
    birth = one.birth
    before = {} if parent is None else parent.birth.settings
    return Kin(
        name=birth.run,
        run=run,
        member=birth.member,
        parent=birth.parent,
        origin=birth.checkpoint,
        settings=birth.settings,
        changed={key: (before[key], value) for key, value in birth.settings.items() if before.get(key, value) != value},
        replaced=not one.is_member,
        stretches=_stretches(one, rows[run].env_step if run in rows else 0),
    )


def _stretches(one: Relative, env_step: int) -> list[Stretch]:
    found: list[Stretch] = []
    begin = 0 if one.birth.checkpoint is None else one.birth.checkpoint.env_step
    for at, until in enumerate(one.until_env_steps):
        state: _State
        mark = one.ends[at] if at < len(one.ends) else None
        if mark is not None:
            state, end = "done", mark.env_step
        elif at < len(one.ends):
            state, end = "failed", until
        else:
            state, end = "under way", min(max(env_step, begin), until)
        found.append(Stretch(begin=begin, end=end, state=state, checkpoint=mark))
        begin = end
    return found
