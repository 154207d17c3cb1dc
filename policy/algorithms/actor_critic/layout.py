"""How the networks of PPO and IMPALA read observations, for both sides. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
from remuda.environments.unsupported import UnsupportedSpaceError
from remuda.policy.networks.parts import has_images, input_layout, units
from remuda.policy.networks.recurrence import RecurrentLayout
from remuda.policy.spaces import ObservationSpec


@dataclass(frozen=True)
class NetworkShape:
    """How an ActorCriticNetwork reads observations."""

    numbers: int | None
    """Of an observation; None where it is an image or has several parts."""
    hidden: tuple[int, ...]
    shared: bool
    """Whether policy and value share the hidden layers."""
    activation: Literal["tanh", "relu"]


def network_shape(config: PpoConfig | ImpalaConfig, observation: ObservationSpec) -> NetworkShape:
    """Complete the settings that depend on the observations. Raises UnsupportedSpaceError."""
    image = input_layout(observation, config.convolution)
    convolves = has_images(image) and not config.reads_by_module
    if image is not None and config.normalize_observations:
        raise UnsupportedSpaceError(
            f"policy.normalize_observations is for numbers, and observations {_are(observation)}: leave it out"
        )
    activation = config.activation or ("relu" if convolves else "tanh")
    shared = convolves if config.shared_hidden is None else config.shared_hidden
    hidden = units(config.hidden, image if convolves else None, default=(64, 64))
    return NetworkShape(None if image is not None else observation.features, hidden, shared, activation)


def _are(observation: ObservationSpec) -> str:
    if observation.parts:
        return f"have several parts ({', '.join(part.name for part in observation.parts)})"
    return f"are images of shape {observation.shape}, which are scaled by their bound"


def recurrent_layout(config: PpoConfig | ImpalaConfig, observation: ObservationSpec) -> RecurrentLayout:
    """How a recurrent network reads observations, if `config.recurrent` asks for one. Raises UnsupportedSpaceError."""
    shape = network_shape(config, observation)
    assert config.recurrent is not None
    return RecurrentLayout(
        shape.numbers or 0,
        shape.hidden,
        shape.activation,
        config.recurrent,
        config.recurrent_units,
        config.normalize_observations,
    )
