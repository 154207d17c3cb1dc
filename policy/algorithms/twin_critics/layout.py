"""The widths of an actor and its critics, for both sides. Imports no torch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remuda.environments.unsupported import UnsupportedSpaceError
from remuda.policy.acting.weights import Dense, Weights
from remuda.policy.base import Arrays
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

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The tensors of TwinCriticNetwork by name (a test compares the two)."""
        temperature: dict[str, tuple[int, ...]] = {"log_temperature": (1,)} if self.has_temperature else {}
        return temperature | _shapes("actor", 1, self.actor) | _shapes("critics", CRITICS, self.critic)

    def actor_weights(self, state: Arrays) -> Weights:
        """Take the actor out of a network's state."""
        return _weights(state, "actor", 0, len(self.actor) - 1)

    def critic_weights(self, state: Arrays) -> list[Weights]:
        """Take each critic out of a network's state."""
        return [_weights(state, "critics", index, len(self.critic) - 1) for index in range(CRITICS)]


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


def _shapes(name: str, count: int, widths: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for index, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        layer = f"{name}.{2 * index}"
        shapes |= {f"{layer}.weight": (count, inputs, outputs), f"{layer}.bias": (count, 1, outputs)}
    return shapes


def _weights(state: Arrays, name: str, index: int, layers: int) -> Weights:
    dense = [
        Dense(state[f"{name}.{2 * layer}.weight"][index].T, state[f"{name}.{2 * layer}.bias"][index, 0])
        for layer in range(layers)
    ]
    return Weights(tuple(dense), "relu")
