"""How R2D2's network reads observations, for both sides. Imports no torch."""

from __future__ import annotations

from remuda.config.algorithms.q_learning import R2d2Config
from remuda.policy.algorithms.q_policy import layout as input_and_hidden
from remuda.policy.networks.parts import features_of
from remuda.policy.networks.recurrence import RecurrentLayout
from remuda.policy.spaces import ObservationSpec

HIDDEN = (128,)
"""Units of the hidden layers where nobody says otherwise."""


def layout(config: R2d2Config, observation: ObservationSpec) -> RecurrentLayout:
    """How the network reads these observations. Raises UnsupportedSpaceError."""
    image, hidden = input_and_hidden(config, observation, default=HIDDEN)
    features = features_of(observation, image)
    return RecurrentLayout(image, features, hidden, "relu", config.recurrent, config.recurrent_units)
