"""The shape of an actor and its critics, for both sides. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remuda.config.algorithms.encoded import EncodedConfig
from remuda.policy.networks.parts import PartsLayout, has_images, input_layout
from remuda.policy.spaces import ObservationSpec

CRITICS = 2
"""So many values are learned of each action, and the smaller one counts, since one alone grows too high (Fujimoto et
al. 2018)."""


@dataclass(frozen=True)
class TwinCriticLayout:
    """The layers of an actor and of each critic, behind the features that they read."""

    hidden: tuple[int, ...]
    actor_outputs: int
    action_numbers: int
    """Numbers of an action that the critics read beside the features; 0 where they value all actions."""
    values: int
    """Of each critic."""
    has_temperature: bool

    def actor(self, features: int) -> tuple[int, ...]:
        """The actor's widths, from so many features to its outputs."""
        return (features, *self.hidden, self.actor_outputs)

    def critic(self, features: int) -> tuple[int, ...]:
        """Likewise each critic's."""
        return (features + self.action_numbers, *self.hidden, self.values)


def numbers_of(config: EncodedConfig, observation: ObservationSpec) -> int | None:
    """How many numbers are read of an observation as one vector (see `flat`); None where a module of users or
    convolutions read it. Raises UnsupportedSpaceError."""
    layout = input_layout(observation, config.convolution)
    if config.reads_by_module or has_images(layout):
        return None
    return layout.features if isinstance(layout, PartsLayout) else observation.features


def least(values: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """The smaller of the critics' values, each float32 [n, k]."""
    return np.minimum(*values)
