"""The network that DQN learns, as its settings ask for it."""

from __future__ import annotations

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.policy.algorithms.q_policy import hidden_layers, number_of_actions
from remuda.policy.networks.custom_encoder import reads
from remuda.policy.networks.torch_networks import QNetwork
from remuda.policy.spaces import ActionSpec, ObservationSpec

HIDDEN = (128, 128, 64)
"""Units of the hidden layers where nobody says otherwise."""


def make_network(
    config: DqnConfig, observation: ObservationSpec, action: ActionSpec, source_dir: str | None
) -> QNetwork:
    """A network as torch's generator begins it. Raises UnsupportedSpaceError, and UserCodeError by its encoder, whose
    module is looked for in `source_dir`."""
    hidden, actions = hidden_layers(config, observation, default=HIDDEN), number_of_actions(config, action)
    trunk, features = reads(config, observation, source_dir)
    return QNetwork(features, actions, hidden, dueling=config.dueling, trunk=trunk)
