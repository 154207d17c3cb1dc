"""Which experiment is meant: by its id, the beginning of its id, or its name."""

from __future__ import annotations

from collections.abc import Sequence

from remuda.coordinator.experiment import Experiment
from remuda.coordinator.lost_run import LostRun
from remuda.wire.messages import Rejected


def find(query: str, known: Sequence[Experiment | LostRun]) -> Experiment | LostRun | Rejected:
    """The one of those `known`, oldest first, that is meant; a refusal that names them where it is none or several."""
    matches = [each for each in known if each.identity.id.startswith(query) or each.identity.name == query]
    namesakes = [each for each in matches if each.identity.name == query]
    if matches == namesakes:  # lives of one run: the one that goes on, else the newest
        matches = [each for each in matches if not each.over] or matches[-1:]
    if len(matches) == 1:
        return matches[0]
    if not matches:
        names = ", ".join(f"{each.identity.name} ({each.identity.id[:8]})" for each in known) or "none"
        return Rejected("unknown", f"no experiment is called {query!r}; known are: {names}")
    ids = ", ".join(each.identity.id for each in matches)
    return Rejected("unknown", f"{query!r} fits several experiments: {ids}; give more of the id")
