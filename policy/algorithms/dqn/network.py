"""The networks that DQN and PQN learn, as their settings ask for them."""

from __future__ import annotations

from torch import nn

from remuda.config.algorithms.q_learning import DqnConfig, PqnConfig
from remuda.policy.algorithms.q_policy import hidden_layers, number_of_actions
from remuda.policy.networks.custom_encoder import reads
from remuda.policy.networks.custom_network import CustomValues
from remuda.policy.networks.torch_networks import QNetwork
from remuda.policy.spaces import ActionSpec, ObservationSpec

HIDDEN, PQN_HIDDEN = (128, 128, 64), (128, 128)
"""Units of the hidden layers where nobody says otherwise."""


def make_network(
    config: DqnConfig | PqnConfig, observation: ObservationSpec, action: ActionSpec, source_dir: str | None
) -> nn.Module:
    """A network as torch's generator begins it. Raises UnsupportedSpaceError, and UserCodeError by its encoder or by
    the whole, whose module is looked for in `source_dir`."""
    actions = number_of_actions(config, action)
    if config.network is not None:
        return CustomValues(config, observation, action, source_dir, shape=(actions,), output="values")
    trunk, features = reads(config, observation, source_dir)
    if isinstance(config, PqnConfig):
        hidden = hidden_layers(config, observation, default=PQN_HIDDEN)
        return QNetwork(features, actions, hidden, dueling=False, layer_norm=config.layer_norm, trunk=trunk)
    hidden = hidden_layers(config, observation, default=HIDDEN)
    return QNetwork(features, actions, hidden, dueling=config.dueling, trunk=trunk)
