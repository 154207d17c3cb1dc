"""The widths of an actor and its critics, for both sides. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remuda.environments.unsupported import UnsupportedSpaceError
from remuda.policy.networks.parts import PartsLayout
from remuda.policy.spaces import ObservationSpec

CRITICS = 2
"""So many values are learned of each action, and the smaller one counts, since one alone grows too high (Fujimoto et
al. 2018)."""


@dataclass(frozen=True)
class TwinCriticLayout:
    """A network's widths, from the inputs over the hidden layers to the outputs."""

    actor: tuple[int, ...]
    critic: tuple[int, ...]
    has_temperature: bool


def numbers_of(observation: ObservationSpec, *, by: str) -> int:
    """How many numbers are read of an observation (see `flat`). Raises UnsupportedSpaceError for images."""
    if observation.parts:
        layout = PartsLayout.of(observation, None)
        if layout.images:
            names = ", ".join(image.part.name for image in layout.images)
            raise UnsupportedSpaceError(
                f"observations have parts that are images ({names}), which {by} cannot read: it has no convolutions; "
                "leave them out (gymnasium.wrappers.FilterObservation), or take ppo or impala"
            )
        return layout.features
    if observation.is_image:
        raise UnsupportedSpaceError(
            f"observations are images of shape {observation.shape}, which {by} cannot read: it has no convolutions; "
            "flatten them (gymnasium.wrappers.FlattenObservation), or take dqn, ppo or impala"
        )
    return observation.features


def least(values: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """The smaller of the critics' values, each float32 [n, k]."""
    return np.minimum(*values)
