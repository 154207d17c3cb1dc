"""PPO, IMPALA and PQN with a recurrent core: learner and collectors remember the same, segment after segment."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from pydantic import ValidationError

from remuda.collector.rows import SegmentRows
from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
from remuda.config.algorithms.q_learning import PqnConfig
from remuda.config.environment import EnvConfig
from remuda.config.learning import LearnerConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms import declaration, make_algorithm, make_policy
from remuda.policy.algorithms.actor_critic.ppo import Ppo
from remuda.policy.algorithms.dqn.pqn import Pqn
from remuda.policy.base import Policy
from remuda.policy.networks.recurrent_networks import Unrolled
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.collector.rollouts import OneRollout
from remuda.tests.environments.counting import Counting

OBSERVATION, ACTION = ObservationSpec((1,), "float32"), ActionSpec(2)
SMALL: dict[str, Any] = {"hidden": (6,), "recurrent_units": 5, "horizon_steps": 7, "normalize_observations": True}
KINDS = ("lstm", "gru")


def experiment(policy: PpoConfig | ImpalaConfig | PqnConfig) -> ExperimentConfig:
    env, learner = EnvConfig(id="CartPole-v1", num_envs=3), LearnerConfig(learning_rate=0.01)
    return ExperimentConfig(name="case", seed=4, env=env, policy=policy, learner=learner)


class Loop:
    """An algorithm, and a collector of its segments from episodes of 2, 5 and 40 steps."""

    def __init__(self, policy: PpoConfig | ImpalaConfig | PqnConfig, seed: int = 1) -> None:
        config = experiment(policy)
        self.algorithm = make_algorithm(config, OBSERVATION, ACTION, seed)
        self.acts: Policy = make_policy(config, OBSERVATION, ACTION)
        self.acts.load_state(self.algorithm.acting_state())
        vector: Any = SyncVectorEnv(
            [partial(Counting, length, terminates=length == 5) for length in (2, 5, 40)],
            autoreset_mode=AutoresetMode.NEXT_STEP,
        )
        rows = SegmentRows(discount=policy.discount)
        self.rollout = OneRollout(vector, self.acts, rows=rows, rng=np.random.default_rng(0), seeds=[1, 2, 3])

    def collect(self) -> dict[str, np.ndarray]:
        return self.rollout.collect(21, {}).columns

    def iterate(self) -> dict[str, Any]:
        metrics = dict(self.algorithm.learn(self.collect()).metrics)
        self.acts.load_state(self.algorithm.acting_state())
        return metrics


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chosen", [PpoConfig, ImpalaConfig])
def test_the_learner_finds_the_probabilities_with_which_collectors_acted(kind: Any, chosen: Any) -> None:
    """Over several segments in which episodes end, begin and continue, and with policies that
    change between segments: states of an older policy are kept."""
    once = {"epochs": 1, "minibatches": 1} if chosen is PpoConfig else {}
    loop = Loop(chosen(recurrent=kind, **once, **SMALL))
    for _ in range(8):
        metrics = loop.iterate()
        assert float(metrics["approx_kl"]) < 1e-9
        assert float(metrics["clip_fraction"]) == 0.0
    assert float(metrics["grad_norm"].mean() if isinstance(metrics["grad_norm"], torch.Tensor) else 1.0) > 0.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chosen", [PpoConfig, PqnConfig])
def test_values_of_collectors_are_those_of_the_learner(kind: Any, chosen: Any) -> None:
    """In the environment's own rewards, by PQN."""
    small = SMALL if chosen is PpoConfig else {name: SMALL[name] for name in SMALL if "normalize" not in name}
    loop = Loop(chosen(recurrent=kind, **small))
    for _ in range(3):
        loop.iterate()
    rows, algorithm = loop.collect(), loop.algorithm
    if isinstance(algorithm, Ppo):
        segments = copy.deepcopy(algorithm)._prepare(rows)
        learned = segments.per_slot(algorithm._values(segments.observations))
    else:
        assert isinstance(algorithm, Pqn)
        assert algorithm._rewards is not None
        encoded = torch.from_numpy(rows["obs"].reshape(-1, 1))
        best = algorithm._values(algorithm._in_order(encoded, rows)).detach().amax(1) * algorithm._rewards.std
        learned = best.numpy().reshape(rows["obs"].shape[:2])
    state = rows["state"].copy()
    for slot in range(8):
        if slot:
            state[~rows["valid"][:, slot - 1]] = 0.0
        values = loop.acts.value(rows["obs"][:, slot], state=state)
        np.testing.assert_allclose(values, learned[:, slot], rtol=1e-4, atol=1e-5)


def test_a_minibatch_is_whole_segments_and_an_epoch_every_step_once() -> None:
    loop = Loop(PpoConfig(recurrent="lstm", epochs=3, minibatches=2, **SMALL))
    rows = loop.collect()
    algorithm: Any = loop.algorithm
    segments = algorithm._prepare(rows)
    steps, _ = algorithm._with_advantages(segments)
    tagged = steps._replace(log_prob=torch.arange(len(steps.log_prob)))
    policy, values = algorithm._evaluate(steps.observations)
    minibatches = list(algorithm._minibatches(tagged, segments, np.random.default_rng(0)))
    assert [len(one.observations.state) for one in minibatches] == [2, 1] * 3
    for epoch in range(3):
        own = minibatches[2 * epoch : 2 * epoch + 2]
        assert sorted(torch.cat([one.log_prob for one in own]).tolist()) == list(range(len(steps.log_prob)))
    for one in minibatches:
        assert isinstance(one.observations, Unrolled)
        of_minibatch = algorithm._evaluate(one.observations)
        torch.testing.assert_close(of_minibatch, (policy[one.log_prob], values[one.log_prob]))
        assert torch.equal(one.actions, steps.actions[one.log_prob])


def test_a_segment_of_nothing_but_resets_teaches_nothing() -> None:
    loop = Loop(PpoConfig(recurrent="gru", epochs=1, minibatches=3, **{**SMALL, "horizon_steps": 1}))
    rows = loop.rollout.collect(3, {}).columns
    assert not rows["valid"].any()
    assert loop.algorithm.learn(rows).updates == 0


@pytest.mark.parametrize("wrong", [{"shared_hidden": False}, {"hidden": ()}])
def test_a_core_reads_a_layer_that_policy_and_value_share(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="share at least one hidden layer"):
        PpoConfig.model_validate({"recurrent": "lstm", **wrong})


def test_who_can_learn_in_several_ranks() -> None:
    """PPO divides batches by whole segments: ranks could not form the same minibatches as one rank."""
    assert declaration(experiment(PpoConfig())).learns_from_parts
    assert declaration(experiment(ImpalaConfig(recurrent="lstm"))).learns_from_parts
    assert not declaration(experiment(PpoConfig(recurrent="lstm"))).learns_from_parts
    assert not declaration(experiment(PqnConfig(recurrent="lstm"))).learns_from_parts
