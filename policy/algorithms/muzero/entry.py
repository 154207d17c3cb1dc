"""Entry of MuZero: replayed windows of steps, and collectors with a search."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.config.declaration import Declaration, ReanalyzedColumns, Unrolls
from remuda.config.schema import ExperimentConfig
from remuda.policy.acting.network import Chosen
from remuda.policy.algorithms.muzero.targets import (
    COMPLETED_VALUE,
    ROOT_VALUE,
    SEARCH_POLICY,
    TEMPERATURE,
    VISIT_ENTROPY,
)
from remuda.policy.base import Policy, Reanalyzer
from remuda.policy.entry import BuiltInEntry, ReanalyzingEntry, Setup

METRICS: Mapping[str, str] = MappingProxyType(
    {
        "cur_lr": "step size of the optimizer",
        "weighted_total_loss": "`total_loss` by importance weights",
        "total_loss": "loss of a gradient update",
        "policy_loss": "part of the loss for the policy, summed over the positions of a row",
        "reward_loss": "part of the loss for the rewards, summed over the positions of a row",
        "value_loss": "part of the loss for the values, summed over the positions of a row",
        "consistency_loss": "part of the loss for the latent states, summed over the positions of a row",
        "policy_entropy": "entropy of the network's policy, in nats",
        "target_policy_entropy": "entropy of the searches' policy, in nats",
        "value_priority": "absolute errors of the values of the rows",
        "target_reward": "rewards of the first step of a row",
        "target_value": "returns that the values are trained towards",
        "predicted_rewards": "the network's rewards of the first step of a row",
        "predicted_values": "the network's values of the rows of a batch",
        "transformed_target_reward": "`target_reward` on the scale of `policy.support_size`",
        "transformed_target_value": "`target_value` on the scale of `policy.support_size`",
        "reanalyze_time_ms": "time of the searches in an update (`policy.reanalyze_ratio`); 0 if reanalyzers search, "
        "whose time per chunk is in the buffer's log",
        "grad_norm": "norm of the gradient before clipping",
        "analysis/dormant_ratio_encoder": "share of dormant units of the representation: with a mean activation of at "
        "most 0.025 of their layer's mean (Sokar et al. 2023); once per report",
        "analysis/dormant_ratio_dynamics": "share of dormant units of the dynamics; once per report",
        "analysis/latent_state_l2_norms": "mean length of a latent state; once per report",
    }
)
"""Meanings of the metrics of an update, in the order of the logs."""
DECAY_PARTS = 2
"""The temperature changes over this fraction of a run (1 / n)."""


class MuZeroEntry(BuiltInEntry[MuZeroConfig], ReanalyzingEntry[MuZeroConfig]):
    """See AlgorithmEntry."""

    settings = MuZeroConfig
    learner = "remuda.policy.algorithms.muzero.learning:MuZero"
    meanings = MappingProxyType(
        {
            **METRICS,
            VISIT_ENTROPY: "entropy of the actions' shares of a search's simulations, in nats, before the temperature; "
            "0 if one action got all, ln 2 = 0.69 if two actions got half each",
            COMPLETED_VALUE: "with `policy.gumbel`: values of the roots that searches found",
            TEMPERATURE: "temperature of collectors' actions; not with `policy.gumbel`",
        }
    )
    searches = True

    def declaration(self, config: ExperimentConfig, settings: MuZeroConfig) -> Declaration:
        """Declare unrolls. Collectors draw actions with a temperature, the last of its schedule with
        `learner.inference`; Gumbel MuZero has no temperature."""
        return Declaration(
            rows=Unrolls(unroll_steps=settings.unroll_steps, n_step=settings.n_step, discount=settings.discount),
            reuse="replay",
            monitored=tuple(METRICS),
            loss_columns={
                "AverageVVals": "predicted_values",
                "StdVVals": "predicted_values_std",
                "MaxVVals": "predicted_values_max",
                "MinVVals": "predicted_values_min",
                "LossPi": "policy_loss",
                "LossV": "value_loss",
                "LossR": "reward_loss",
                "LossConsistency": "consistency_loss",
                "Entropy": "policy_entropy",
            },
            with_statistics=(
                "total_loss",
                "policy_loss",
                "value_loss",
                "reward_loss",
                "predicted_values",
                "target_value",
                "value_priority",
                "grad_norm",
            ),
            exploration={} if settings.gumbel else {TEMPERATURE: _temperature(config, settings)},
            collected=(VISIT_ENTROPY, COMPLETED_VALUE) if settings.gumbel else (VISIT_ENTROPY,),
            self_play=settings.players == 2,
            reanalyzed=ReanalyzedColumns(columns=(SEARCH_POLICY, ROOT_VALUE), share=settings.reanalyze_ratio),
        )

    def make_policy(self, setup: Setup[MuZeroConfig], *, chosen: Chosen = None, device: str = "cpu") -> Policy:
        """See AlgorithmEntry. Imports torch."""
        from remuda.policy.algorithms.muzero.acting import MuZeroPolicy, NetworkMuZeroPolicy

        acting = MuZeroPolicy if setup.search else NetworkMuZeroPolicy
        return acting(setup.settings, setup.observation, setup.action, setup.inference(chosen, device))

    def make_reanalyzer(self, setup: Setup[MuZeroConfig], *, device: str = "cpu") -> Reanalyzer:
        """See ReanalyzingEntry. Imports torch."""
        from remuda.policy.algorithms.muzero.acting import MuZeroReanalyzer

        return MuZeroReanalyzer(setup.settings, setup.observation, setup.action, setup.inference(None, device))


def _temperature(config: ExperimentConfig, settings: MuZeroConfig) -> tuple[tuple[int, float], ...]:
    start, end = settings.temperature_start, settings.temperature_end
    if config.learner.inference or start == end:
        return ((0, end),)
    decay = settings.temperature_decay_env_steps or max(1, config.stop.max_env_steps // DECAY_PARTS)
    return ((0, start), (decay, end))
