"""The weights of a network for acting, in the order in which they are used, whatever the algorithm calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from remuda.policy.base import Arrays
from remuda.policy.networks.images import ImageLayout
from remuda.policy.networks.parts import InputLayout, PartsLayout

Forward = Callable[[np.ndarray], NDArray[np.float32]]
"""Maps encoded observations (see ObservationSpec.encode) [n, …] to the last layer's outputs, float32 [n, outputs]."""


@dataclass(frozen=True)
class Dense:
    """A fully connected layer."""

    weight: NDArray[np.float32]
    """[outputs, inputs]."""
    bias: NDArray[np.float32]

    @classmethod
    def of(cls, state: Arrays, name: str) -> Dense:
        """Take a torch layer out of a network's state."""
        return cls(state[f"{name}.weight"], state[f"{name}.bias"])


@dataclass(frozen=True)
class Filters:
    """A convolution, followed by relu."""

    weight: NDArray[np.float32]
    """[filters, channels, kernel, kernel]."""
    bias: NDArray[np.float32]
    stride: int


@dataclass(frozen=True)
class Weights:
    """Convolutions (of images), then a perceptron whose last layer is linear."""

    dense: tuple[Dense, ...]
    """With none, the outputs are those of the convolutions, flattened as channels, height, width; without convolutions
    the observations."""
    activation: Literal["relu", "tanh"]
    """The activation after each dense layer except the last."""
    filters: tuple[Filters, ...] = ()
    channels_last: bool = False
    """Where the images have their channels, see Pixels."""
    parts: PartsLayout | None = None
    """Of observations with several parts, which are rows of bytes; then there are no `filters`."""
    parts_filters: tuple[tuple[Filters, ...], ...] = ()
    """Those of each image among the parts."""


def weights_of(
    state: Arrays, dense: Iterable[Dense], activation: Literal["relu", "tanh"], image: InputLayout | None, trunk: str
) -> Weights:
    """Put a network's weights together: for images and observations of several parts (`image`), the convolutions of
    `trunk` in its state come first."""
    if image is None:
        return Weights(tuple(dense), activation)
    if isinstance(image, PartsLayout):
        named = enumerate(image.images)
        filters = tuple(image_filters(state, f"{trunk}.images.{index}", part.layout) for index, part in named)
        return Weights(tuple(dense), activation, parts=image, parts_filters=filters)
    return Weights(tuple(dense), activation, image_filters(state, trunk, image), image.pixels.channels_last)


def image_filters(state: Arrays, prefix: str, image: ImageLayout) -> tuple[Filters, ...]:
    """Take a ConvolutionTrunk out of a network's state. Its scale goes into the first filters, which saves a pass."""
    scale = np.float32(image.pixels.scale)
    return tuple(
        Filters(
            state[f"{prefix}.{2 * index}.weight"] * (scale if index == 0 else np.float32(1.0)),
            state[f"{prefix}.{2 * index}.bias"],
            layer.stride,
        )
        for index, layer in enumerate(image.layers)
    )
