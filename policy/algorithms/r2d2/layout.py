"""How R2D2's network reads observations, for both sides. Imports no torch."""

from __future__ import annotations

from remuda.config.algorithms.q_learning import R2d2Config
from remuda.policy.algorithms.q_policy import hidden_layers
from remuda.policy.networks.parts import require_readable
from remuda.policy.networks.recurrence import RecurrentLayout
from remuda.policy.spaces import ObservationSpec

HIDDEN = (128,)
"""Units of the hidden layers where nobody says otherwise."""


def layout(config: R2d2Config, observation: ObservationSpec) -> RecurrentLayout:
    """How the network reads these observations. Raises UnsupportedSpaceError."""
    require_readable(config, observation)
    hidden = hidden_layers(config, observation, default=HIDDEN)
    return RecurrentLayout(0, hidden, "relu", config.recurrent, config.recurrent_units)
