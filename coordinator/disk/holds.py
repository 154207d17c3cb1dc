"""Runs held up by the disks, with start and end of each hold; a restart of the coordinator ends no hold."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from remuda.coordinator.disk.run_thread import RunThread
from remuda.coordinator.events import HeldUp, RunBroken
from remuda.coordinator.limits import Hold
from remuda.training.next_command import resume_command

HELD_UP_S = 2.0
"""A run whose disk has accepted no write for this time is held up, until the disk accepts writes again."""
PATIENCE_S = 600.0
"""A run that has been held up for this time has failed."""


@dataclass(frozen=True)
class HeldSince:
    """A hold as stored over a restart."""

    since_s: float
    """By the coordinator's clock; in the list of runs, seconds since 1970."""
    why: str
    room_bytes: int
    """Bytes for which the workers lacked room."""


class Holds:
    """The holds of all runs. For the coordinator's thread."""

    def __init__(
        self,
        keep: Callable[[str, HeldSince | None], None],
        run_dir_of: Callable[[str], Path],
        clock: Callable[[], float],
    ) -> None:
        """`keep` is called with every new or changed hold, and with None at the end of a hold. `run_dir_of` gives the
        run folder of an experiment."""
        self._keep, self._run_dir_of, self._clock = keep, run_dir_of, clock
        self.before: dict[str, HeldSince] = {}
        """Holds of the previous coordinator, of runs not recovered yet."""
        self._held: dict[str, HeldSince] = {}

    def __contains__(self, experiment: str) -> bool:
        return experiment in self._held

    def restore(self, experiment: str, run_thread: RunThread) -> Hold:
        """Continue a hold of the previous coordinator, until the disk has room."""
        listed = self.before.pop(experiment)
        held = self._held[experiment] = replace(listed, since_s=listed.since_s - self._offset_s())
        run_thread.want_room(held.room_bytes)
        return Hold(held.why, held.since_s + PATIENCE_S, journals=True)

    def forget(self, experiment: str) -> None:
        """The run is over."""
        self._held.pop(experiment, None)

    def look(self, experiment: str, run_thread: RunThread, now_s: float) -> HeldUp | RunBroken | None:
        """Return the event about this run's hold, if anything has changed."""
        blocked_s, lacking_s = run_thread.held_up_s(now_s), run_thread.room.lacking_s(now_s)
        known = self._held.get(experiment)
        if max(blocked_s, lacking_s) <= HELD_UP_S:
            if known is None or run_thread.room.wanted_bytes:
                return None
            del self._held[experiment]
            self._keep(experiment, None)
            return HeldUp(experiment, None)
        blocked = blocked_s > HELD_UP_S
        refusal = run_thread.refusal if blocked else run_thread.room.problem
        why = f"its disk refuses: {refusal}" if refusal else "its disk does not answer"
        since_s = now_s - max(blocked_s, lacking_s) if known is None else known.since_s
        if now_s - since_s > PATIENCE_S:
            way_out = f"once it is well, type: {resume_command('submit', self._run_dir_of(experiment))}"
            return RunBroken(experiment, f"{why} ({PATIENCE_S:.0f} s were waited); {way_out}")
        held = HeldSince(since_s, why, run_thread.room.wanted_bytes)
        if held == known:
            return None
        self._held[experiment] = held
        self._keep(experiment, replace(held, since_s=held.since_s + self._offset_s()))
        return HeldUp(experiment, Hold(why, since_s + PATIENCE_S, journals=not blocked))

    def _offset_s(self) -> float:
        """Return the time since 1970 at zero of the coordinator's clock."""
        return time.time() - self._clock()
