"""The commander: boundaries, best, stop, and the sticky end."""

from __future__ import annotations

import pytest
from msgspec import structs

from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.config.environment import EnvConfig
from remuda.config.learning import SelfPlayConfig
from remuda.config.schema import ExperimentConfig
from remuda.config.workers import CheckpointConfig, EvaluatorConfig, StopConfig
from remuda.training.commander.commander import Commander, Decision, EvaluationOutcome, Save, StartEvaluation
from remuda.training.commander.end import End
from remuda.training.commander.evaluation import BestCheckpoint
from remuda.training.journal_entry import ResumePoint
from remuda.training.snapshot import EvaluationResult
from remuda.wire.messages import CheckpointRecord, Counters, PolicyRef


def config(**stop: object) -> ExperimentConfig:
    return ExperimentConfig(
        name="x",
        env=EnvConfig(id="CartPole-v1"),
        evaluator=EvaluatorConfig(interval_env_steps=1_000),
        checkpoint=CheckpointConfig(interval_env_steps=700),
        stop=StopConfig.model_validate({"max_env_steps": 10_000, **stop}),
    )


def record(env_step: int) -> CheckpointRecord:
    train_iter = env_step // 10
    return CheckpointRecord(train_iter, env_step, 1.0, None, f"iteration_{train_iter}.pth.tar", "0" * 64, "now")


def result(env_step: int, *returns: float) -> EvaluationResult:
    return EvaluationResult(record(env_step), returns, tuple(1 for _ in returns), 1.0)


def at(env_step: int = 0, train_iter: int | None = None, wall_s: float = 0.0) -> Counters:
    done = env_step // 10 + 1 if train_iter is None else train_iter
    return Counters(env_step=env_step, train_iter=done, wall_s=wall_s)


def begun(commander: Commander, reward: float = 10.0) -> None:
    """Initial checkpoint saved and evaluated."""
    assert commander.started() == [Save("initial")]
    assert commander.saved("initial", record(0)) == [StartEvaluation(record(0))]
    commander.evaluated(result(0, reward))


def restarted(commander: Commander) -> Commander:
    """Return the commander of a restarted process."""
    again = Commander(commander.config)
    again.restore(commander.snapshot())
    assert again.snapshot() == commander.snapshot()
    return again


def test_the_initial_policy_is_saved_and_evaluated_before_anything_else() -> None:
    commander = Commander(config())
    assert commander.started() == [Save("initial")]
    assert commander.progressed(at(1_500)) == [], "both intervals have passed meanwhile"
    assert commander.saved("initial", record(0)) == [StartEvaluation(record(0))]
    assert commander.evaluating == record(0)
    assert commander.evaluated(result(0, 10.0)) == EvaluationOutcome(best=True, decisions=())
    assert commander.best == BestCheckpoint(structs.replace(record(0), task=commander.curriculum.name), 10.0)
    assert commander.progressed(at(1_600)) == [Save("evaluation")]


def test_an_evaluation_is_due_at_each_multiple_of_its_interval_and_once_where_several_were_crossed() -> None:
    commander = Commander(config())
    begun(commander)
    asked_at: list[int] = []
    for env_step in (500, 999, 1_000, 1_500, 3_700, 3_999, 4_000):
        decisions = commander.progressed(at(env_step))
        if decisions == [Save("evaluation")]:
            asked_at.append(env_step)
            commander.saved("evaluation", record(env_step))
            commander.evaluated(result(env_step, 1.0))
        elif decisions == [Save("interval")]:
            commander.saved("interval", record(env_step))
    assert asked_at == [1_000, 3_700, 4_000]


def test_while_one_evaluation_runs_no_other_is_asked_for() -> None:
    commander = Commander(config())
    begun(commander)
    commander.progressed(at(1_000))
    commander.saved("evaluation", record(1_000))
    assert commander.progressed(at(2_000)) == [Save("interval")], "which is not evaluated"
    commander.saved("interval", record(2_000))
    assert commander.progressed(at(2_050)) == []
    commander = restarted(commander)
    commander.evaluated(result(1_000, 1.0))
    assert commander.progressed(at(2_050)) == [Save("evaluation")], "it was due meanwhile"


