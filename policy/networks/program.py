"""Programs: the computation of a network's output as data, published with the weights and run by numpy.

So collectors act without torch, whose import takes 1.6 s and 190 MiB, and every network is written once. See
remuda.policy.networks.reading for the supported modules, and remuda.policy.networks.compiled for the execution.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Struct

from remuda.policy.saved_state import StateMismatchError

PROGRAM = "acting_program"
"""Name of the programs among the published arrays of a network, or suffix for a part of the network."""

Function = Literal["relu", "tanh", "sigmoid", "elu", "silu", "gelu", "gelu_tanh", "softplus", "leaky_relu"]


class Dense(Struct, frozen=True, tag=True):
    """A fully connected layer."""

    weight: str
    """The name of [outputs, inputs]; with an `index`, of [layers, inputs, outputs]."""
    bias: str | None
    index: int | None = None
    """Index among stacked layers."""


class Convolution(Struct, frozen=True, tag=True):
    """Filters over an image [n, height, width, channels]."""

    weight: str
    """The name of [filters, channels, height, width]."""
    bias: str | None
    stride: tuple[int, int]
    padding: tuple[int, int] = (0, 0)


class MaxPool(Struct, frozen=True, tag=True):
    """Maximum of each window of an image [n, height, width, channels]."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]


class Apply(Struct, frozen=True, tag=True):
    """A function of each number."""

    function: Function


class LayerNorm(Struct, frozen=True, tag=True):
    """Scales each row to mean 0 and variance 1 (Ba et al. 2016)."""

    weight: str | None
    bias: str | None
    epsilon: float


class BatchNorm(Struct, frozen=True, tag=True):
    """Scales each number by running moments, to mean 0 and variance 1, then by a learned weight and bias, if any
    (Ioffe and Szegedy 2015)."""

    mean: str
    variance: str
    weight: str | None
    bias: str | None
    epsilon: float


class Normalise(Struct, frozen=True, tag=True):
    """Brings numbers to running mean 0 and standard deviation 1, clipped; see Moments."""

    mean: str
    variance: str


class Append(Struct, frozen=True, tag=True):
    """Appends a constant number to each row."""

    number: float


class UnitLength(Struct, frozen=True, tag=True):
    """Scales each row to length 1."""

    LEAST_SQUARE: ClassVar[float] = 1e-16
    """Smallest square of a length to divide by."""


class Scale(Struct, frozen=True, tag=True):
    """Multiplies each number by a learned weight and by a constant."""

    weight: str
    times: float


class ReadPixels(Struct, frozen=True, tag=True):
    """Reads images as encoded: [n, …] to [n, height, width, channels] between 0 and 1."""

    channels_last: bool
    scale: float


class Flatten(Struct, frozen=True, tag=True):
    """Flattens an image to one row, in the order channels, height, width."""


class Parts(Struct, frozen=True, tag=True):
    """Reads observations of several parts: the vectors in order, then the features of the images in order."""

    images: tuple[tuple[int, tuple[Step, ...]], ...]
    """Index of each image among the parts, and its steps."""


class Dueling(Struct, frozen=True, tag=True):
    """Action values from a state's value and from advantages, each with a half of the inputs (Wang et al. 2016)."""

    value: tuple[Step, ...]
    advantage: tuple[Step, ...]


class Residual(Struct, frozen=True, tag=True):
    """Adds the outputs of steps to their inputs."""

    steps: tuple[Step, ...]


class Interpolation(Struct, frozen=True, tag=True):
    """Moves each number by a share from the inputs of steps to their outputs."""

    steps: tuple[Step, ...]
    share: Scale


Step = (
    Dense
    | Convolution
    | MaxPool
    | Apply
    | LayerNorm
    | BatchNorm
    | Normalise
    | Append
    | UnitLength
    | Scale
    | ReadPixels
    | Flatten
    | Parts
    | Dueling
    | Residual
    | Interpolation
)
Steps = tuple[Step, ...]
Programs = dict[str, Steps | None]
"""Steps of each output; None if only torch can compute it."""


def encoded(programs: Programs) -> np.ndarray:
    """Encode programs as an array for publication with the weights: uint8 [bytes]."""
    return np.frombuffer(msgspec.json.encode(programs), np.uint8)


def decoded(array: np.ndarray) -> Programs:
    """The inverse of `encoded`. Raises StateMismatchError."""
    try:
        return msgspec.json.decode(array.tobytes(), type=Programs)
    except msgspec.DecodeError as error:
        raise StateMismatchError([f"policy: {PROGRAM} is damaged: {error}"]) from error


def has_convolutions(steps: Steps) -> bool:
    """True if the steps read images: torch may be faster than numpy."""
    inner = [step.images for step in steps if isinstance(step, Parts)]
    return any(isinstance(step, Convolution) for step in steps) or any(
        has_convolutions(own) for images in inner for _, own in images
    )


def gives_rows(steps: Steps, *, of_image: bool = False) -> bool | None:
    """True if the steps give rows [n, k], False for images; None if successive steps do not fit.

    `of_image`: True if the input is an image [n, height, width, channels].
    """
    image = of_image
    for step in steps:
        if isinstance(step, Residual | Interpolation):
            if gives_rows(step.steps, of_image=image) is not (not image):
                return None
        elif isinstance(step, ReadPixels | Flatten):
            image = isinstance(step, ReadPixels)
        elif not isinstance(step, Apply) and isinstance(step, Convolution | MaxPool) != image:
            return None
    return not image
