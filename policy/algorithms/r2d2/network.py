"""The network that R2D2 learns, as its settings ask for it."""

from __future__ import annotations

from remuda.config.algorithms.q_learning import R2d2Config
from remuda.policy.algorithms.q_policy import number_of_actions
from remuda.policy.algorithms.r2d2.layout import layout
from remuda.policy.networks.custom_encoder import reads
from remuda.policy.networks.recurrent_networks import RecurrentNetwork
from remuda.policy.networks.torch_networks import QNetwork
from remuda.policy.spaces import ActionSpec, ObservationSpec

Network = RecurrentNetwork[QNetwork]


def make_network(
    config: R2d2Config, observation: ObservationSpec, action: ActionSpec, source_dir: str | None
) -> Network:
    """See remuda.policy.algorithms.dqn.network."""
    laid_out, actions = layout(config, observation), number_of_actions(config, action)
    head = QNetwork(laid_out.units, actions, config.head_hidden, dueling=config.dueling)
    trunk, features = reads(config, observation, source_dir)
    return RecurrentNetwork(laid_out, head, features, trunk)
