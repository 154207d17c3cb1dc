"""Soft actor-critic, the acting side: draws from the policy's distribution, or takes its mode."""

from __future__ import annotations

import math

from remuda.config.algorithms.twin_critics import SacConfig
from remuda.policy.acting.network import PLAIN, Inference
from remuda.policy.algorithms.twin_critics.acting import TwinCriticPolicy
from remuda.policy.algorithms.twin_critics.layout import TwinCriticLayout
from remuda.policy.spaces import ActionSpec, ObservationSpec, OutputName


def make_sac_policy(
    config: SacConfig, observation: ObservationSpec, action: ActionSpec, inference: Inference = PLAIN
) -> TwinCriticPolicy:
    """Numbers drawn from a normal distribution and brought within the bounds by tanh; or actions of a Discrete space,
    drawn by their probabilities. Raises UnsupportedSpaceError."""
    layout = sac_layout(config, action)
    name: OutputName = "logits" if action.n is not None else "squashed_gaussian"
    return TwinCriticPolicy(config, layout, observation, action, name, inference)


def sac_layout(config: SacConfig, action: ActionSpec) -> TwinCriticLayout:
    """The network's layers. Raises UnsupportedSpaceError."""
    outputs, learned = action.outputs, config.temperature is None
    if action.n is not None:
        return TwinCriticLayout(config.hidden, outputs, 0, outputs, learned)
    action.bounded(by="sac", supported="Box, Discrete")
    return TwinCriticLayout(config.hidden, 2 * outputs, outputs, 1, learned)


def target_entropy(config: SacConfig, action: ActionSpec) -> float:
    """The entropy in nats that a learned temperature aims at."""
    if config.target_entropy is not None:
        return config.target_entropy
    return -float(action.outputs) if action.n is None else config.target_entropy_share * math.log(action.n)
