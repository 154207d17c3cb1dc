"""Rainbow as the roles know it: single steps, replayed; collectors act with noisy weights, epsilon, or both."""

from __future__ import annotations

from remuda.config.algorithms.q_learning import RainbowConfig
from remuda.config.declaration import Declaration, Steps
from remuda.config.schema import ExperimentConfig
from remuda.config.section import Schedule
from remuda.policy.acting.network import Chosen
from remuda.policy.algorithms.q_policy import EPSILON, LOSS_COLUMNS, MONITORED, WITH_STATISTICS
from remuda.policy.algorithms.rainbow.acting import NOISE, NOISE_SIGMA, RainbowPolicy
from remuda.policy.base import Algorithm, Policy
from remuda.policy.entry import AlgorithmEntry, Setup
from remuda.policy.schedules import epsilon_schedule


class RainbowEntry(AlgorithmEntry[RainbowConfig]):
    """See AlgorithmEntry."""

    settings = RainbowConfig

    def declaration(self, config: ExperimentConfig, settings: RainbowConfig) -> Declaration:
        """With `learner.inference` there is no noise."""
        return Declaration(
            rows=Steps(n_step=settings.n_step, discount=settings.discount),
            reuse="replay",
            monitored=(*MONITORED, NOISE_SIGMA) if settings.noisy else MONITORED,
            loss_columns=LOSS_COLUMNS,
            with_statistics=WITH_STATISTICS,
            exploration=_exploration(config, settings),
            learns_from_parts=settings.learns_from_parts,
            lowers_products=settings.lowers_products,
        )

    def make_policy(self, setup: Setup[RainbowConfig], *, chosen: Chosen = None, device: str = "cpu") -> Policy:
        """See AlgorithmEntry."""
        return RainbowPolicy(setup.settings, setup.observation, setup.action, setup.inference(chosen, device))

    def make_algorithm(self, setup: Setup[RainbowConfig], seed: int) -> Algorithm:
        """See AlgorithmEntry."""
        from remuda.policy.algorithms.rainbow.learning import Rainbow

        return Rainbow(setup.config, setup.observation, setup.action, seed)


def _exploration(config: ExperimentConfig, settings: RainbowConfig) -> dict[str, Schedule]:
    noise: Schedule = ((0, 0.0 if config.learner.inference else 1.0),)
    by_noise = {NOISE: noise} if settings.noisy else {}
    return by_noise | ({EPSILON: epsilon_schedule(config, settings)} if settings.takes_random_actions else {})
