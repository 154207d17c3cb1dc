"""Deep Q-learning as the roles know it: single steps, replayed; epsilon-greedy collectors."""

from __future__ import annotations

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.declaration import Declaration, Steps
from remuda.config.schema import ExperimentConfig
from remuda.policy.acting.network import Chosen
from remuda.policy.algorithms.dqn.acting import DqnPolicy
from remuda.policy.algorithms.q_policy import declared
from remuda.policy.base import Algorithm, Policy
from remuda.policy.entry import AlgorithmEntry, Setup


class DqnEntry(AlgorithmEntry[DqnConfig]):
    """See AlgorithmEntry."""

    settings = DqnConfig

    def declaration(self, config: ExperimentConfig, settings: DqnConfig) -> Declaration:
        """See declared."""
        rows = Steps(n_step=settings.n_step, discount=settings.discount)
        return declared(config, settings, rows)

    def make_policy(self, setup: Setup[DqnConfig], *, chosen: Chosen = None, device: str = "cpu") -> Policy:
        """See AlgorithmEntry."""
        return DqnPolicy(setup.settings, setup.observation, setup.action, setup.inference(chosen, device))

    def make_algorithm(self, setup: Setup[DqnConfig], seed: int) -> Algorithm:
        """See AlgorithmEntry."""
        from remuda.policy.algorithms.dqn.learning import Dqn

        return Dqn(setup.config, setup.observation, setup.action, seed)
