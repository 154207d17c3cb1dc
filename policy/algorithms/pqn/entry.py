"""Entry of PQN: segments, used once; epsilon-greedy collectors."""

from __future__ import annotations

from remuda.config.algorithms.q_learning import PqnConfig
from remuda.config.declaration import Declaration, Segments
from remuda.config.schema import ExperimentConfig
from remuda.policy.acting.network import Chosen
from remuda.policy.algorithms.dqn.entry import DqnPolicy, declared
from remuda.policy.base import Policy
from remuda.policy.entry import BuiltInEntry, Setup


class PqnEntry(BuiltInEntry[PqnConfig]):
    """See AlgorithmEntry."""

    settings = PqnConfig
    learner = "remuda.policy.algorithms.pqn.learning:Pqn"

    def declaration(self, config: ExperimentConfig, settings: PqnConfig) -> Declaration:
        rows = Segments(horizon_steps=settings.horizon_steps, discount=settings.discount)
        return declared(config, settings, rows, reuse="once")

    def make_policy(self, setup: Setup[PqnConfig], *, chosen: Chosen = None, device: str = "cpu") -> Policy:
        return DqnPolicy(setup.settings, setup.observation, setup.action, setup.inference(chosen, device))
