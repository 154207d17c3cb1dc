"""One case of every built-in algorithm: a config, batches, and a function that reads all numbers of its state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
from remuda.config.algorithms.bootstrapped_dqn import BootstrappedDqnConfig
from remuda.config.algorithms.crossq import CrossQConfig
from remuda.config.algorithms.q_learning import DqnConfig, PqnConfig, RainbowConfig
from remuda.config.algorithms.twin_critics import IqlConfig, SacConfig, Td3Config
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


@dataclass(frozen=True)
class Case:
    """An algorithm, and its batches."""

    config: ExperimentConfig
    draw: Callable[[np.random.Generator], Arrays]
    observation: ObservationSpec = cases.OBSERVATION
    action: ActionSpec = cases.ACTION
    without_effect: tuple[str, ...] = ()
    """Settings that have no effect with the case's other settings."""

    def made(self, config: ExperimentConfig | None = None, *, seed: int = 0) -> Algorithm:
        return make_algorithm(config or self.config, self.observation, self.action, seed)


def _some_segments(rng: np.random.Generator) -> Arrays:
    return segments.batch(rng, segments=7)


def _twin_critics(policy: twin_critics.Policy, action: ActionSpec, *without_effect: str) -> Case:
    config = twin_critics.config(policy, LEARNER)
    return Case(config, lambda rng: twin_critics.batch(rng, action), twin_critics.OBSERVATION, action, without_effect)


AIMS = ("policy.target_entropy", "policy.target_entropy_share")
CASES: dict[str, Case] = {
    "dqn": Case(cases.config(DqnConfig(hidden=(8,), target_update_iters=2), LEARNER), cases.batch),
    "bootstrapped_dqn": Case(
        cases.config(BootstrappedDqnConfig(hidden=(8,), members=3, target_update_iters=2), LEARNER), cases.batch
    ),
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
    "ppo, continuous": Case(
        segments.experiment(
            PpoConfig(hidden=(8,), horizon_steps=9, epochs=2, minibatches=2, normalize_observations=True), LEARNER
        ),
        lambda rng: segments.batch(rng, action=segments.PUSH),
        action=segments.PUSH,
    ),
    "pqn": Case(segments.experiment(PqnConfig(hidden=(8,), horizon_steps=9, minibatches=3), LEARNER), _some_segments),
    "pqn, recurrent": Case(
        segments.experiment(
            PqnConfig(hidden=(8,), recurrent="gru", recurrent_units=4, horizon_steps=9, minibatches=3), LEARNER
        ),
        lambda rng: {**_some_segments(rng), "state": rng.normal(size=(7, 4)).astype(np.float32)},
    ),
    "impala": Case(segments.experiment(ImpalaConfig(hidden=(8,), horizon_steps=9), LEARNER), _some_segments),
    "muzero": Case(muzero.config(learner=LEARNER), muzero.batch, muzero.OBSERVATION, muzero.ACTION),
    "muzero, searched again": Case(
        muzero.config(muzero.changed(reanalyze_ratio=0.5), LEARNER), muzero.batch, muzero.OBSERVATION, muzero.ACTION
    ),
    "sac": _twin_critics(SacConfig(hidden=(8,), target_entropy=-1.0), twin_critics.PUSH, "policy.temperature", AIMS[1]),
    "sac, counted actions": _twin_critics(SacConfig(hidden=(8,)), twin_critics.COUNTED, "policy.temperature", AIMS[0]),
    "sac, fixed temperature": _twin_critics(SacConfig(hidden=(8,), temperature=0.25), twin_critics.PUSH, *AIMS),
    "crossq": _twin_critics(
        CrossQConfig(hidden=(8,), actor_hidden=(8,), policy_delay=2), twin_critics.PUSH, "policy.temperature"
    ),
    "td3": _twin_critics(Td3Config(hidden=(8,), target_noise=0.8), twin_critics.PUSH),
    "iql": _twin_critics(IqlConfig(hidden=(8,), largest_weight=1.5), twin_critics.PUSH),
    "sac, hyperspherical": _twin_critics(
        SacConfig(hidden=(8,), normalization="hyperspherical", target_entropy=-1.0),
        twin_critics.PUSH,
        "policy.temperature",
        AIMS[1],
    ),
    "crossq, hyperspherical": _twin_critics(
        CrossQConfig(hidden=(8, 8), actor_hidden=(8,), normalization="hyperspherical", policy_delay=2),
        twin_critics.PUSH,
        "policy.temperature",
    ),
    "td3, hyperspherical": _twin_critics(
        Td3Config(hidden=(8, 8), normalization="hyperspherical", target_noise=0.8), twin_critics.PUSH
    ),
    "iql, hyperspherical": _twin_critics(
        IqlConfig(hidden=(8,), normalization="hyperspherical", largest_weight=1.5), twin_critics.PUSH
    ),
}


def learned(algorithm: Algorithm, batches: Sequence[Arrays]) -> dict[str, np.ndarray]:
    """All numbers of the algorithm's state after the batches, and the priorities of the last batch."""
    results = [algorithm.learn(batch) for batch in batches]
    return dict(
        flat(
            {"state": algorithm.state(), "priorities": 0 if results[-1].priorities is None else results[-1].priorities}
        )
    )
