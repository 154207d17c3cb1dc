"""TD3 as the roles know it: single steps, replayed; collectors add noise to the actor's actions."""

from __future__ import annotations

from remuda.config.algorithms.twin_critics import Td3Config
from remuda.config.declaration import Declaration, Steps
from remuda.config.schema import ExperimentConfig
from remuda.policy.acting.network import Chosen
from remuda.policy.algorithms.q_policy import Q_VALUE_COLUMNS
from remuda.policy.algorithms.td3.acting import NOISE, make_td3_policy
from remuda.policy.algorithms.twin_critics.acting import random_at_first
from remuda.policy.base import Algorithm, Policy
from remuda.policy.entry import AlgorithmEntry, Setup


class Td3Entry(AlgorithmEntry[Td3Config]):
    """See AlgorithmEntry."""

    settings = Td3Config

    def declaration(self, config: ExperimentConfig, settings: Td3Config) -> Declaration:
        """Random actions at first; then the actor's, with noise."""
        return Declaration(
            rows=Steps(n_step=settings.n_step, discount=settings.discount),
            reuse="replay",
            monitored=(
                "cur_lr",
                "critic_loss",
                "policy_loss",
                "q_value",
                "target_q_value",
                "td_error",
                "grad_norm",
                "actor_grad_norm",
            ),
            loss_columns={
                **Q_VALUE_COLUMNS,
                "LossPi": "policy_loss",
                "LossQ": "critic_loss",
            },
            with_statistics=("critic_loss", "policy_loss", "q_value", "td_error", "grad_norm"),
            exploration={NOISE: ((0, settings.exploration_noise),), **random_at_first(config, settings)},
            learns_from_parts=settings.learns_from_parts,
            lowers_products=settings.lowers_products,
        )

    def make_policy(self, setup: Setup[Td3Config], *, chosen: Chosen = None, device: str = "cpu") -> Policy:
        """See AlgorithmEntry."""
        return make_td3_policy(setup.settings, setup.observation, setup.action, setup.inference(chosen, device))

    def make_algorithm(self, setup: Setup[Td3Config], seed: int) -> Algorithm:
        """See AlgorithmEntry."""
        from remuda.policy.algorithms.td3.learning import Td3

        return Td3(setup.config, setup.observation, setup.action, seed)
