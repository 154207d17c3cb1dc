"""Every experiment the coordinator knows, and which one is meant: by its id, the beginning of its id, or its name."""

from __future__ import annotations

from collections.abc import Iterator

from remuda.coordinator.experiment import Experiment
from remuda.coordinator.lost_run import LostRun
from remuda.wire.messages import Rejected


class Experiments:
    """Queued, under way and over, oldest first; and beside them the runs that could not be taken up."""

    def __init__(self) -> None:
        self._experiments: dict[str, Experiment] = {}
        self._lost: list[LostRun] = []

    def __iter__(self) -> Iterator[Experiment]:
        return iter(self._experiments.values())

    def __getitem__(self, id: str) -> Experiment:
        return self._experiments[id]

    def get(self, id: str) -> Experiment | None:
        """The experiment with this id, if there is one."""
        return self._experiments.get(id)

    @property
    def going_on(self) -> list[Experiment]:
        """Those that are not over."""
        return [experiment for experiment in self if not experiment.over]

    @property
    def shown(self) -> list[Experiment | LostRun]:
        """All that status shows."""
        return [*self._lost, *self]

    @property
    def next_place(self) -> int:
        """Of the one that is submitted next, in the order they were submitted in."""
        return 1 + max((experiment.identity.submitted for experiment in self), default=-1)

    def add(self, experiment: Experiment) -> None:
        """One more. A lost run whose folder it goes on in is not shown any more."""
        self._experiments[experiment.identity.id] = experiment
        run_dir = experiment.identity.run_dir
        self._lost = [lost for lost in self._lost if lost.identity.run_dir != run_dir]

    def add_lost(self, lost: LostRun) -> None:
        """A run that a coordinator before this one had in hand and that cannot be taken up."""
        self._lost.append(lost)

    def find(self, query: str) -> Experiment | LostRun | Rejected:
        """The one that is meant; a refusal that names those it may be where it is none or several."""
        known = self.shown
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
