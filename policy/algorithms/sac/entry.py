"""Soft actor-critic without torch: acting side and entry."""

from __future__ import annotations

import math
from typing import cast

from remuda.config.algorithms.twin_critics import SacConfig
from remuda.config.declaration import Declaration
from remuda.config.schema import ExperimentConfig
from remuda.policy.acting.network import PLAIN, Chosen, Inference
from remuda.policy.algorithms.twin_critics.acting import TwinCriticLayout, TwinCriticPolicy, declared
from remuda.policy.base import Algorithm, Policy, imported
from remuda.policy.entry import AlgorithmEntry, Setup
from remuda.policy.spaces import ActionSpec, ObservationSpec, OutputName


def make_sac_policy(
    config: SacConfig, observation: ObservationSpec, action: ActionSpec, inference: Inference = PLAIN
) -> TwinCriticPolicy:
    """Make a policy that draws numbers from a normal distribution, brought within the bounds by tanh, or actions of a
    Discrete space by their probabilities. Raises UnsupportedSpaceError."""
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
    """Target entropy of a learned temperature, in nats."""
    if config.target_entropy is not None:
        return config.target_entropy
    return -float(action.outputs) if action.n is None else config.target_entropy_share * math.log(action.n)


class SacEntry(AlgorithmEntry[SacConfig]):
    """See AlgorithmEntry."""

    settings = SacConfig

    def declaration(self, config: ExperimentConfig, settings: SacConfig) -> Declaration:
        """Declare random actions at first; afterwards the policy draws its actions."""
        return declared(
            config,
            settings,
            further=("temperature", "entropy"),
            columns={"Entropy": "entropy", "Temperature": "temperature"},
        )

    def make_policy(self, setup: Setup[SacConfig], *, chosen: Chosen = None, device: str = "cpu") -> Policy:
        return make_sac_policy(setup.settings, setup.observation, setup.action, setup.inference(chosen, device))

    def make_algorithm(self, setup: Setup[SacConfig], seed: int) -> Algorithm:
        kind = "Sac" if setup.action.n is None else "DiscreteSac"
        made = imported(f"remuda.policy.algorithms.sac.learning:{kind}")
        return cast("Algorithm", made(setup.config, setup.observation, setup.action, seed))
