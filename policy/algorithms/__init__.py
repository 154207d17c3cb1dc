"""The algorithms there are, looked up by `policy.type` of a config. Importing this package does not import torch."""

from __future__ import annotations

from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.dqn_policy import DECLARATION, DqnPolicy
from remuda.policy.base import Algorithm, Declaration, Policy
from remuda.policy.spaces import ActionSpec, ObservationSpec


def make_algorithm(config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> Algorithm:
    """Build the learning side, its weights drawn from `seed`. Imports torch."""
    from remuda.policy.algorithms.dqn import Dqn

    return {"dqn": Dqn}[config.policy.type](config, observation, action, seed)


def make_policy(config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec) -> Policy:
    """Build the acting side; it acts once a state is loaded."""
    return {"dqn": DqnPolicy}[config.policy.type](config.policy, observation, action)


def declaration(config: ExperimentConfig) -> Declaration:
    """Look up which columns the algorithm needs and what it monitors."""
    return {"dqn": DECLARATION}[config.policy.type]
