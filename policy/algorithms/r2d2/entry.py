"""R2D2 as the roles know it: sequences, replayed; epsilon-greedy collectors that remember the episode."""

from __future__ import annotations

from remuda.config.algorithms.q_learning import R2d2Config
from remuda.config.declaration import Declaration, Sequences
from remuda.config.schema import ExperimentConfig
from remuda.policy.acting.network import Chosen
from remuda.policy.algorithms.q_policy import declared
from remuda.policy.algorithms.r2d2.acting import make_r2d2_policy
from remuda.policy.base import Algorithm, Policy
from remuda.policy.entry import AlgorithmEntry, Setup


class R2d2Entry(AlgorithmEntry[R2d2Config]):
    """See AlgorithmEntry."""

    settings = R2d2Config

    def declaration(self, config: ExperimentConfig, settings: R2d2Config) -> Declaration:
        """See declared."""
        rows = Sequences(
            burn_in_steps=settings.burn_in_steps,
            sequence_steps=settings.sequence_steps,
            overlap_steps=settings.overlap_steps,
            n_step=settings.n_step,
            discount=settings.discount,
        )
        return declared(config, settings, rows)

    def make_policy(self, setup: Setup[R2d2Config], *, chosen: Chosen = None, device: str = "cpu") -> Policy:
        """See AlgorithmEntry."""
        return make_r2d2_policy(setup.settings, setup.observation, setup.action, setup.inference(chosen, device))

    def make_algorithm(self, setup: Setup[R2d2Config], seed: int) -> Algorithm:
        """See AlgorithmEntry."""
        from remuda.policy.algorithms.r2d2.learning import R2d2

        return R2d2(setup.config, setup.observation, setup.action, seed)
