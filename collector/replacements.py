"""Environments of a vector that broke and were made again during a chunk, and the episodes that this cut."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from remuda.collector.arrays import Bools
from remuda.collector.trace import Trace
from remuda.environments.faults import REPLACED


class Replacements:
    """Of one chunk."""

    def __init__(self) -> None:
        self.count = 0
        """Environments that were made again."""
        self._cuts: list[tuple[int, Bools]] = []
        """Slots of the trace, and whose episodes [env] end there without a return."""

    def note_reset(self, info: Mapping[str, object]) -> None:
        """Count those of a reset of all environments, by its `info`."""
        self.count += int(np.count_nonzero(_replaced(info)))

    def note(self, info: Mapping[str, object], trace: Trace) -> int:
        """Truncate the episodes of those that were made again in the step that is appended next, by its `info`.

        Return how many were not being reset anyway: for these, too, it is no step, but a reset."""
        replaced = _replaced(info)
        self.count += int(np.count_nonzero(replaced))
        return self.cut(replaced, trace)

    def cut(self, replaced: Bools, trace: Trace) -> int:
        """As `note`, of lanes [env] of environments that are counted apart: several may be of the same one."""
        cut = trace.truncate(replaced)
        self._cuts.append((trace.end - 1, cut))
        return int(np.count_nonzero(cut))

    def cuts(self, trace: Trace) -> Bools | None:
        """Where new slots end an episode that has no return, [time, env]; None if none does."""
        if not self._cuts:
            return None
        ends = np.zeros((trace.end - trace.kept, trace.num_envs), np.bool_)
        for slot, cut in self._cuts:
            if slot >= trace.kept:
                ends[slot - trace.kept] = cut
        return ends

    def cut_before(self, trace: Trace) -> Bools | None:
        """Whose episodes [env] ended with the slot before the new ones; None where no such thing is known."""
        return next((cut for slot, cut in self._cuts if slot == trace.kept - 1), None)


def _replaced(info: Mapping[str, object]) -> Bools:
    return np.asarray(info[REPLACED], np.bool_)
