"""Segments for tests: random ones, one slot by hand, and a loop that collects them from a vector environment."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
from remuda.config.algorithms.q_learning import PqnConfig
from remuda.config.environment import EnvConfig
from remuda.config.learning import LearnerConfig
from remuda.config.schema import ExperimentConfig
from remuda.learner.loop import on_host
from remuda.logbook.statistics import mean
from remuda.policy.algorithms import make_algorithm
from remuda.policy.base import Algorithm
from remuda.policy.returns import Outcome
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.policy.cases import ACTION, OBSERVATION

Batch = dict[str, np.ndarray]

PUSH = ActionSpec(None, 0, "float32", (2,), (-1.0, None), (1.0, None))
"""Two numbers, the first of them bounded."""
SEVERAL = ActionSpec(None, 0, "int32", (2, 2), counts=(3, 2, 2, 4), starts=(1, 0, 0, -2))
"""Four integers; the two in the middle have equal numbers of values."""


def on_policy(
    policy: PpoConfig | ImpalaConfig | PqnConfig,
    learner: LearnerConfig | None = None,
    *,
    observation: ObservationSpec = OBSERVATION,
    action: ActionSpec = ACTION,
    seed: int = 0,
) -> Algorithm:
    return make_algorithm(experiment(policy, learner), observation, action, seed)


def experiment(policy: PpoConfig | ImpalaConfig | PqnConfig, learner: LearnerConfig | None = None) -> ExperimentConfig:
    env = EnvConfig(id="CartPole-v1")
    return ExperimentConfig(name="case", env=env, policy=policy, learner=learner or LearnerConfig())


def outcome(rng: np.random.Generator, segments: int, slots: int, *, ending: float = 0.3) -> Outcome:
    """Episodes that end at random, each followed by its reset; some segments begin with a reset."""
    terminated, done, valid = (np.zeros((segments, slots), np.bool_) for _ in range(3))
    before = rng.random(segments) < ending
    for t in range(slots):
        valid[:, t] = ~before
        done[:, t] = valid[:, t] & (rng.random(segments) < ending)
        terminated[:, t] = done[:, t] & (rng.random(segments) < 0.5)
        before = done[:, t]
    reward = np.where(valid, rng.normal(size=valid.shape), 0.0).astype(np.float32)
    return Outcome(reward, terminated, done, valid)


def batch(
    rng: np.random.Generator, segments: int = 6, slots: int = 9, *, action: ActionSpec = ACTION, ending: float = 0.3
) -> Batch:
    happened = outcome(rng, segments, slots, ending=ending)
    shape = (segments, slots)
    return {
        "obs": rng.normal(size=(segments, slots + 1, 4)).astype(np.float32),
        "action": acted(rng, action, shape),
        "reward": happened.reward,
        "terminated": happened.terminated,
        "done": happened.done,
        "valid": happened.valid,
        "log_prob": np.log(rng.uniform(0.3, 0.7, shape)).astype(np.float32),
        "version": np.zeros(segments, np.int64),
        "return_so_far": np.zeros(segments, np.float32),
    }


def acted(rng: np.random.Generator, action: ActionSpec, shape: tuple[int, int]) -> np.ndarray:
    """Actions [*shape, …] as in rows."""
    if action.is_box:
        return rng.normal(size=(*shape, *action.shape)).astype(np.float32)
    if action.n is not None:
        return action.start + rng.integers(0, action.n, shape)
    indices = rng.integers(0, action.counts, (shape[0] * shape[1], len(action.counts)))
    return action.to_environment(indices).reshape(*shape, *action.shape)


def one_slot(*, reward: float, log_prob: float, action: int = 1) -> Batch:
    """One step from state 0 that ends the episode."""
    true = np.ones((1, 1), np.bool_)
    return {
        "obs": np.array([[0, 1]]),
        "action": np.array([[action]]),
        "reward": np.array([[reward]], np.float32),
        "terminated": true,
        "done": true,
        "valid": true,
        "log_prob": np.array([[log_prob]], np.float32),
        "version": np.zeros(1, np.int64),
        "return_so_far": np.zeros(1, np.float32),
    }


def numbers(metrics: Mapping[str, float | torch.Tensor]) -> dict[str, float]:
    """Average of each metric of an update."""
    return {name: mean(on_host([values])) for name, values in metrics.items()}


def episodes_of(happened: Outcome, segment: int) -> list[list[int]]:
    """Slots of each part of an episode in a segment."""
    stretches: list[list[int]] = [[]]
    valid: NDArray[np.bool_] = happened.valid[segment]
    for t in np.flatnonzero(valid):
        stretches[-1].append(int(t))
        if happened.done[segment, t]:
            stretches.append([])
    return [stretch for stretch in stretches if stretch]
