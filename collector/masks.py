"""Legal actions of a vector, stored beside the observations."""

from __future__ import annotations

import numpy as np

from remuda.collector.arrays import Bools
from remuda.collector.trace import Trace
from remuda.environments.legal_actions import ACTION_MASK, Components, Legal, without_any


class Masks:
    """Stores masks in a trace. The first reset decides if masks exist, since all rows of a run are alike."""

    def __init__(self, trace: Trace, components: Components) -> None:
        """`components` of actions, see remuda.environments.legal_actions; empty without masks."""
        self._trace, self._components = trace, components

    def note(self, legal: Legal | None, *, first: bool = False) -> tuple[int, str] | None:
        """Store the masks of the newest step or reset, bool [env, values], or None without masks. Changes the array.
        `first` marks the first reset.

        No action needs to be legal at the end of an episode. Returns the index of a faulty environment and its fault,
        or None.
        """
        trace, components = self._trace, self._components
        if first and legal is not None:
            trace.keep_legal(sum(components))
        if legal is not None and (stuck := without_any(legal, components)).any():
            wrong: Bools = stuck & ~trace.over[trace.end - 1]
            if wrong.any():
                said = f"has no legal action in an episode that goes on (info[{ACTION_MASK!r}])"
                return int(np.argmax(wrong)), said
            legal[stuck] = True
        if trace.keeps_legal:
            trace.note_legal(legal)
        elif legal is not None and not legal.all():
            late = f"says which actions are legal (info[{ACTION_MASK!r}]), but did not with its first reset,"
            return int(np.argmin(np.all(legal, axis=1))), late
        return None
