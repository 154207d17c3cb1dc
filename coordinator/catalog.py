"""All runs of a coordinator, active or over; found by id, by the beginning of the id, or by name."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from remuda.coordinator.effects import Step
from remuda.coordinator.experiment.experiment import Experiment
from remuda.coordinator.settings import Hold
from remuda.training.effects import Happened, LogLine
from remuda.training.run_snapshot import FinishedRun, Identity
from remuda.wire.messages import Rejected

FINISHED_KEPT = 100
"""Number of finished runs still shown and found: the last runs to end."""


class Catalog:
    """Queued, running and finished experiments, oldest first."""

    def __init__(self) -> None:
        self.known: dict[str, Experiment | FinishedRun] = {}
        """All experiments, by id."""
        self._experiments: dict[str, Experiment] = {}
        self._finished: dict[str, None] = {}
        """Finished and retired runs, in the order of their ends."""
        self._newest_submission = -1
        """Largest number of a submission, also of forgotten runs."""
        self.held_up: set[str] = set()
        """Experiments whose disks accept no writes at the moment."""
        self.preparing: set[str] = set()
        """Ids of experiments whose run folders are being made."""

    def __iter__(self) -> Iterator[Experiment | FinishedRun]:
        return iter(self.known.values())

    def __getitem__(self, id: str) -> Experiment:
        """Return the experiment with this id, unless retired. Raises KeyError."""
        return self._experiments[id]

    @property
    def active(self) -> list[Experiment]:
        """Unfinished experiments."""
        return [experiment for experiment in self._experiments.values() if not experiment.over]

    @property
    def unretired(self) -> Collection[Experiment]:
        """Experiments with a use that is not noted yet: unfinished, or over in this turn."""
        return self._experiments.values()

    def experiment(self, id: str) -> Experiment | None:
        """Return the experiment with this id; None if unknown or retired."""
        return self._experiments.get(id)

    def active_experiment(self, id: str) -> Experiment | None:
        """Return the experiment with this id; None if unknown or over."""
        found = self._experiments.get(id)
        return None if found is None or found.over else found

    def next_submission(self) -> int:
        """Return the number of a new submission."""
        self._newest_submission += 1
        return self._newest_submission

    def add(self, experiment: Experiment) -> None:
        """Add an experiment. An unrecoverable run in the same folder is not shown any more."""
        run_dir = experiment.identity.run_dir
        replaced = [
            each
            for each in self
            if isinstance(each, FinishedRun) and each.unrecoverable and each.identity.run_dir == run_dir
        ]
        for each in replaced:
            del self.known[each.identity.id]
        self._experiments[experiment.identity.id] = experiment
        self._know(experiment)

    def add_finished(self, run: FinishedRun) -> None:
        """Add a finished run."""
        self._know(run)
        if not run.unrecoverable:  # an unrecoverable run stays: a person has to look at it
            self._note_finished(run.identity.id)

    def _know(self, run: Experiment | FinishedRun) -> None:
        self.known[run.identity.id] = run
        self._newest_submission = max(self._newest_submission, run.identity.submitted)

    def retire(self, id: str, now_s: float) -> FinishedRun:
        """Replace a finished and journaled experiment by the result, to free memory."""
        experiment = self._experiments.pop(id)
        self.held_up.discard(id)
        finished = experiment.finished(now_s)
        self.known[id] = finished
        self._note_finished(id)
        return finished

    def set_hold(self, experiment: Experiment, hold: Hold | None) -> None:
        """Set the hold of an experiment; None if its disk accepts writes."""
        experiment.held_up = hold
        (self.held_up.discard if hold is None else self.held_up.add)(experiment.identity.id)

    def hold_up(self, id: str, hold: Hold | None, now_s: float) -> list[Step]:
        """Set the hold of an active experiment, and log a change."""
        experiment = self.active_experiment(id)
        if experiment is None:
            return []
        before = experiment.held_up
        self.set_hold(experiment, hold)
        if hold is None:
            text = f"continues: its disk accepts writes again (before: {'' if before is None else before.why})"
            return [LogLine(id, text), Happened(id, "goes_on", text)]
        if before is not None:
            return []
        text = f"is held up, and no other run is: {hold.explain(now_s)}"
        return [LogLine(id, text, "error"), Happened(id, "held_up", text)]

    def _note_finished(self, id: str) -> None:
        self._finished[id] = None
        while len(self._finished) > FINISHED_KEPT:
            oldest = next(iter(self._finished))
            del self._finished[oldest], self.known[oldest]

    def find(self, query: str) -> Experiment | FinishedRun | Rejected:
        """Return the experiment meant by a user, or a refusal with the candidates. An empty query fits no experiment:
        its source is an unset shell variable."""
        known: list[Experiment | FinishedRun] = [*self]
        matches = [each for each in known if query and _is_called(each.identity, query)]
        namesakes = [each for each in matches if each.identity.name == query]
        if matches == namesakes:  # incarnations of one run: the active one, else the newest
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
