"""The network that DQN learns, as its settings ask for it."""

from __future__ import annotations

from torch import nn

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.policy.algorithms.q_policy import hidden_layers, number_of_actions
from remuda.policy.networks.custom_encoder import reads
from remuda.policy.networks.custom_network import CustomValues
from remuda.policy.networks.torch_networks import QNetwork
from remuda.policy.spaces import ActionSpec, ObservationSpec

HIDDEN = (128, 128, 64)
"""Units of the hidden layers where nobody says otherwise."""


def make_network(
    config: DqnConfig, observation: ObservationSpec, action: ActionSpec, source_dir: str | None
) -> nn.Module:
    """A network as torch's generator begins it. Raises UnsupportedSpaceError, and UserCodeError by its encoder or by
    the whole, whose module is looked for in `source_dir`."""
    actions = number_of_actions(config, action)
    if config.network is not None:
        return CustomValues(config, observation, action, source_dir, shape=(actions,), output="values")
    hidden = hidden_layers(config, observation, default=HIDDEN)
    trunk, features = reads(config, observation, source_dir)
    return QNetwork(features, actions, hidden, dueling=config.dueling, trunk=trunk)
