"""Algorithms of every kind, with their observations, for tests of model/."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
from remuda.config.algorithms.crossq import CrossQConfig
from remuda.config.algorithms.q_learning import DqnConfig, R2d2Config, RainbowConfig
from remuda.config.algorithms.twin_critics import SacConfig, Td3Config, TwinCriticConfig
from remuda.config.environment import EnvConfig
from remuda.config.learning import LearnerConfig
from remuda.config.schema import ExperimentConfig
from remuda.learner import checkpoint
from remuda.policy.algorithms import make_algorithm
from remuda.policy.base import Algorithm
from remuda.policy.files.model_artifact import Exporter
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.policy.cases import Draw, counted, transitions
from remuda.wire.messages import Counters, PolicyRef

COUNTERS = Counters(env_step=120, train_iter=12)


@dataclass(frozen=True)
class Case:
    policy: DqnConfig | RainbowConfig | R2d2Config | PpoConfig | ImpalaConfig | SacConfig | CrossQConfig | Td3Config
    observation: ObservationSpec
    action: ActionSpec
    seen: Draw
    """Draws observations as an environment does."""


def numbers(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(3.0, 2.0, size=(n, 4)).astype(np.float32)


def wide(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(-50.0, 20.0, size=(n, 2, 3))


def far_away(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(1e9, 2.0, size=(n, 4))


def places(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.integers(5, 12, size=n)


def frames(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.integers(0, 256, size=(n, 4, 36, 40), dtype=np.uint8)


def boards(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.random((n, 10, 10, 4)) < 0.3


VECTOR = ObservationSpec((4,), "float32")
MATRIX = ObservationSpec((2, 3), "float64")
FAR_AWAY = ObservationSpec((4,), "float64")
PLACES = ObservationSpec((), "int64", n=7, start=5)
FRAMES = ObservationSpec((4, 36, 40), "uint8", 0.0, 255.0)
BOARDS = ObservationSpec((10, 10, 4), "bool", 0.0, 1.0)
TWO, FROM_MINUS_ONE = ActionSpec(2), ActionSpec(3, -1, "int32")
SEVERAL = ActionSpec(None, 0, "int8", (2, 2), counts=(3, 2, 2, 4), starts=(1, 0, 0, -2))
PULL = ActionSpec(None, 0, "float64", (1, 2), (-0.2, 1.0), (0.2, 6.0))
PUSH = ActionSpec(None, 0, "float64", (1, 2), (-0.2, None), (0.2, None))

CASES = {
    "dqn": Case(DqnConfig(hidden=(16, 8)), VECTOR, TWO, numbers),
    "dqn without streams, on places": Case(DqnConfig(hidden=(8,), dueling=False), PLACES, FROM_MINUS_ONE, places),
    "rainbow": Case(RainbowConfig(hidden=(16, 8)), VECTOR, FROM_MINUS_ONE, numbers),
    "rainbow, quantiles of frames": Case(
        RainbowConfig(hidden=(16,), distribution="quantile", noisy=False), FRAMES, TWO, frames
    ),
    "ppo, continuous": Case(PpoConfig(normalize_observations=True, normalize_rewards=True), MATRIX, PUSH, wide),
    "ppo, several": Case(PpoConfig(normalize_observations=True), VECTOR, SEVERAL, numbers),
    "ppo, far away": Case(PpoConfig(normalize_observations=True), FAR_AWAY, TWO, far_away),
    "ppo, boards": Case(PpoConfig(hidden=(16,)), BOARDS, TWO, boards),
    "sac": Case(SacConfig(hidden=(16, 8), critics=3), MATRIX, PULL, wide),
    "sac, places and counted actions": Case(SacConfig(hidden=(8,)), PLACES, FROM_MINUS_ONE, places),
    "crossq": Case(CrossQConfig(hidden=(16, 8), actor_hidden=(8,), policy_delay=1), VECTOR, PULL, numbers),
    "crossq, hyperspherical": Case(
        CrossQConfig(hidden=(8, 8), actor_hidden=(8,), normalization="hyperspherical", averaged_share=None),
        VECTOR,
        PULL,
        numbers,
    ),
    "sac, hyperspherical": Case(SacConfig(hidden=(8,), normalization="hyperspherical"), PLACES, FROM_MINUS_ONE, places),
    "td3": Case(Td3Config(hidden=(16, 8), policy_delay=1), VECTOR, PULL, numbers),
}

SMALL: dict[str, Any] = {
    **{"recurrent_units": 6, "hidden": (8,), "head_hidden": (8,)},
    **{"burn_in_steps": 1, "sequence_steps": 4, "overlap_steps": 2},
}
CORE: dict[str, Any] = {"recurrent_units": 6, "hidden": (8,)}
RECURRENT = {
    "r2d2, lstm": Case(R2d2Config(**SMALL), VECTOR, FROM_MINUS_ONE, numbers),
    "ppo, gru, continuous": Case(
        PpoConfig(recurrent="gru", normalize_observations=True, normalize_rewards=True, **CORE), MATRIX, PUSH, wide
    ),
    "impala, lstm, several": Case(ImpalaConfig(recurrent="lstm", **CORE), VECTOR, SEVERAL, numbers),
    "r2d2, frames": Case(R2d2Config(dueling=False, **SMALL), FRAMES, FROM_MINUS_ONE, frames),
}


def experiment(case: Case) -> ExperimentConfig:
    env = EnvConfig(id="CartPole-v1", kwargs={"sutton_barto_reward": True}, max_episode_steps=90)
    learner = LearnerConfig(learning_rate=0.01)
    return ExperimentConfig(name="case", seed=4, env=env, policy=case.policy, learner=learner)


def trained(case: Case) -> Algorithm:
    """The algorithm after a few updates, so that weights and moments have changed."""
    algorithm = _untrained(case)
    _train(algorithm, case)
    return algorithm


def _untrained(case: Case) -> Algorithm:
    return make_algorithm(experiment(case), case.observation, case.action, seed=1)


def _train(algorithm: Algorithm, case: Case) -> None:
    rng = np.random.default_rng(2)
    for _ in range(3):
        algorithm.learn(_rows(case, rng))


def _rows(case: Case, rng: np.random.Generator) -> dict[str, np.ndarray]:
    policy = case.policy
    if isinstance(policy, DqnConfig | RainbowConfig | TwinCriticConfig):
        return transitions(case.seen, case.action, rng)
    if policy.recurrent is None:
        return segments(case, rng)
    state = np.zeros((4, policy.recurrent_units * (2 if policy.recurrent == "lstm" else 1)), np.float32)
    if not isinstance(policy, R2d2Config):
        return segments(case, rng) | {"state": state}
    slots = policy.burn_in_steps + policy.sequence_steps + policy.n_step - 1
    return segments(case, rng, slots=slots) | {"state": state, "weights": np.ones(4, np.float32)}


def leave_behind(case: Case, run: Path) -> Path:
    """Write a checkpoint and model/ as a learner does, after an export before training: the traced
    network gets new weights. Returns the checkpoint."""
    algorithm = _untrained(case)
    exporter = Exporter(algorithm, experiment(case))
    exporter.export(run / "model", Counters())
    _train(algorithm, case)
    path = run / "ckpt" / f"iteration_{COUNTERS.train_iter}.pth.tar"
    path.parent.mkdir(parents=True)
    progress = checkpoint.Progress(COUNTERS, PolicyRef(), {})
    checkpoint.save(path, algorithm, progress, config=experiment(case))
    exporter.export(run / "model", COUNTERS)
    return path


def segments(case: Case, rng: np.random.Generator, number: int = 4, slots: int = 8) -> dict[str, np.ndarray]:
    shape, action = (number, slots), case.action
    drawn = rng.normal(size=(*shape, *action.shape)).astype(np.float32)
    if not action.is_box:
        drawn = counted(action, rng, number * slots).reshape(*shape, *action.shape)
    no = np.zeros(shape, np.bool_)
    seen = case.seen(rng, number * (slots + 1))
    return {
        "obs": seen.reshape(number, slots + 1, *seen.shape[1:]),
        "action": drawn,
        "reward": rng.normal(0.0, 5.0, size=shape).astype(np.float32),
        "terminated": no,
        "done": no,
        "valid": ~no,
        "log_prob": np.full(shape, -0.7, np.float32),
        "version": np.zeros(number, np.int64),
        "return_so_far": np.zeros(number, np.float32),
    }
