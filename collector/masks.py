"""What the environments of a vector say of legal actions, kept beside what was observed."""

from __future__ import annotations

import numpy as np

from remuda.collector.arrays import Bools
from remuda.collector.trace import Trace
from remuda.environments.legal_actions import ACTION_MASK, Components, Legal, without_any


class Masks:
    """Notes masks in a trace. Whether there are any is decided by the first reset: all rows of a run are alike."""

    def __init__(self, trace: Trace, components: Components) -> None:
        """`components` of actions, see remuda.environments.legal_actions; none where nobody asks for masks."""
        self._trace, self._components = trace, components

    def note(self, legal: Legal | None, *, first: bool = False) -> tuple[int, str] | None:
        """Keep what was said with the newest step or reset of the vector, of which this may be the `first`: bool [env,
        values], which is changed; None if nothing was said.

        Where an episode is over, no action needs to be legal: what is chosen there is not used. Returns the number of
        an environment that is in the wrong, and what is wrong with it.
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
