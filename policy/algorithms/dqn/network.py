"""The network that DQN learns, as its settings ask for it."""

from __future__ import annotations

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.policy.algorithms.q_policy import layout, number_of_actions
from remuda.policy.networks.parts import features_of
from remuda.policy.networks.torch_networks import QNetwork
from remuda.policy.spaces import ActionSpec, ObservationSpec

HIDDEN = (128, 128, 64)
"""Units of the hidden layers where nobody says otherwise."""


def make_network(config: DqnConfig, observation: ObservationSpec, action: ActionSpec) -> QNetwork:
    """A network as torch's generator begins it. Raises UnsupportedSpaceError."""
    image, hidden = layout(config, observation, default=HIDDEN)
    actions, features = number_of_actions(config, action), features_of(observation, image)
    return QNetwork(features, actions, hidden, dueling=config.dueling, image=image)
