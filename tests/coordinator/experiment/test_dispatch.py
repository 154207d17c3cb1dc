"""What the learner has saved is listed, once: nothing that lies in ckpt/ is missing from index.json."""

from __future__ import annotations

from remuda.coordinator.effects import Step
from remuda.coordinator.experiment.evaluation import EvaluationDispatch
from remuda.coordinator.leases import LeaseBook
from remuda.logbook.reports import FilmReport, HistogramReport, Report
from remuda.tests.coordinator.holders import holder
from remuda.tests.training.commander.test_commander import config, record
from remuda.training.commander.callbacks import CallbackBook
from remuda.training.commander.commander import Commander, Save, StartEvaluation
from remuda.training.commander.progress_rows import ProgressRows
from remuda.training.effects import Emit, RecordCheckpoint
from remuda.wire.messages import (
    CheckpointReason,
    CheckpointSaved,
    Counters,
    EvaluationDone,
    EvaluationFilmed,
    Film,
    Histogram,
)

LEARNER = 7


def dispatching(*evaluators: int) -> EvaluationDispatch:
    """With a learner and evaluators, by lease."""
    leases = LeaseBook(0)
    leases.open(holder(LEARNER, "learner", "worker")).ready = True
    for lease in evaluators:
        leases.open(holder(lease, "evaluator", f"worker {lease}")).ready = True
    return EvaluationDispatch(
        "experiment",
        Commander(config()),
        leases,
        ProgressRows(config(), None),
        CallbackBook("experiment", active=False),
    )


def saved(dispatch: EvaluationDispatch, request: int, reason: CheckpointReason, train_iter: int) -> list[int]:
    """Returns what is listed because of it."""
    message = CheckpointSaved(LEARNER, request, reason, record(10 * train_iter))
    steps: list[Step] = dispatch.saved(message, Counters(), 0.0)
    return [step.record.train_iter for step in steps if isinstance(step, RecordCheckpoint)]


def test_a_save_that_is_under_way_when_the_last_one_is_asked_for_is_listed_too() -> None:
    dispatch = dispatching()
    dispatch.carry_out([Save("interval")], Counters(), 0.0)
    dispatch.carry_out(dispatch.commander.save_final(), Counters(), 0.0)
    assert saved(dispatch, 1, "interval", 257) == [257]
    assert saved(dispatch, 1, "interval", 257) == [], "said again, over a restart"
    assert saved(dispatch, 2, "final", 264) == [264]
    assert saved(dispatch, 2, "final", 264) == []


FILM = Film(b"GIF89a", 4, 6)
ACTIONS = {"action": Histogram(0.0, [1.0, 2.0], [10, 20])}


def emitted(steps: list[Step]) -> list[Report]:
    return [step.report for step in steps if isinstance(step, Emit)]


def test_the_actions_of_all_evaluators_are_shown_once_the_evaluation_is_complete() -> None:
    dispatch = dispatching(8, 9)
    dispatch.carry_out([StartEvaluation(record(1_000))], Counters(), 0.0)
    reports: list[Report] = []
    for lease, first, episodes in ((8, 0, 3), (9, 3, 2)):
        returns, lengths = [1.0] * episodes, [10] * episodes
        done = EvaluationDone(lease, 1, first, returns, lengths, 0.1, actions=ACTIONS)
        assert not any(isinstance(report, HistogramReport) for report in reports)
        reports += emitted(dispatch.played(done, f"worker {lease}", Counters(), 1.0))
    (shown,) = (report for report in reports if isinstance(report, HistogramReport))
    assert (shown.of, shown.train_iter, shown.env_step) == ("actions", 100, 1_000)
    assert shown.histograms == {"action": Histogram(0.0, [1.0, 2.0], [20, 40])}


def test_films_are_shown_of_checkpoints_that_there_are() -> None:
    dispatch = dispatching()
    assert dispatch.filmed(EvaluationFilmed(8, 0, 0, FILM)) == []
    dispatch.carry_out(dispatch.commander.started(), Counters(), 0.0)
    saved(dispatch, 1, "initial", 257)
    (report,) = emitted(dispatch.filmed(EvaluationFilmed(8, 257, 2_570, FILM)))
    assert isinstance(report, FilmReport)
    assert (report.film, report.train_iter, report.env_step) == (FILM, 257, 2_570)
    assert dispatch.filmed(EvaluationFilmed(8, 258, 2_580, FILM)) == []
