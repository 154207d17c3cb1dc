"""Policies of every exported kind, with observations not used in training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.environment import EnvConfig
from remuda.config.schema import ExperimentConfig
from remuda.environments.spaces import PackObservations
from remuda.policy.algorithms import make_algorithm, make_policy, searches
from remuda.policy.base import Algorithm, Policy
from remuda.policy.export.deployable import Recorded
from remuda.policy.export.exporting import PolicyExport
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.environments.structured import Grid
from remuda.tests.policy.files import exported
from remuda.tests.policy.files.exported import COUNTERS

ROWS = 40


@dataclass(frozen=True)
class Made:
    """Both sides of an algorithm, and observations to compare them on."""

    config: ExperimentConfig
    algorithm: Algorithm
    policy: Policy
    recorded: Recorded

    @property
    def export(self) -> PolicyExport:
        return PolicyExport(self.algorithm, self.policy, self.config, COUNTERS, self.recorded)


def trained(name: str) -> Made:
    """After a few updates, so that weights and moments have changed. Some discrete actions are illegal."""
    case = TRAINED[name]
    return _made(exported.experiment(case), exported.trained(case), case.seen(np.random.default_rng(3), ROWS))


def far_away() -> Made:
    """A policy with observations that float32 rounds."""
    case = exported.CASES["ppo, far away"]
    return _made(exported.experiment(case), exported.trained(case), case.seen(np.random.default_rng(3), ROWS))


def fresh(
    policy: Any, seen: np.ndarray, observation: ObservationSpec, action: ActionSpec, *, source_dir: Path | None = None
) -> Made:
    """A policy with random weights; some initial weights are 0."""
    folder = None if source_dir is None else str(source_dir)
    config = ExperimentConfig(name="case", env=EnvConfig(id="CartPole-v1"), policy=policy, source_dir=folder)
    algorithm, drawn = make_algorithm(config, observation, action, seed=1), torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in algorithm.network.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=drawn))
    return _made(config, algorithm, seen)


def _made(config: ExperimentConfig, algorithm: Algorithm, seen: np.ndarray) -> Made:
    action = algorithm.action
    policy = make_policy(config, algorithm.observation, action, search=not searches(config))
    policy.load_state(algorithm.acting_state())
    rng, components = np.random.default_rng(4), action.components
    legal = None
    if policy.uses_legal_actions and components:
        legal, firsts = rng.random((ROWS, sum(components))) < 0.4, np.cumsum((0, *components[:-1]))
        np.put_along_axis(legal, rng.integers(0, components, (ROWS, len(components))) + firsts, True, axis=1)
    return Made(config, algorithm, policy, Recorded(seen, np.arange(ROWS) % 15 == 0, legal, "a test"))


def _structured(policy: Any, env: Any) -> Made:
    env = PackObservations(env)
    rows = [env.reset(seed=0)[0]]
    rows += [env.step(env.action_space.sample())[0] if row % 9 else env.reset()[0] for row in range(1, ROWS)]
    spec, action = ObservationSpec.of(env.observation_space), ActionSpec.of(env.action_space)
    return fresh(policy, np.stack(rows), spec, action)


def _muzero(policy: MuZeroConfig, shape: tuple[int, ...], dtype: str) -> Made:
    seen = np.random.default_rng(5).normal(128.0, 40.0, (ROWS, *shape)).astype(dtype)
    spec = ObservationSpec(shape, dtype, 0.0, 255.0) if dtype == "uint8" else ObservationSpec(shape, dtype)
    return fresh(policy, seen, spec, ActionSpec(3))


TRAINED = {
    name: case
    for name, case in {**exported.CASES, **exported.RECURRENT}.items()
    if name
    in {
        "dqn",
        "rainbow",
        "ppo, continuous",
        "ppo, several",
        "sac, places and counted actions",
        "crossq",
        "crossq, hyperspherical",
        "r2d2, lstm",
        "ppo, gru, continuous",
    }
}
OTHERS = {
    "dqn, parts with an image": lambda: _structured(DqnConfig(hidden=(16,)), Grid()),
    "muzero, images": lambda: _muzero(
        MuZeroConfig(channels=4, residual_blocks=1, head_hidden=8, support_size=5, simulations=4), (12, 12, 2), "uint8"
    ),
}
ALL = (*TRAINED, *OTHERS)


def made(name: str) -> Made:
    return trained(name) if name in TRAINED else OTHERS[name]()
