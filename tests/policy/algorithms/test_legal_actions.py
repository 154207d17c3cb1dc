"""Action masks in every algorithm for discrete actions: no illegal action is chosen or learned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
from remuda.config.algorithms.bootstrapped_dqn import BootstrappedDqnConfig
from remuda.config.algorithms.q_learning import DqnConfig, PqnConfig, R2d2Config, RainbowConfig
from remuda.config.algorithms.twin_critics import SacConfig
from remuda.config.environment import EnvConfig
from remuda.config.learning import LearnerConfig
from remuda.config.schema import ExperimentConfig
from remuda.learner.loop import on_host
from remuda.policy.algorithms import make_algorithm, make_policy
from remuda.policy.base import Algorithm, Policy
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.collector.rollouts import OneRollout
from remuda.tests.environments.masked import Choosy
from remuda.tests.policy.algorithms.segments import numbers

SMALL: dict[str, Any] = {"hidden": (8,)}
ONCE: dict[str, Any] = {**SMALL, "horizon_steps": 9, "epochs": 1, "minibatches": 1}
RECURRENT: dict[str, Any] = {"recurrent": "gru", "recurrent_units": 5}
KINDS: dict[str, Any] = {
    "dqn": DqnConfig(**SMALL),
    "bootstrapped_dqn": BootstrappedDqnConfig(**SMALL, members=3),
    "rainbow": RainbowConfig(**SMALL, atoms=5),
    "rainbow without noise": RainbowConfig(**SMALL, atoms=5, noisy=False),
    "r2d2": R2d2Config(**SMALL, recurrent_units=5, burn_in_steps=1, sequence_steps=4, overlap_steps=2),
    "sac": SacConfig(**SMALL),
    "ppo": PpoConfig(**ONCE, normalize_observations=True),
    "ppo, recurrent": PpoConfig(**ONCE, **RECURRENT),
    "impala": ImpalaConfig(**SMALL, horizon_steps=9),
    "pqn": PqnConfig(**SMALL, horizon_steps=9),
    "impala, recurrent": ImpalaConfig(**SMALL, **RECURRENT, horizon_steps=9),
}
each_kind = pytest.mark.parametrize("kind", KINDS)
on_policy = pytest.mark.parametrize("kind", [kind for kind in KINDS if "ppo" in kind or "impala" in kind])
OBSERVATION, ACTION = ObservationSpec.of(Choosy.observation_space), ActionSpec.of(Choosy.action_space)


def experiment(kind: str) -> ExperimentConfig:
    env, learner = EnvConfig(id="CartPole-v1", num_envs=4), LearnerConfig(learning_rate=0.01)
    return ExperimentConfig(name="case", env=env, policy=KINDS[kind], learner=learner)


def both_sides(kind: str, action: ActionSpec = ACTION) -> tuple[Algorithm, Policy]:
    config = experiment(kind)
    algorithm, acts = made(config, OBSERVATION, action), make_policy(config, OBSERVATION, action)
    acts.load_state(algorithm.acting_state())
    return algorithm, acts


def made(config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec) -> Algorithm:
    return make_algorithm(config, observation, action, seed=1)


@each_kind
@settings(max_examples=20, deadline=None)
@given(explores=st.sampled_from([0.0, 0.5, 1.0]), seed=st.integers(0, 10**6))
def test_no_illegal_action_is_ever_chosen(kind: str, explores: float, seed: int) -> None:
    _, acts = both_sides(kind)
    assert acts.uses_legal_actions
    rng = np.random.default_rng(seed)
    seen, rows = (rng.normal(size=(60, 2)) * 30).astype(np.float32), np.arange(60)
    legal = rng.random((60, 4)) < 0.3
    legal[rows, rng.integers(0, 4, 60)] = True
    exploration = {"epsilon": explores, "random": explores, "noise": explores}
    state = np.zeros((60, acts.state_size), np.float32) if acts.state_size else None
    for deterministic in (True, False):
        chosen = acts.act(seen, exploration, rng, deterministic=deterministic, legal=legal, state=state)
        assert legal[rows, chosen - ACTION.start].all()
    taken, recorded = acts.act_recording(seen, exploration, rng, legal=legal, state=state)
    assert legal[rows, taken - ACTION.start].all()
    assert np.isfinite(recorded.get("log_prob", np.zeros(1))).all()


@each_kind
def test_it_is_collected_and_learned_where_illegal_actions_are_errors(kind: str) -> None:
    """From environment to rows to updates, with finite numbers."""
    algorithm, acts = both_sides(kind)
    rollout = OneRollout.made(experiment(kind), SyncVectorEnv([Choosy] * 4), acts)
    exploration = {"epsilon": 0.3, "random": 0.3, "noise": 1.0}
    for _ in range(4):
        columns = dict(rollout.collect(36, exploration).columns)
        assert "legal" in columns
        result = algorithm.learn(columns | {"weights": np.ones(len(columns["reward"]), np.float32)})
        for values in result.metrics.values():
            assert np.isfinite(on_host([values])).all()
        acts.load_state(algorithm.acting_state())


@on_policy
def test_the_learner_finds_the_probabilities_with_which_collectors_acted(kind: str) -> None:
    algorithm, acts = both_sides(kind)
    rollout = OneRollout.made(experiment(kind), SyncVectorEnv([Choosy] * 4), acts)
    for _ in range(3):
        columns = rollout.collect(36, {}).columns
        got = numbers(algorithm.learn(columns).metrics)
        assert abs(got["approx_kl"]) < 1e-6
        assert got["entropy"] < np.log(3), "of two legal actions and a half, on average"
        acts.load_state(algorithm.acting_state())
    unaware = {name: column for name, column in rollout.collect(36, {}).columns.items() if name != "legal"}
    assert numbers(algorithm.learn(unaware).metrics)["approx_kl"] > 1e-3, "or the masks had changed nothing"
