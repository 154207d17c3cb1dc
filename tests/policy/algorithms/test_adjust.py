"""Every number that may change while a run goes on: an algorithm that is adjusted to another value learns from then on
what one learns that was made with that value and has the same state."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import Adam

from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
from remuda.config.algorithms.q_learning import DqnConfig, PqnConfig, RainbowConfig
from remuda.config.algorithms.registry import BUILT_IN
from remuda.config.algorithms.twin_critics import SacConfig, Td3Config
from remuda.config.current import Number, changeable, values_at, with_values
from remuda.config.learning import LearnerConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms import make_algorithm
from remuda.policy.base import Algorithm, Arrays
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.learner.ranks.test_equality import flat
from remuda.tests.policy import cases
from remuda.tests.policy.algorithms import segments
from remuda.tests.policy.algorithms.muzero import cases as muzero
from remuda.tests.policy.algorithms.r2d2 import cases as r2d2
from remuda.tests.policy.algorithms.rainbow import cases as rainbow
from remuda.tests.policy.algorithms.twin_critics import cases as twin_critics

LEARNER = LearnerConfig(learning_rate=0.01, max_grad_norm=0.05)
UPDATES = 4


@dataclass(frozen=True)
class Case:
    """An algorithm, and what it learns from."""

    config: ExperimentConfig
    draw: Callable[[np.random.Generator], Arrays]
    observation: ObservationSpec = cases.OBSERVATION
    action: ActionSpec = cases.ACTION
    without_effect: tuple[str, ...] = ()
    """Settings that other settings leave without effect."""

    def made(self, config: ExperimentConfig) -> Algorithm:
        return make_algorithm(config, self.observation, self.action, 0)


def _some_segments(rng: np.random.Generator) -> Arrays:
    return segments.batch(rng, segments=7)


def _twin_critics(policy: SacConfig | Td3Config, action: ActionSpec, *without_effect: str) -> Case:
    config = twin_critics.config(policy, LEARNER)
    return Case(config, lambda rng: twin_critics.batch(rng, action), twin_critics.OBSERVATION, action, without_effect)


AIMS = ("policy.target_entropy", "policy.target_entropy_share")
CASES: dict[str, Case] = {
    "dqn": Case(cases.config(DqnConfig(hidden=(8,), target_update_iters=2), LEARNER), cases.batch),
    "rainbow": Case(
        rainbow.experiment(RainbowConfig(hidden=(8,), atoms=11, target_update_iters=2), LEARNER), cases.batch
    ),
    "r2d2": Case(
        r2d2.experiment(r2d2.settings(target_update_iters=2)).model_copy(update={"learner": LEARNER}),
        r2d2.batch,
        r2d2.OBSERVATION,
        r2d2.ACTION,
    ),
    "ppo": Case(
        segments.experiment(
            PpoConfig(
                hidden=(8,),
                horizon_steps=9,
                epochs=2,
                minibatches=3,
                value_clip=0.2,
                entropy_coefficient=0.1,
                target_kl=9,
            ),
            LEARNER,
        ),
        _some_segments,
    ),
    "pqn": Case(segments.experiment(PqnConfig(hidden=(8,), horizon_steps=9, minibatches=3), LEARNER), _some_segments),
    "impala": Case(segments.experiment(ImpalaConfig(hidden=(8,), horizon_steps=9), LEARNER), _some_segments),
    "muzero": Case(muzero.config(learner=LEARNER), muzero.batch, muzero.OBSERVATION, muzero.ACTION),
    "sac": _twin_critics(SacConfig(hidden=(8,), target_entropy=-1.0), twin_critics.PUSH, "policy.temperature", AIMS[1]),
    "sac, counted actions": _twin_critics(SacConfig(hidden=(8,)), twin_critics.COUNTED, "policy.temperature", AIMS[0]),
    "sac, fixed temperature": _twin_critics(SacConfig(hidden=(8,), temperature=0.25), twin_critics.PUSH, *AIMS),
    "td3": _twin_critics(Td3Config(hidden=(8,), target_noise=0.8), twin_critics.PUSH),
}
SETTINGS = [
    (name, setting)
    for name, case in CASES.items()
    for setting in changeable(case.config)
    if setting not in case.without_effect
]


def other(config: ExperimentConfig, setting: str) -> Number:
    """Another value that the setting could have."""
    if setting == "policy.target_kl":
        return 1e-9
    value = values_at(config, 0, {setting: ()}).get(setting)
    return 0.003 if value is None else value + 1 if isinstance(value, int) else value / 4


def learned(algorithm: Algorithm, batches: Sequence[Arrays]) -> dict[str, np.ndarray]:
    """All numbers of its state after these batches, and the priorities of the last."""
    results = [algorithm.learn(batch) for batch in batches]
    return dict(
        flat(
            {"state": algorithm.state(), "priorities": 0 if results[-1].priorities is None else results[-1].priorities}
        )
    )


@pytest.mark.parametrize(("name", "setting"), SETTINGS)
def test_an_adjusted_algorithm_is_one_that_was_made_so(name: str, setting: str) -> None:
    case, rng = CASES[name], np.random.default_rng(5)
    config = with_values(case.config, {setting: other(case.config, setting)})
    adjusted, unchanged, made = case.made(case.config), case.made(case.config), case.made(config)
    first, *later = [case.draw(rng) for _ in range(1 + UPDATES)]
    adjusted.learn(first)
    state = copy.deepcopy(adjusted.state())
    for one in (unchanged, made):
        one.load_state(state)
    adjusted.adjust(config)
    found, expected, former = (learned(one, later) for one in (adjusted, made, unchanged))
    for key, values in expected.items():
        np.testing.assert_array_equal(found[key], values, err_msg=key)
    assert any(not np.array_equal(values, former[key]) for key, values in expected.items()), "the setting matters"


@pytest.mark.parametrize("name", CASES)
def test_the_rate_that_is_told_is_the_one_in_force(name: str) -> None:
    case = CASES[name]
    algorithm = case.made(case.config)
    algorithm.adjust(with_values(case.config, {"learner.learning_rate": 0.004}))
    assert algorithm.learn(case.draw(np.random.default_rng(5))).metrics["cur_lr"] == 0.004


def test_there_is_a_case_of_each_algorithm() -> None:
    assert {case.config.policy.type for case in CASES.values()} == {*BUILT_IN}


def test_a_changed_rate_reaches_an_optimizer_of_torch() -> None:
    """That of a user's class which has no `adjust` of its own."""
    case = CASES["dqn"]
    algorithm = case.made(case.config)
    own = Adam([nn.Parameter(torch.zeros(1))], lr=0.5)
    vars(algorithm)["own"] = own
    algorithm.adjust(with_values(case.config, {"policy.target_update_iters": 3}))
    assert own.param_groups[0]["lr"] == 0.5, "the rate that did not change is left alone"
    algorithm.adjust(with_values(case.config, {"learner.learning_rate": 0.004}))
    assert own.param_groups[0]["lr"] == 0.004
