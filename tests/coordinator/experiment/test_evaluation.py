"""An evaluation: every episode counted exactly once, whoever plays it and whoever dies."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest

from remuda.coordinator.effects import Step
from remuda.coordinator.experiment.evaluation import Evaluation, EvaluationDispatch, Share
from remuda.coordinator.leases import LeaseBook
from remuda.logbook.reports import FilmReport, HistogramReport, Report
from remuda.tests.coordinator.configs import holder
from remuda.tests.training.commander.test_commander import config, record
from remuda.training.commander.callbacks import CallbackBook
from remuda.training.commander.commander import Commander, Save, StartEvaluation
from remuda.training.commander.progress_rows import ProgressRows
from remuda.training.effects import Emit, RecordCheckpoint
from remuda.training.snapshot import EvaluationResult, EvaluationSnapshot
from remuda.wire.messages import (
    MOST_ACTION_DIMENSIONS,
    CheckpointReason,
    CheckpointRecord,
    CheckpointSaved,
    Counters,
    EvaluationDone,
    Film,
    Histogram,
)

RECORD = CheckpointRecord(7, 100, 1.0, None, "iteration_7.pth.tar", "0" * 64, "2026-01-01T00:00:00+00:00")


def evaluation(episodes: int) -> Evaluation:
    return Evaluation(1, RECORD, episodes, started_s=10.0)


def done(
    lease: int,
    first: int,
    returns: list[float],
    lengths: list[int],
    *,
    info: dict[str, list[float]] | None = None,
    actions: dict[str, Histogram] | None = None,
    cut: int = 0,
) -> EvaluationDone:
    """What an evaluator says of its share."""
    return EvaluationDone(lease, 1, first, returns, lengths, 0.1, info=info or {}, actions=actions or {}, cut=cut)


def test_results_of_all_shares_are_gathered_in_order_of_episode_also_over_a_restart() -> None:
    one = evaluation(4)
    one.deal([1, 2])
    seen = {"action": Histogram(0.0, [1.0, 2.0], [30, 40], 60.0)}
    assert one.finished(done(2, 2, [3.0, 4.0], [30, 40], info={"won": [1.0]}, actions=seen, cut=1))
    assert not one.complete
    again = Evaluation.of(one.snapshot(12.0), 20.0)
    seen = {"action": Histogram(0.0, [1.0, 2.0], [5, 25], 30.0)}
    assert again.finished(done(1, 0, [1.0, 2.0], [10, 20], info={"won": [0.0], "boxes": [7.0]}, actions=seen, cut=1))
    assert again.actions == {"action": Histogram(0.0, [1.0, 2.0], [35, 65], 90.0)}
    result = again.result(now_s=20.5)
    assert (result.returns, result.lengths) == ((1.0, 2.0, 3.0, 4.0), (10, 20, 30, 40))
    assert (result.reward_mean, result.duration_s, result.cut) == (2.5, 2.5, 2)
    assert result.info == {"won": [1.0, 0.0], "boxes": [7.0]}
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(result), type=EvaluationResult) == result


@pytest.mark.parametrize(
    ("lease", "first", "returns"), [(3, 0, [1.0, 2.0]), (1, 1, [1.0, 2.0]), (1, 0, [1.0]), (1, 0, [1.0, 2.0, 3.0])]
)
def test_what_was_not_asked_for_is_not_counted(lease: int, first: int, returns: list[float]) -> None:
    one = evaluation(4)
    one.deal([1, 2])
    assert not one.finished(done(lease, first, returns, [1] * len(returns)))
    assert not one.complete


def test_random_losses_never_lose_or_repeat_an_episode() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        one, playing, next_lease = evaluation(rng.randint(1, 12)), dict[int, Share](), 0
        while not one.complete:
            next_lease += 1
            playing.update(one.deal([*playing, next_lease]))
            lease, share = rng.choice(list(playing.items()))
            del playing[lease]
            if rng.random() < 0.4:
                one.lost(lease)
            else:
                episodes = range(share.first_episode, share.first_episode + share.episodes)
                assert one.finished(done(lease, share.first_episode, [float(e) for e in episodes], list(episodes)))
        assert one.result(0.0).returns == tuple(float(e) for e in range(one.episodes))


def test_what_a_worker_invents_of_actions_stays_small() -> None:
    """Other buckets than those before, and more names than there may be: what is journaled can be read again."""
    one = Evaluation(1, RECORD, 3, 0.0)
    one.deal([1, 2, 3])
    huge = Histogram(0.0, [1.0], [2**53], 1e308, 1e308)  # two of them are more than a float holds
    assert one.finished(done(1, 0, [1.0], [1], actions={"action": huge}))
    assert one.finished(done(2, 1, [1.0], [1], actions={"action": huge} | {str(i): huge for i in range(40)}))
    assert one.finished(done(3, 2, [1.0], [1], actions={"action": Histogram(0.0, [2.0], [7])}))
    snapshot = one.snapshot(1.0)
    assert len(snapshot.actions) == MOST_ACTION_DIMENSIONS
    assert snapshot.actions["action"].counts == [2**53]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot), type=EvaluationSnapshot) == snapshot


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


def emitted(steps: Sequence[Step]) -> list[Report]:
    return [step.report for step in steps if isinstance(step, Emit)]


def test_the_actions_of_all_evaluators_are_shown_once_the_evaluation_is_complete() -> None:
    dispatch = dispatching(8, 9)
    dispatch.carry_out([StartEvaluation(record(1_000))], Counters(), 0.0)
    reports: list[Report] = []
    for lease, first, episodes in ((8, 0, 3), (9, 3, 2)):
        returns, lengths = [1.0] * episodes, [10] * episodes
        share = done(lease, first, returns, lengths, actions=ACTIONS)
        assert not any(isinstance(report, HistogramReport) for report in reports)
        reports += emitted(dispatch.played(share, f"worker {lease}", Counters(), 1.0))
    (shown,) = (report for report in reports if isinstance(report, HistogramReport))
    assert (shown.of, shown.train_iter, shown.env_step) == ("actions", 100, 1_000)
    assert shown.histograms == {"action": Histogram(0.0, [1.0, 2.0], [20, 40])}


def test_films_are_shown_of_checkpoints_that_there_are() -> None:
    dispatch = dispatching()
    assert dispatch.outcomes.filmed(FILM, 0, 0) == []
    dispatch.carry_out(dispatch.commander.started(), Counters(), 0.0)
    saved(dispatch, 1, "initial", 257)
    (report,) = emitted(dispatch.outcomes.filmed(FILM, 257, 2_570))
    assert isinstance(report, FilmReport)
    assert (report.film, report.train_iter, report.env_step) == (FILM, 257, 2_570)
    assert dispatch.outcomes.filmed(FILM, 258, 2_580) == []
