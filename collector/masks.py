"""What the environments of a vector say of legal actions, kept beside what was observed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from remuda.collector.n_step import Bools
from remuda.collector.trace import Trace
from remuda.environments.legal_actions import ACTION_MASK, Components, legal_of_vector, without_any


class Masks:
    """Notes masks in a trace. Whether there are any is decided by the first reset: all rows of a run are alike."""

    def __init__(self, trace: Trace, components: Components) -> None:
        """`components` of actions, see remuda.environments.legal_actions; none where nobody asks for masks."""
        self._trace, self._components = trace, components

    def note(self, info: Mapping[str, object], *, first: bool = False) -> tuple[int, str] | None:
        """Keep what was said with the newest step or reset of the vector, of which this may be the `first`.

        Where an episode is over, no action needs to be legal: what is chosen there is not used. Returns the number of
        an environment that is in the wrong, and what is wrong with it. Raises ValueError for a mask of another shape.
        """
        trace, components = self._trace, self._components
        if not components:
            return None
        if first and ACTION_MASK in info:
            trace.keep_legal(sum(components))
        legal = legal_of_vector(info, num_envs=trace.num_envs, components=components)
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
