"""What follows from a checkpoint that was saved or evaluated: entries, lines and events, and the next decisions."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from remuda.config.workers import StopConfig
from remuda.logbook.episode_reports import EvaluationReport
from remuda.tests.training.commander import test_without_evaluations as without_evaluations
from remuda.tests.training.commander.test_commander import config, record, result
from remuda.training.commander.callbacks import CallbackBook
from remuda.training.commander.commander import Commander, StartEvaluation
from remuda.training.commander.end import End, evaluation_is_too_late, longer_s
from remuda.training.commander.outcomes import Outcome, Outcomes
from remuda.training.commander.progress_rows import ProgressRows
from remuda.training.effects import Emit, Happened, LogLine, RecordCheckpoint, RecordReward
from remuda.wire.messages import Counters

RUN = "a run"


def begun(**stop: object) -> tuple[Outcomes, Commander]:
    settings = config(**stop)
    commander = Commander(settings)
    commander.started()
    return Outcomes(RUN, commander, ProgressRows(settings), CallbackBook(RUN, active=False)), commander


def test_a_checkpoint_is_listed_and_kept_while_it_is_played() -> None:
    outcomes, commander = begun()
    outcome = outcomes.saved("initial", record(0))
    keep = commander.config.checkpoint.keep
    assert outcome.effects == [RecordCheckpoint(RUN, record(0), keep=keep, interrupted=False, in_use=(0,))]
    assert outcome.decisions == [StartEvaluation(record(0))]


def test_the_last_checkpoint_of_a_run_that_was_stopped_is_the_one_that_was_interrupted() -> None:
    for reason, interrupted in (("stopped", True), ("max_env_steps", False), ("OSError: no", False)):
        outcomes, commander = begun()
        commander.end(End(reason, "because"), skip_final_evaluation=True)
        (before,) = outcomes.saved("interval", record(500)).effects
        (listed,) = outcomes.saved("final", record(700)).effects
        assert isinstance(before, RecordCheckpoint)
        assert isinstance(listed, RecordCheckpoint)
        assert (before.interrupted, listed.interrupted) == (False, interrupted), reason


def test_an_evaluation_is_shown_entered_and_said_in_this_order() -> None:
    outcomes, commander = begun()
    outcomes.saved("initial", record(0))
    shown, entered, said = outcomes.evaluated(result(0, 3.0, 5.0)).effects
    assert isinstance(shown, Emit)
    assert isinstance(shown.report, EvaluationReport)
    assert (shown.report.returns, shown.report.best, shown.report.ckpt_name) == ((3.0, 5.0), True, record(0).file)
    assert entered == RecordReward(RUN, 0, 4.0, best=True, task=commander.curriculum.name, kwargs_json="")
    assert isinstance(said, LogLine)
    assert (said.level, "mean return 4 over 2 episodes (the best so far)" in said.text) == ("info", True)
    *_, said = outcomes.evaluated(replace(result(0, 3.0, 5.0), cut=1)).effects
    assert isinstance(said, LogLine)
    assert (said.level, said.text.endswith("; 1 of them cut at evaluator.max_episode_steps")) == ("warning", True)


def test_training_episodes_evaluate_once_there_are_enough() -> None:
    settings = without_evaluations.config(window=2)
    commander, progress = Commander(settings), ProgressRows(settings)
    outcomes = Outcomes(RUN, commander, progress, CallbackBook(RUN, active=False))
    commander.started()
    outcomes.saved("initial", record(0))
    assert outcomes.evaluated_by_training(record(0)) == Outcome()
    progress.chunk(without_evaluations.chunk(0, 2.0, 4.0))
    entered, said, happened = outcomes.evaluated_by_training(record(500)).effects
    assert entered == RecordReward(RUN, 50, 3.0, best=True, task=commander.curriculum.name, kwargs_json="")
    assert isinstance(said, LogLine)
    assert "mean return 3 over the newest 2 training episodes (the best so far)" in said.text
    assert happened == Happened(RUN, "evaluated_by_training", said.text)


def test_the_end_is_said_and_is_an_event_with_the_counters_of_its_moment() -> None:
    outcomes, _ = begun()
    end = End("max_env_steps", "env_step 10 has reached max_env_steps 10")
    said, happened = outcomes.run_ends(end)
    assert said == LogLine(RUN, "the run ends: env_step 10 has reached max_env_steps 10")
    assert isinstance(happened, Happened)
    event = happened.report(Counters(env_step=10, train_iter=3, wall_s=0.5))
    assert (event.kind, event.env_step, event.train_iter, event.wall_s) == ("run_ends", 10, 3, 0.5)
    text = "the run is over after 1.2 s: max_env_steps; env_step 10 has reached max_env_steps 10"
    assert outcomes.run_is_over(end, 1.23) == LogLine(RUN, text)


@pytest.mark.parametrize(
    ("counters", "reason"),
    [
        (Counters(env_step=99, train_iter=9, wall_s=0.9), None),
        (Counters(env_step=100), "max_env_steps"),
        (Counters(train_iter=10), "max_train_iters"),
        (Counters(wall_s=1.0), "max_wall_s"),
        (Counters(env_step=100, train_iter=10, wall_s=1.0), "max_env_steps"),
    ],
)
def test_every_budget_that_is_used_up_ends_a_run(counters: Counters, reason: str | None) -> None:
    stop = {"max_env_steps": 100, "max_train_iters": 10, "max_wall_s": 1.0}
    end = Commander(config(**stop)).reached(counters)
    assert (None if end is None else end.reason) == reason


@pytest.mark.parametrize(("max_wall_s", "longer"), [(1.0, 5.0), (50.0, 5.0), (80.0, 8.0), (100_000.0, 600.0)])
def test_a_tenth_longer_within_bounds(max_wall_s: float, longer: float) -> None:
    assert longer_s(max_wall_s) == pytest.approx(longer)


def test_what_held_up_an_evaluation_is_not_taken_from_its_time() -> None:
    stop = StopConfig(max_env_steps=100, max_wall_s=80.0)
    assert not evaluation_is_too_late(stop, wall_s=87.9, waited_s=87.9), "8 s longer than 80 s"
    assert evaluation_is_too_late(stop, wall_s=88.0, waited_s=88.0)
    assert not evaluation_is_too_late(stop, wall_s=1_000.0, waited_s=7.9), "the save before it took long"
    assert evaluation_is_too_late(stop, wall_s=1_000.0, waited_s=8.0)
    assert not evaluation_is_too_late(StopConfig(max_env_steps=100), wall_s=1e9, waited_s=1e9)
