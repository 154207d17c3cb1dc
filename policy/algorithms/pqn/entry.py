"""PQN as the roles know it: segments, used once; epsilon-greedy collectors."""

from __future__ import annotations

from remuda.config.algorithms.q_learning import PqnConfig
from remuda.config.declaration import Declaration, Segments
from remuda.config.schema import ExperimentConfig
from remuda.policy.acting.network import Chosen
from remuda.policy.algorithms.dqn.acting import DqnPolicy
from remuda.policy.algorithms.q_policy import declared
from remuda.policy.base import Algorithm, Policy
from remuda.policy.entry import AlgorithmEntry, Setup


class PqnEntry(AlgorithmEntry[PqnConfig]):
    """See AlgorithmEntry."""

    settings = PqnConfig

    def declaration(self, config: ExperimentConfig, settings: PqnConfig) -> Declaration:
        """See declared."""
        rows = Segments(horizon_steps=settings.horizon_steps, discount=settings.discount)
        return declared(config, settings, rows, reuse="once")

    def make_policy(self, setup: Setup[PqnConfig], *, chosen: Chosen = None, device: str = "cpu") -> Policy:
        """See AlgorithmEntry."""
        return DqnPolicy(setup.settings, setup.observation, setup.action, setup.inference(chosen, device))

    def make_algorithm(self, setup: Setup[PqnConfig], seed: int) -> Algorithm:
        """See AlgorithmEntry."""
        from remuda.policy.algorithms.pqn.learning import Pqn

        return Pqn(setup.config, setup.observation, setup.action, seed)
