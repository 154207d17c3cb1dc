"""PPO and IMPALA as the roles know them: segments, used once; collectors draw from the policy's distribution."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar

from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
from remuda.config.declaration import Declaration, Segments
from remuda.config.schema import ExperimentConfig
from remuda.policy.acting.network import Chosen
from remuda.policy.algorithms.actor_critic.acting import MONITORED, PPO_MONITORED, make_actor_critic_policy
from remuda.policy.base import Algorithm, Policy
from remuda.policy.entry import AlgorithmEntry, Setup

ActorCriticSettings = TypeVar("ActorCriticSettings", PpoConfig, ImpalaConfig)


class ActorCriticEntry(AlgorithmEntry[ActorCriticSettings]):
    """The common part of both algorithms."""

    monitored: tuple[str, ...] = MONITORED
    """See Declaration."""
    further_columns: Mapping[str, str] = MappingProxyType({})
    """Columns of progress.txt, besides the common ones."""

    def declaration(self, config: ExperimentConfig, settings: ActorCriticSettings) -> Declaration:
        """No further exploration: the policy itself draws its actions."""
        return Declaration(
            rows=Segments(horizon_steps=settings.horizon_steps, discount=settings.discount),
            reuse="once",
            monitored=self.monitored,
            loss_columns={
                "AverageVVals": "value",
                "StdVVals": "value_std",
                "MaxVVals": "value_max",
                "MinVVals": "value_min",
                "LossPi": "policy_loss",
                "LossV": "value_loss",
                "Entropy": "entropy",
                "KL": "approx_kl",
                "ClipFrac": "clip_fraction",
                **self.further_columns,
            },
            with_statistics=("total_loss", "policy_loss", "value_loss", "entropy", "value", "grad_norm"),
            learns_from_parts=settings.learns_from_parts,
            lowers_products=settings.lowers_products,
        )

    def make_policy(self, setup: Setup[ActorCriticSettings], *, chosen: Chosen = None, device: str = "cpu") -> Policy:
        """See AlgorithmEntry."""
        return make_actor_critic_policy(
            setup.settings, setup.observation, setup.action, setup.inference(chosen, device)
        )


class PpoEntry(ActorCriticEntry[PpoConfig]):
    """See AlgorithmEntry."""

    settings = PpoConfig
    monitored = PPO_MONITORED
    further_columns = MappingProxyType({"StopIter": "stop_iter"})

    def make_algorithm(self, setup: Setup[PpoConfig], seed: int) -> Algorithm:
        """See AlgorithmEntry."""
        from remuda.policy.algorithms.actor_critic.ppo import Ppo

        return Ppo(setup.config, setup.observation, setup.action, seed)


class ImpalaEntry(ActorCriticEntry[ImpalaConfig]):
    """See AlgorithmEntry."""

    settings = ImpalaConfig

    def make_algorithm(self, setup: Setup[ImpalaConfig], seed: int) -> Algorithm:
        """See AlgorithmEntry."""
        from remuda.policy.algorithms.actor_critic.impala import Impala

        return Impala(setup.config, setup.observation, setup.action, seed)
