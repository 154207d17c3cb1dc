"""Every experiment the coordinator knows, and which one is meant: by its id, the beginning of its id, or its name."""

from __future__ import annotations

from collections.abc import Iterator

from remuda.coordinator.experiment.experiment import Experiment
from remuda.coordinator.experiment.finished import FinishedRun
from remuda.training.identity import Identity
from remuda.wire.messages import Rejected

FINISHED_KEPT = 100
"""Runs that are over and still shown and found: those that ended last."""


class Catalog:
    """Those that are queued or running, and among them, oldest first, those that are over."""

    def __init__(self) -> None:
        self._known: dict[str, Experiment | FinishedRun] = {}
        self._experiments: dict[str, Experiment] = {}
        self._finished: dict[str, None] = {}
        """Those that are over and retired, the one that ended first first."""
        self._newest_place = -1
        self.held_up: set[str] = set()
        """Those whose disks take nothing at the moment."""

    def __iter__(self) -> Iterator[Experiment | FinishedRun]:
        return iter(self._known.values())

    def __getitem__(self, id: str) -> Experiment:
        """The experiment with this id that is not over."""
        return self._experiments[id]

    def get(self, id: str) -> Experiment | FinishedRun | None:
        """The one with this id, if there is one."""
        return self._known.get(id)

    @property
    def active(self) -> list[Experiment]:
        """Those that are not over."""
        return [experiment for experiment in self._experiments.values() if not experiment.over]

    def experiment(self, id: str) -> Experiment | None:
        """The one with this id, unless it is not known or retired."""
        return self._experiments.get(id)

    def active_experiment(self, id: str) -> Experiment | None:
        """The one with this id, unless it is over or not known."""
        found = self._experiments.get(id)
        return None if found is None or found.over else found

    def next_place(self) -> int:
        """Of the one that is submitted now, in the order they were submitted in."""
        newest = max((each.identity.submitted for each in self), default=-1)
        self._newest_place = max(newest, self._newest_place) + 1
        return self._newest_place

    def add(self, experiment: Experiment) -> None:
        """One more. An unrecoverable run whose folder it goes on in is not shown any more."""
        run_dir = experiment.identity.run_dir
        replaced = [
            each
            for each in self
            if isinstance(each, FinishedRun) and each.unrecoverable and each.identity.run_dir == run_dir
        ]
        for each in replaced:
            del self._known[each.identity.id]
        self._known[experiment.identity.id] = self._experiments[experiment.identity.id] = experiment

    def add_finished(self, run: FinishedRun) -> None:
        """One more, of which there is no more than this."""
        self._known[run.identity.id] = run
        if not run.unrecoverable:  # what is unrecoverable stays: somebody has to see to it
            self._note_finished(run.identity.id)

    def retire(self, id: str, now_s: float) -> FinishedRun:
        """This one is over and journaled: all that it holds, such as a replay index, is let go."""
        experiment = self._experiments.pop(id)
        self.held_up.discard(id)
        finished = FinishedRun(experiment.identity, experiment.status(now_s))
        self._known[id] = finished
        self._note_finished(id)
        return finished

    def _note_finished(self, id: str) -> None:
        self._finished[id] = None
        while len(self._finished) > FINISHED_KEPT:
            oldest = next(iter(self._finished))
            del self._finished[oldest], self._known[oldest]

    def find(self, query: str) -> Experiment | FinishedRun | Rejected:
        """The one that is meant; a refusal that names those it may be where it is none or several. An empty query,
        which every id begins with, means none: it is a shell's variable that was not set."""
        known: list[Experiment | FinishedRun] = [*self]
        matches = [each for each in known if query and _is_called(each.identity, query)]
        namesakes = [each for each in matches if each.identity.name == query]
        if matches == namesakes:  # incarnations of one run: the one that goes on, else the newest
            matches = [each for each in matches if not each.over] or matches[-1:]
        if len(matches) == 1:
            return matches[0]
        if not matches:
            names = ", ".join(f"{each.identity.name} ({each.identity.id[:8]})" for each in known) or "none"
            return Rejected("unknown", f"no experiment is called {query!r}; known are: {names}")
        ids = ", ".join(each.identity.id for each in matches)
        return Rejected("unknown", f"{query!r} fits several experiments: {ids}; give more of the id")


def _is_called(identity: Identity, query: str) -> bool:
    return identity.id.startswith(query) or identity.name == query
