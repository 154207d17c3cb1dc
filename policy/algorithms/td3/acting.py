"""TD3, the acting side: the actor's action, with noise in collectors."""

from __future__ import annotations

from remuda.config.algorithms.twin_critics import Td3Config
from remuda.policy.acting.network import PLAIN, Inference
from remuda.policy.algorithms.twin_critics.acting import TwinCriticPolicy
from remuda.policy.algorithms.twin_critics.layout import TwinCriticLayout
from remuda.policy.spaces import ActionSpec, ObservationSpec

NOISE = "noise"
"""The exploration of Policy.act that is the standard deviation of the noise on actions in -1 … 1."""


def make_td3_policy(
    config: Td3Config, observation: ObservationSpec, action: ActionSpec, inference: Inference = PLAIN
) -> TwinCriticPolicy:
    """Takes what the actor's outputs become by tanh. Raises UnsupportedSpaceError."""
    return TwinCriticPolicy(config, td3_layout(config, action), observation, action, "unit_action", inference)


def td3_layout(config: Td3Config, action: ActionSpec) -> TwinCriticLayout:
    """The network's layers. Raises UnsupportedSpaceError."""
    action.bounded(by="td3")
    return TwinCriticLayout(config.hidden, action.outputs, action.outputs, 1, has_temperature=False)
