"""Every experiment the coordinator knows, and which one is meant: by its id, the beginning of its id, or its name."""

from __future__ import annotations

from collections.abc import Iterator

from remuda.coordinator.experiment.experiment import Experiment
from remuda.coordinator.experiment.finished import FinishedRun
from remuda.training.identity import Identity
from remuda.wire.messages import Rejected

PAST_KEPT = 100
"""Runs that are over and still shown and found: those that ended last."""


class Catalog:
    """Those that are queued or running, and among them, oldest first, those that are over."""

    def __init__(self) -> None:
        self._known: dict[str, Experiment | FinishedRun] = {}
        self._in_hand: dict[str, Experiment] = {}
        self._past: dict[str, None] = {}
        """Those that are past and not lost, the one that ended first first."""
        self._newest_place = -1
        self.held_up: set[str] = set()
        """Those whose disks take nothing at the moment."""

    def __iter__(self) -> Iterator[Experiment | FinishedRun]:
        return iter(self._known.values())

    def __getitem__(self, id: str) -> Experiment:
        """The experiment with this id that is not over."""
        return self._in_hand[id]

    def get(self, id: str) -> Experiment | FinishedRun | None:
        """The one with this id, if there is one."""
        return self._known.get(id)

    @property
    def going_on(self) -> list[Experiment]:
        """Those that are not over."""
        return [experiment for experiment in self._in_hand.values() if not experiment.over]

    def in_hand(self, id: str) -> Experiment | None:
        """The one with this id, unless it is past or not known."""
        return self._in_hand.get(id)

    def going_on_as(self, id: str) -> Experiment | None:
        """The one with this id, unless it is over or not known."""
        found = self._in_hand.get(id)
        return None if found is None or found.over else found

    def next_place(self) -> int:
        """Of the one that is submitted now, in the order they were submitted in."""
        newest = max((each.identity.submitted for each in self), default=-1)
        self._newest_place = max(newest, self._newest_place) + 1
        return self._newest_place

    def add(self, experiment: Experiment) -> None:
        """One more. A lost run whose folder it goes on in is not shown any more."""
        run_dir = experiment.identity.run_dir
        lost = [
            each for each in self if isinstance(each, FinishedRun) and each.lost and each.identity.run_dir == run_dir
        ]
        for each in lost:
            del self._known[each.identity.id]
        self._known[experiment.identity.id] = self._in_hand[experiment.identity.id] = experiment

    def add_past(self, run: FinishedRun) -> None:
        """One more, of which there is no more than this."""
        self._known[run.identity.id] = run
        if not run.lost:  # what is lost stays: somebody has to see to it
            self._note_past(run.identity.id)

    def retire(self, id: str, now_s: float) -> FinishedRun:
        """This one is over and journaled: all that it holds, such as a replay index, is let go."""
        experiment = self._in_hand.pop(id)
        self.held_up.discard(id)
        past = FinishedRun(experiment.identity, experiment.status(now_s))
        self._known[id] = past
        self._note_past(id)
        return past

    def _note_past(self, id: str) -> None:
        self._past[id] = None
        while len(self._past) > PAST_KEPT:
            oldest = next(iter(self._past))
            del self._past[oldest], self._known[oldest]

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
