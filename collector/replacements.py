"""Environments replaced during a chunk, and the episodes cut by that."""

from __future__ import annotations

import numpy as np

from remuda.collector.arrays import Bools
from remuda.collector.trace import Trace


class Replacements:
    """Replaced environments of one chunk."""

    def __init__(self) -> None:
        self.count = 0
        """Number of replaced environments."""
        self._cuts: list[tuple[int, Bools]] = []
        """Slots of the trace, and the environments [env] with an episode cut there, without a return."""

    def cut(self, replaced: Bools, trace: Trace) -> None:
        """Truncate the episodes of environments [env] replaced in the next appended step."""
        self._cuts.append((trace.end - 1, trace.truncate(replaced)))

    def cuts(self, trace: Trace) -> Bools | None:
        """Return the new slots, [time, env], at which episodes without a return end; None without any."""
        if not self._cuts:
            return None
        ends = np.zeros((trace.end - trace.kept, trace.num_envs), np.bool_)
        for slot, cut in self._cuts:
            if slot >= trace.kept:
                ends[slot - trace.kept] = cut
        return ends

    def cut_before(self, trace: Trace) -> Bools | None:
        """Return the environments [env] with an episode cut right before the new slots; None without any."""
        return next((cut for slot, cut in self._cuts if slot == trace.kept - 1), None)
