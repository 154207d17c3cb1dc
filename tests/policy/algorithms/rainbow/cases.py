"""Small Rainbow algorithms and policies for several tests."""

from __future__ import annotations

from remuda.config.algorithms.q_learning import RainbowConfig
from remuda.config.environment import EnvConfig
from remuda.config.learning import LearnerConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.rainbow.entry import RainbowPolicy
from remuda.policy.algorithms.rainbow.learning import Rainbow
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.policy.cases import ACTION, OBSERVATION

SMALL = RainbowConfig(hidden=(16, 8), atoms=11, v_min=-2.0, v_max=3.0)


def experiment(policy: RainbowConfig = SMALL, learner: LearnerConfig | None = None) -> ExperimentConfig:
    return ExperimentConfig(
        name="case", env=EnvConfig(id="CartPole-v1"), policy=policy, learner=learner or LearnerConfig()
    )


def rainbow(
    policy: RainbowConfig = SMALL,
    learner: LearnerConfig | None = None,
    *,
    observation: ObservationSpec = OBSERVATION,
    action: ActionSpec = ACTION,
    seed: int = 0,
) -> Rainbow:
    return Rainbow(experiment(policy, learner), observation, action, seed)


def acting(algorithm: Rainbow, policy: RainbowConfig = SMALL) -> RainbowPolicy:
    acts = RainbowPolicy(policy, algorithm.observation, algorithm.action)
    acts.load_state(algorithm.acting_state())
    return acts
