"""Which task a run is at: by steps, by returns, on request, and never by what was measured at an older one."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from remuda.config.current import evaluated, on_task, stage_named, task_of
from remuda.config.schema import ExperimentConfig
from remuda.tests.training.commander.test_commander import begun, record
from remuda.training.commander.callbacks import CallbackBook
from remuda.training.commander.commander import Commander, Save, StartEvaluation
from remuda.training.commander.curriculum import Curriculum
from remuda.training.commander.outcomes import Outcomes
from remuda.training.commander.progress_rows import ProgressRows
from remuda.training.commander.together import all_solved
from remuda.training.effects import Happened, LogLine
from remuda.training.journal_entry import ResumePoint
from remuda.training.snapshot import EvaluationResult, TaskSnapshot
from remuda.wire.messages import ChunkId, ChunkMeta, Counters, PolicyRef, Task

BY_STEPS = [{"env_step": 100, "kwargs": {"size": 2}}, {"env_step": 200, "kwargs": {"size": 3}}]
BY_RETURN = [{"mean_return": 5, "kwargs": {"size": 2}}, {"mean_return": 6, "kwargs": {"size": 3}}]


def config(schedule: Sequence[object], **settings: object) -> ExperimentConfig:
    env = {"id": "CartPole-v1", "kwargs": {"size": 1, "color": "red"}, "schedule": schedule}
    evaluator: object = settings.pop("evaluator", {"interval_env_steps": 1_000})
    return ExperimentConfig.model_validate({"name": "x", "env": env, "evaluator": evaluator, **settings})


class Run:
    """Commanders of some policies, at one step of the environment after another."""

    def __init__(self, settings: ExperimentConfig, policies: int = 1) -> None:
        self.commanders = [Commander(settings) for _ in range(policies)]
        self.rows = [ProgressRows(settings, None, commander.curriculum) for commander in self.commanders]
        nobody = CallbackBook("run", active=False)
        self.outcomes = [Outcomes("run", *each, nobody) for each in zip(self.commanders, self.rows, strict=True)]

    def at(self, env_step: int) -> list[int]:
        """The number of the task of each policy, once the run has had so many steps."""
        while any([outcomes.next_task(self.commanders, env_step) for outcomes in self.outcomes]):
            pass
        return [commander.curriculum.number for commander in self.commanders]

    def evaluated(self, reward: float, *, policy: int = 0, env_step: int = 0, task: Task | None = None) -> bool:
        """Whether it is the best; `task`: the present one."""
        commander = self.commanders[policy]
        played = commander.curriculum.task if task is None else task
        result = EvaluationResult(record(env_step), (reward,), (1,), 1.0, task=played)
        self.outcomes[policy].evaluated(result)
        return commander.best is not None and commander.best.record.env_step == env_step


# --- when a task begins ---
def test_by_steps_a_task_begins_at_its_step_and_several_at_once_where_a_chunk_crosses_them() -> None:
    run = Run(config(BY_STEPS))
    assert [run.at(step) for step in (0, 99, 100, 150, 200, 10_000)] == [[0], [0], [1], [1], [2], [2]]
    assert Run(config(BY_STEPS)).at(250) == [2]


def test_by_return_only_an_evaluation_at_the_present_task_counts() -> None:
    run, first = Run(config(BY_RETURN)), Task()
    run.evaluated(4.9)
    assert run.at(10) == [0]
    run.evaluated(5.0)
    assert run.at(20) == [1]
    run.evaluated(100.0, task=first)  # it was under way when the task began
    assert run.at(30) == [1]
    run.evaluated(6.0)
    assert run.at(40) == [2]


def test_a_task_that_is_asked_for_begins_at_once_and_the_schedule_goes_on_after_it() -> None:
    run = Run(config(BY_STEPS))
    curriculum = run.commanders[0].curriculum
    curriculum.ask('{"size": 7}')
    assert run.at(10) == [1]
    assert (curriculum.task, curriculum.asked) == (Task(1, '{"size": 7}'), None)
    curriculum.ask('{"size":7}')
    assert run.at(20) == [1], "it is the present one"
    assert run.at(99) == [1]
    assert run.at(100) == [2]
    assert json.loads(curriculum.task.kwargs_json) == {"size": 2}


@pytest.mark.parametrize("asks", [0, 1])
def test_several_policies_go_on_together_whoever_asks_or_is_late(asks: int) -> None:
    run = Run(config(BY_RETURN), policies=2)
    run.evaluated(9.0, policy=1)
    assert run.at(10) == [0, 0], "the first has not reached it"
    run.evaluated(5.0, policy=0)
    assert run.at(20) == [1, 1]
    run.commanders[asks].curriculum.ask('{"size": 5}')
    assert run.at(30) == [2, 2]
    assert [commander.curriculum.task for commander in run.commanders] == [Task(2, '{"size": 5}')] * 2
    assert run.at(40) == [2, 2], "it was asked for once"


MOVES = st.lists(st.tuples(st.integers(0, 400), st.sampled_from([None, 0.0, 5.0, 6.0]), st.booleans()), max_size=12)


@given(MOVES)
def test_after_a_crash_anywhere_it_goes_on_as_if_nothing_had_been(moves: list[tuple[int, float | None, bool]]) -> None:
    """The number never falls, rises by one with each task, and is the same with and without crashes."""
    schedule = [BY_STEPS[0], *BY_RETURN, {"env_step": 300, "kwargs": {"size": 4}}]
    whole, crashed = Run(config(schedule)), Run(config(schedule))
    numbers = [0]
    for env_step, reward, asks in moves:
        for run in (whole, crashed):
            if asks:
                run.commanders[0].curriculum.ask('{"size": 9}')
            if reward is not None:
                run.evaluated(reward, env_step=env_step)
            (number,) = run.at(env_step)
        numbers.append(number)
        again, snapshot = Run(config(schedule)), crashed.commanders[0].snapshot()
        again.commanders[0].restore(snapshot)
        assert again.commanders[0].snapshot() == snapshot
        crashed = again
        assert crashed.commanders[0].snapshot() == whole.commanders[0].snapshot()
    assert numbers == sorted(numbers)
    assert whole.commanders[0].curriculum.state.stage <= len(schedule)


# --- what a new task means for evaluations ---
def test_with_a_new_task_a_new_best_begins_and_is_looked_for_at_once() -> None:
    run = Run(config(BY_STEPS))
    commander = run.commanders[0]
    begun(commander, 50.0)
    assert commander.progressed(Counters(env_step=150, train_iter=3)) == []
    effects = run.outcomes[0].next_task(run.commanders, 150)
    assert [type(effect) for effect in effects] == [LogLine, Happened]
    assert isinstance(effects[0], LogLine)
    assert effects[0].text == 'task 1 begins at env_step 150, with env.kwargs {"size": 2}: a new best begins'
    assert commander.best is None
    assert commander.progressed(Counters(env_step=150, train_iter=3)) == [Save("evaluation")]
    assert commander.saved("evaluation", record(150)) == [StartEvaluation(record(150))]
    assert run.evaluated(1.0, env_step=150), "it need not reach what was reached at the task before"


def test_an_evaluation_of_an_older_task_is_neither_the_best_nor_the_end() -> None:
    run = Run(config(BY_STEPS, stop={"stop_value": 20, "max_env_steps": 10_000}))
    commander, first = run.commanders[0], Task()
    run.evaluated(99.0)
    assert commander.ending is None, "stop.stop_value is for the last task"
    assert run.at(200) == [2]
    assert not run.evaluated(99.0, env_step=150, task=first)
    assert commander.ending is None
    assert run.evaluated(20.0, env_step=210)
    assert commander.ending is not None


def test_several_policies_are_solved_at_the_last_task_alone() -> None:
    run = Run(config([BY_STEPS[0]]), policies=2)
    for task in (0, 1):
        for policy in (0, 1):
            run.evaluated(9.0, policy=policy)
        end = all_solved(run.commanders, 5.0)
        assert (end is not None) == (task == 1)
        run.at(100)


def test_training_episodes_of_an_older_task_evaluate_nothing() -> None:
    run = Run(config(BY_STEPS, evaluator={"episodes": 0, "window_episodes": 1}))
    rows = run.rows[0]

    def chunk(task: int, value: float) -> ChunkMeta:
        id = ChunkId("00000000-0000-4000-8000-000000000000", 0, 0)
        return ChunkMeta(id, "a", 1, 1, 1, 1, PolicyRef(), 1.0, [value], [1], task=task)

    rows.chunk(chunk(0, 7.0))
    assert rows.evaluated_by_training(record(0)) is not None
    run.at(100)
    assert rows.evaluated_by_training(record(0)) is None
    rows.chunk(chunk(0, 8.0))
    assert rows.evaluated_by_training(record(0)) is None
    rows.chunk(chunk(1, 9.0))
    found = rows.evaluated_by_training(record(0))
    assert found is not None
    assert (found.returns, found.task.number) == ((9.0,), 1)


def test_a_resumed_run_is_at_its_task_and_has_it_evaluated_if_nothing_was() -> None:
    settings = config(BY_STEPS)
    for reached, due in ((None, True), (3.0, False)):
        task = TaskSnapshot(1, 1, since_env_step=100, reached=reached)
        name = Curriculum(settings, task).name
        checkpoint = record(120)
        point = ResumePoint(checkpoint, Counters(env_step=130, train_iter=12), PolicyRef(), None, 0, task=task)
        commander = Commander(settings, point)
        assert (commander.curriculum.number, commander.curriculum.name) == (1, name)
        decided = commander.progressed(Counters(env_step=140, train_iter=20))
        assert decided == ([Save("evaluation")] if due else [])


# --- settings ---
@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        ([{"kwargs": {}}], "give exactly one of env_step and mean_return"),
        ([{"env_step": 1, "mean_return": 1}], "give exactly one of env_step and mean_return"),
        ([{"env_step": 5}, {"mean_return": 1}, {"env_step": 5}], "env_step 5 comes after env_step 5"),
    ],
)
def test_schedules_that_cannot_be_meant_are_refused(schedule: Sequence[object], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        config(schedule)


def test_evaluations_are_played_on_the_environment_of_their_own() -> None:
    base = config([{"env_step": 1, "kwargs": {"size": 2}}])
    assert evaluated(base) is base
    other = config([], evaluator={"env": {"kwargs": {"color": "blue"}, "max_episode_steps": 9}})
    found = evaluated(on_task(other, '{"size": 2}')).env
    assert (found.id, found.kwargs, found.max_episode_steps) == ("CartPole-v1", {"size": 2, "color": "blue"}, 9)
    elsewhere = evaluated(config([], evaluator={"env": {"make": "levels:make", "kwargs": {"level": 3}}})).env
    assert (elsewhere.id, elsewhere.make, elsewhere.kwargs) == (None, "levels:make", {"level": 3})
    with pytest.raises(ValidationError, match="at most one"):
        config([], evaluator={"env": {"make": "levels:make", "id": "CartPole-v1"}})


def test_a_task_is_known_by_its_name() -> None:
    settings = config(BY_STEPS)
    names = [task_of(on_task(settings, kwargs)) for kwargs in ("", '{"size": 2}', '{"size": 3}')]
    assert len(set(names)) == 3
    assert [stage_named(settings, name) for name in (*names, "unknown")] == [0, 1, 2, 0]
    assert task_of(config([])) == names[0], "what comes later changes nothing about the first task"


def test_returns_with_exploration_are_of_another_task_than_returns_without() -> None:
    """So a resumed run that has changed `evaluator.deterministic` compares its returns with none from before."""
    greedy, explores = (config([], evaluator={"deterministic": one}) for one in (True, False))
    assert task_of(greedy) == task_of(config([])) != task_of(explores)
