"""Soft actor-critic as the roles know it: single steps, replayed; collectors draw from the policy's distribution."""

from __future__ import annotations

from remuda.config.algorithms.twin_critics import SacConfig
from remuda.config.declaration import Declaration, Steps
from remuda.config.schema import ExperimentConfig
from remuda.policy.acting.network import Chosen
from remuda.policy.algorithms.q_policy import Q_VALUE_COLUMNS
from remuda.policy.algorithms.sac.acting import make_sac_policy
from remuda.policy.algorithms.twin_critics.acting import random_at_first
from remuda.policy.base import Algorithm, Policy
from remuda.policy.entry import AlgorithmEntry, Setup


class SacEntry(AlgorithmEntry[SacConfig]):
    """See AlgorithmEntry."""

    settings = SacConfig

    def declaration(self, config: ExperimentConfig, settings: SacConfig) -> Declaration:
        """Random actions at first; then the policy itself draws its actions."""
        return Declaration(
            rows=Steps(n_step=settings.n_step, discount=settings.discount),
            reuse="replay",
            monitored=(
                "cur_lr",
                "critic_loss",
                "policy_loss",
                "temperature",
                "entropy",
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
                "Entropy": "entropy",
                "Temperature": "temperature",
            },
            with_statistics=("critic_loss", "policy_loss", "q_value", "td_error", "grad_norm"),
            exploration=random_at_first(config, settings),
            learns_from_parts=settings.learns_from_parts,
            lowers_products=settings.lowers_products,
        )

    def make_policy(self, setup: Setup[SacConfig], *, chosen: Chosen = None, device: str = "cpu") -> Policy:
        """See AlgorithmEntry."""
        return make_sac_policy(setup.settings, setup.observation, setup.action, setup.inference(chosen, device))

    def make_algorithm(self, setup: Setup[SacConfig], seed: int) -> Algorithm:
        """See AlgorithmEntry."""
        from remuda.policy.algorithms.sac.discrete import DiscreteSac
        from remuda.policy.algorithms.sac.learning import Sac

        kind = Sac if setup.action.n is None else DiscreteSac
        return kind(setup.config, setup.observation, setup.action, seed)
