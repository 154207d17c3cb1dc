"""Deep Q-learning as the roles know it: single steps, replayed; epsilon-greedy collectors."""

from __future__ import annotations

from remuda.config.algorithms import DqnConfig
from remuda.config.declaration import Declaration, Steps
from remuda.config.schema import ExperimentConfig, StopConfig
from remuda.policy.algorithms.dqn.acting import DqnPolicy
from remuda.policy.base import Algorithm, Policy
from remuda.policy.entry import AlgorithmEntry, Chosen, Setup

DECAY_PARTS = 5
"""Exploration falls over this fraction of a run (1 / n)."""
LONGEST_DECAY_ENV_STEPS = 1_000_000


class DqnEntry(AlgorithmEntry[DqnConfig]):
    """See AlgorithmEntry."""

    settings = DqnConfig

    def declaration(self, config: ExperimentConfig, settings: DqnConfig) -> Declaration:
        """Collectors explore less and less; with `learner.inference` they explore as little as at the end of the
        schedule."""
        return Declaration(
            rows=Steps(n_step=settings.n_step, discount=settings.discount),
            reuse="replay",
            monitored=("cur_lr", "total_loss", "q_value", "target_q_value", "td_error", "grad_norm"),
            loss_columns={
                "AverageQVals": "q_value",
                "StdQVals": "q_value_std",
                "MaxQVals": "q_value_max",
                "MinQVals": "q_value_min",
                "LossQ": "total_loss",
            },
            with_statistics=("total_loss", "q_value", "td_error", "grad_norm"),
            exploration={"epsilon": _epsilon(config, settings)},
            learns_from_parts=True,
        )

    def make_policy(self, setup: Setup[DqnConfig], *, chosen: Chosen = None, device: str = "cpu") -> Policy:
        """See AlgorithmEntry."""
        return DqnPolicy(setup.settings, setup.observation, setup.action, chosen=chosen, device=device)

    def make_algorithm(self, setup: Setup[DqnConfig], seed: int) -> Algorithm:
        """See AlgorithmEntry."""
        from remuda.policy.algorithms.dqn.learning import Dqn

        return Dqn(setup.config, setup.observation, setup.action, seed)


def _epsilon(config: ExperimentConfig, settings: DqnConfig) -> tuple[tuple[int, float], ...]:
    """The share of random actions, which falls linearly with the environment steps."""
    if config.learner.inference:
        return ((0, settings.epsilon_end),)
    return ((0, settings.epsilon_start), (_decay_env_steps(settings, config.stop), settings.epsilon_end))


def _decay_env_steps(settings: DqnConfig, stop: StopConfig) -> int:
    if settings.epsilon_decay_env_steps is not None:
        return settings.epsilon_decay_env_steps
    return max(1, min(stop.max_env_steps // DECAY_PARTS, LONGEST_DECAY_ENV_STEPS))
