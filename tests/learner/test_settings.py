"""Each update learns with the settings of its batch's step; constant settings are not adjusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from remuda.config.current import Changes, Values, config_at
from remuda.config.schema import ExperimentConfig
from remuda.learner.loop import Batch, LearnerLoop
from remuda.learner.prefetch import Prefetch
from remuda.learner.settings import LearnerSettings
from remuda.policy.base import Arrays, LearnResult
from remuda.tests.learner.test_prefetch import Learner, reply
from remuda.tests.policy.cases import dqn
from remuda.wire.messages import Batches

RATE = "learner.learning_rate"


def config(rate: object) -> ExperimentConfig:
    return ExperimentConfig.model_validate(
        {"name": "bay", "env": {"id": "CartPole-v1"}, "learner": {"learning_rate": rate}}
    )


@dataclass
class Told:
    """Records adjustments, and the settings of each update."""

    adjusted: list[Values] = field(default_factory=list[Values])
    rate: float = -1.0
    learned_with: list[float] = field(default_factory=list[float])

    def adjust(self, config: ExperimentConfig, values: Values) -> None:
        self.adjusted.append(values)
        self.rate = config.learner.learning_rate

    def learn(self, batch: Arrays) -> LearnResult:
        self.learned_with.append(self.rate)
        return LearnResult({"loss": torch.zeros(())})


class Listed:
    def __init__(self, env_steps: Sequence[int]) -> None:
        self._batches = [Batch(np.arange(1), {}, at) for at in env_steps]

    def next_batch(self) -> Batch | None:
        return self._batches.pop(0) if self._batches else None


def loop(source: Listed | Prefetch, told: Told, settings: LearnerSettings) -> LearnerLoop:
    return LearnerLoop(
        dqn(), source, publish_interval_iters=1, report_interval_iters=1, learn=told.learn, follow=settings.follow
    )


SCHEDULE = [[10, 0.5], [20, 0.25], [90, 0.125]]
STEPS = st.lists(st.integers(0, 120), max_size=12).map(sorted)


@given(STEPS, st.lists(st.tuples(st.integers(0, 100), st.floats(0.01, 1)), max_size=3))
def test_an_update_has_the_values_of_the_step_of_its_batch(
    env_steps: list[int], changes: list[tuple[int, float]]
) -> None:
    changed: Changes = {RATE: sorted(changes)}
    base, told = config(SCHEDULE), Told()
    settings = LearnerSettings(base, told.adjust, changed)
    learner = loop(Listed(env_steps), told, settings)
    while learner.step().trained:
        pass
    expected = [config_at(base, at, changed).learner.learning_rate for at in env_steps]
    assert told.learned_with == expected
    assert all(before != after for before, after in zip(told.adjusted, told.adjusted[1:], strict=False))
    assert not expected or settings.values == {RATE: expected[-1]}


def test_a_change_holds_from_the_next_update_on_and_without_it_the_config_again() -> None:
    told = Told()
    settings = LearnerSettings(config(0.5), told.adjust)
    settings.follow(100)
    settings.change({RATE: [(100, 0.125)]})
    settings.follow(100)
    settings.change({})
    settings.follow(100)
    assert told.adjusted == [{RATE: 0.125}, {}]
    assert told.rate == 0.5


@given(STEPS)
def test_a_config_that_stays_is_never_adjusted(env_steps: list[int]) -> None:
    told = Told()
    settings = LearnerSettings(config(0.5), told.adjust)
    for at in env_steps:
        settings.follow(at)
    assert told.adjusted == []


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 40)), min_size=1, max_size=5), st.randoms())
def test_in_parallel_mode_it_is_the_step_that_the_coordinator_put_into_its_answer(
    answers: list[tuple[int, int]], random: Random
) -> None:
    """However many batches an answer has, and in whatever order answers arrive."""
    env_step, expected, told = 0, list[float](), Told()
    base = config([[0, 0.5], [100, 0.25]])
    side = Learner()
    replies: list[Batches] = []
    for request, (batches, more) in enumerate(answers, start=1):
        env_step += more
        side.ask()
        replies.append(reply(request, [[0, 1, 2]] * batches, new=[0] if request == 1 else [], env_step=env_step))
        expected += [config_at(base, env_step, {}).learner.learning_rate] * batches
    learner = loop(side.prefetch, told, LearnerSettings(base, told.adjust))
    random.shuffle(replies)
    for one in replies:
        side.prefetch.arrived(one)
        while learner.step().trained:
            pass
    assert told.learned_with == expected
