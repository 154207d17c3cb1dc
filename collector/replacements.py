"""Environments of a vector that broke and were made again during a chunk, and the episodes that this cut."""

from __future__ import annotations

import numpy as np

from remuda.collector.arrays import Bools
from remuda.collector.trace import Trace


class Replacements:
    """Of one chunk."""

    def __init__(self) -> None:
        self.count = 0
        """Environments that were made again."""
        self._cuts: list[tuple[int, Bools]] = []
        """Slots of the trace, and whose episodes [env] end there without a return."""

    def cut(self, replaced: Bools, trace: Trace) -> None:
        """Truncate the episodes of those [env] that were made again in the step that is appended next."""
        self._cuts.append((trace.end - 1, trace.truncate(replaced)))

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
