"""Deep Q-learning as the roles know it: single steps, replayed; epsilon-greedy collectors."""

from __future__ import annotations

from collections.abc import Mapping

from remuda.config.schema import DqnConfig, ExperimentConfig, StopConfig
from remuda.policy.algorithms.dqn_policy import DECLARATION, DqnPolicy
from remuda.policy.base import Algorithm, Policy
from remuda.policy.entry import Chosen, Entry, Steps
from remuda.policy.schedules import linear
from remuda.policy.spaces import ActionSpec, ObservationSpec

DECAY_PARTS = 5
"""Exploration falls over one of so many parts of a run."""
LONGEST_DECAY_ENV_STEPS = 1_000_000


class Epsilon:
    """The share of random actions, which falls linearly with the environment steps."""

    def __init__(self, config: ExperimentConfig) -> None:
        """What does not change is computed once: a coordinator asks for every chunk."""
        policy = _section(config)
        self._start, self._end = policy.epsilon_start, policy.epsilon_end
        self._duration = 0 if config.learner.inference else _decay_env_steps(policy, config.stop)
        self.least: Mapping[str, float] = {"epsilon": self._end}

    def at(self, env_step: int) -> dict[str, float]:
        """After so many environment steps."""
        if env_step >= self._duration:
            return {"epsilon": self._end}
        return {"epsilon": linear(self._start, self._end, duration=self._duration, at=env_step)}


def _decay_env_steps(policy: DqnConfig, stop: StopConfig) -> int:
    if policy.epsilon_decay_env_steps is not None:
        return policy.epsilon_decay_env_steps
    return max(1, min(stop.max_env_steps // DECAY_PARTS, LONGEST_DECAY_ENV_STEPS))


def _rows(config: ExperimentConfig) -> Steps:
    return Steps(_section(config).n_step, _section(config).discount)


def _make_policy(
    config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, chosen: Chosen, device: str
) -> Policy:
    return DqnPolicy(_section(config), observation, action, chosen=chosen, device=device)


def _make_algorithm(config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> Algorithm:
    from remuda.policy.algorithms.dqn import Dqn

    return Dqn(config, observation, action, seed)


def _section(config: ExperimentConfig) -> DqnConfig:
    assert isinstance(config.policy, DqnConfig), config.policy.type
    return config.policy


ENTRY = Entry(
    type="dqn",
    declaration=DECLARATION,
    rows=_rows,
    exploration=Epsilon,
    make_policy=_make_policy,
    make_algorithm=_make_algorithm,
)