def test_best_is_the_highest_mean_and_the_first_of_equals() -> None:
    commander = Commander(config())
    begun(commander, reward=10.0)
    outcomes = [
        commander.evaluated(result(step, *returns)).best
        for step, returns in ((1_000, (20.0, 30.0)), (2_000, (25.0, 25.0)), (3_000, (float("nan"),)), (4_000, (26.0,)))
    ]
    assert outcomes == [True, False, False, True]
    assert commander.best is not None
    assert commander.best.record.env_step == 4_000


def test_in_self_play_the_newest_that_was_evaluated_is_the_best() -> None:
    """What a policy gains against itself does not say how well it plays."""
    commander = Commander(config().model_copy(update={"policy": MuZeroConfig(players=2)}))
    begun(commander, reward=1.0)
    outcomes = [
        commander.evaluated(result(step, reward)).best for step, reward in ((1_000, 0.0), (2_000, float("nan")))
    ]
    assert outcomes == [True, False]
    assert commander.best == BestCheckpoint(structs.replace(record(1_000), task=commander.curriculum.name), 0.0)


def self_playing(keep: int) -> ExperimentConfig:
    return config().model_copy(update={"self_play": SelfPlayConfig(share=0.5, keep=keep)})


def saves(commander: Commander, *env_steps: int) -> None:
    for env_step in env_steps:
        commander.saved("interval", record(env_step))


def opponents(commander: Commander) -> list[int]:
    return [record.env_step for record in commander.opponents]


def older(commander: Commander, env_step: int) -> list[int]:
    return [each.env_step for each in commander.older_than(record(env_step))]


def test_in_self_play_the_newest_checkpoints_play_and_each_is_evaluated_against_those_before_it() -> None:
    commander = Commander(self_playing(2))
    saves(commander, 0)
    assert (opponents(commander), older(commander, 0)) == ([0], [])
    saves(commander, 1_000, 2_000, 3_000, 3_000)
    assert opponents(commander) == [2_000, 3_000], "one that is saved again counts once"
    assert older(commander, 3_000) == [1_000, 2_000]
    assert older(commander, 2_000) == [1_000]
    assert set(commander.in_use) == {100, 200, 300}, "their files stay"
    records = tuple(map(record, (0, 1_000, 2_000, 3_000)))
    point = ResumePoint(record(3_000), Counters(3_000, 300), PolicyRef(), None, 0, records)
    for again in (restarted(commander), Commander(self_playing(2), point)):
        assert (opponents(again), older(again, 3_000)) == ([2_000, 3_000], [1_000, 2_000])
    without = Commander(config())
    saves(without, 0, 1_000)
    assert (without.opponents, older(without, 1_000), without.in_use) == ((), [], ())


def reason_of(decisions: list[Decision] | tuple[Decision, ...]) -> str:
    ends = [decision for decision in decisions if isinstance(decision, End)]
    assert len(ends) == 1
    return ends[0].reason


def test_the_end_is_sticky_and_the_first_reason_stands() -> None:
    commander = Commander(config(stop_value=1.0))
    begun(commander, reward=0.0)
    assert reason_of(commander.progressed(at(10_000))) == "max_env_steps"
    assert commander.progressed(at(20_000)) == []
    assert commander.evaluated(result(1_000, 5.0)).decisions == ()
    assert commander.end(End("stopped", "later")) == []
    assert commander.ending is not None
    assert commander.ending.reason == "max_env_steps"


def test_a_run_that_has_reached_its_stop_value_is_over_and_not_evaluated_again() -> None:
    commander = Commander(config(stop_value=475.0))
    begun(commander)
    assert commander.evaluated(result(1_000, float("nan"))) == EvaluationOutcome(best=False, decisions=())
    outcome = commander.evaluated(result(2_000, 500.0, 450.0))
    assert reason_of(outcome.decisions) == "stop_value"
    assert commander.ending is not None
    assert "mean evaluation return 475 of iteration_200.pth.tar" in commander.ending.explanation
    commander.save_final()
    assert commander.saved("final", record(2_100)) == []
    assert commander.settled


