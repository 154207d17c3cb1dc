"""Entry of MuZero: replayed windows of steps, and collectors with a search."""

from __future__ import annotations

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

MONITORED = (
    "cur_lr",
    "weighted_total_loss",
    "total_loss",
    "policy_loss",
    "reward_loss",
    "value_loss",
    "consistency_loss",
    "policy_entropy",
    "target_policy_entropy",
    "value_priority",
    "target_reward",
    "target_value",
    "predicted_rewards",
    "predicted_values",
    "transformed_target_reward",
    "transformed_target_value",
    "reanalyze_time_ms",
    "grad_norm",
    "analysis/dormant_ratio_encoder",
    "analysis/dormant_ratio_dynamics",
    "analysis/latent_state_l2_norms",
)
DECAY_PARTS = 2
"""The temperature changes over this fraction of a run (1 / n)."""


class MuZeroEntry(BuiltInEntry[MuZeroConfig], ReanalyzingEntry[MuZeroConfig]):
    """See AlgorithmEntry."""

    settings = MuZeroConfig
    learner = "remuda.policy.algorithms.muzero.learning:MuZero"
    searches = True

    def declaration(self, config: ExperimentConfig, settings: MuZeroConfig) -> Declaration:
        """Declare unrolls. Collectors draw actions with a temperature, the last of its schedule with
        `learner.inference`; Gumbel MuZero has no temperature."""
        return Declaration(
            rows=Unrolls(unroll_steps=settings.unroll_steps, n_step=settings.n_step, discount=settings.discount),
            reuse="replay",
            monitored=MONITORED,
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