@pytest.mark.parametrize("evaluating", ["an earlier checkpoint", "the last one"])
def test_stop_now_after_stop_waits_for_no_evaluation_under_way(evaluating: str) -> None:
    at_once = Commander(config())
    begun(at_once)
    at_once.end(End("stopped", "asked"), skip_final_evaluation=True)
    assert at_once.saved("final", record(10)) == [], "it is not evaluated"
    commander = Commander(config())
    begun(commander)
    if evaluating == "an earlier checkpoint":
        commander.progressed(at(1_000))
        commander.saved("evaluation", record(1_000))
    commander.end(End("stopped", "asked"))
    commander.save_final()
    commander.saved("final", record(1_500))
    waits = not commander.settled
    assert waits
    assert commander.end(End("stopped", "asked again"), skip_final_evaluation=True) == []
    commander = restarted(commander)
    assert commander.settled
    assert commander.ending == End("stopped", "asked")


def test_an_evaluation_under_way_at_the_end_is_finished_before_the_last_one() -> None:
    commander = Commander(config())
    begun(commander)
    commander.progressed(at(1_000))
    commander.saved("evaluation", record(1_000))
    commander.progressed(at(10_000))
    assert commander.save_final() == [Save("final")]
    assert commander.saved("final", record(10_000)) == [], "the evaluators are busy"
    commander = restarted(commander)
    assert commander.evaluated(result(1_000, 1.0)).decisions == (StartEvaluation(record(10_000)),)
    settled = [commander.settled]
    commander.evaluated(result(10_000, 1.0))
    assert [*settled, commander.settled] == [False, True]


def test_a_process_that_must_end_soon_saves_what_is_new_and_nothing_else() -> None:
    commander = Commander(config())
    begun(commander)
    assert commander.save_now(at(500, 0)) == [], "nothing was learned since the initial checkpoint"
    assert commander.save_now(at(510, 7)) == [Save("interval")]
    assert commander.save_now(at(520, 9)) == [], "it is saving"
    assert commander.saved("interval", record(510)) == [], "it is not evaluated"
    commander.end(End("stopped", "asked to"))
    assert commander.save_now(at(900, 99)) == [], "the end saves by itself"


def test_a_new_learner_saves_again_what_is_saved_in_any_case() -> None:
    commander = Commander(config())
    commander.started()
    assert commander.retry_save() == [Save("initial")]
    commander.saved("initial", record(0))
    commander.evaluated(result(0, 10.0))
    assert commander.progressed(at(1_500, train_iter=0)) == [], "nothing was learned"
    assert commander.progressed(at(1_600, train_iter=1)) == [Save("evaluation")]
    commander = restarted(commander)
    assert commander.retry_save() == [], "it begins at the newest checkpoint, which is not evaluated again"
    assert commander.progressed(at(1_700, train_iter=0)) == []
    assert commander.progressed(at(1_800, train_iter=1)) == [Save("evaluation")]
    commander.end(End("stopped", "asked"))
    commander.save_final()
    assert commander.retry_save() == [Save("final")]


def test_where_no_learner_is_left_the_newest_checkpoint_is_the_last() -> None:
    commander = Commander(config())
    begun(commander)
    commander.progressed(at(700))
    commander.saved("interval", record(700))
    commander.end(End("stopped", "asked"))
    commander.save_final()
    assert commander.use_newest_checkpoint() == [StartEvaluation(record(700))]
    assert commander.retry_save() == [], "nothing more is saved"
    commander.evaluated(result(700, 1.0))
    assert commander.settled
    assert commander.use_newest_checkpoint() == [], "it is evaluated"


def test_a_learner_that_is_to_begin_again_saves_once_nothing_is_evaluated() -> None:
    commander = Commander(config())
    begun(commander)
    commander.progressed(at(1_000))
    commander.saved("evaluation", record(1_000))
    commander.reset = record(0), "it won"
    commander = restarted(commander)
    assert commander.progressed(at(1_100)) == []
    commander.evaluated(result(1_000, 1.0))
    assert commander.progressed(at(1_100)) == [Save("reset")]
    assert commander.saved("reset", record(1_100)) == [], "it is not evaluated"
    assert commander.reset is None


@pytest.mark.parametrize(("reward", "decisions"), [(None, [StartEvaluation]), (10.0, []), (475.0, [End])])
def test_a_resumed_run_evaluates_what_nobody_did_and_is_over_where_it_was_solved(
    reward: float | None, decisions: list[type[Decision]]
) -> None:
    point = ResumePoint(structs.replace(record(500), reward=reward), Counters(500, 50), PolicyRef(), None, 0)
    started = Commander(config(stop_value=475.0), point).started()
    assert [type(decision) for decision in started] == decisions
