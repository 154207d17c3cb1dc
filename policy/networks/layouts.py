"""How networks read observations: images, several parts, and recurrent cores. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from remuda.config.algorithms.encoded import EncodedConfig
from remuda.environments.packed_part import PackedPart
from remuda.environments.unsupported import UnsupportedSpaceError
from remuda.policy.spaces import ObservationSpec

ATARI = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Filters, kernel and stride of each layer (Mnih et al. 2015)."""
SMALL = ((16, 3, 1),)
"""Of MinAtar's 10x10 pixels (Young and Tian 2019)."""
_LEAST_FOR_ATARI = 36
"""The least number of pixels per side for which ATARI's layers leave at least one."""


@dataclass(frozen=True)
class Pixels:
    """What images look like, as ObservationSpec.encode gives them."""

    channels: int
    height: int
    width: int
    channels_last: bool
    """Observations are [height, width, channels] instead of [channels, height, width]."""
    scale: float
    """The factor that brings pixels between 0 and 1."""

    @classmethod
    def of(cls, observation: ObservationSpec) -> Pixels | None:
        """Those of an observation; None if it is no image."""
        if not observation.is_image:
            return None
        last = observation.channels_last
        channels, height, width = (observation.image_shape[axis] for axis in ((2, 0, 1) if last else (0, 1, 2)))
        return cls(channels, height, width, last, 1.0 / (observation.high or 1.0))


@dataclass(frozen=True)
class Convolution:
    """One layer: its image's channels, and filters of `kernel` x `kernel` pixels, `stride` apart."""

    channels: int
    filters: int
    kernel: int
    stride: int


@dataclass(frozen=True)
class ImageLayout:
    """An image, the convolutions that read it, and the size of their output."""

    pixels: Pixels
    layers: tuple[Convolution, ...]
    features: int
    """Numbers after the last layer, flattened as channels, height, width."""

    @classmethod
    def of(cls, observation: ObservationSpec, convolution: Sequence[tuple[int, int, int]] | None) -> ImageLayout | None:
        """Lay out the convolutions for an observation; None if it is no image.

        Raises UnsupportedSpaceError if it is none and layers were requested, or if it is too small for them.
        """
        pixels = Pixels.of(observation)
        if pixels is None:
            if convolution is not None:
                raise UnsupportedSpaceError(
                    "policy.convolution reads images (uint8 of two to four axes, boolean of three or four), and "
                    f"observations are "
                    f"{observation.dtype} of shape {observation.shape}: leave it out"
                )
            return None
        channels, sides = pixels.channels, [pixels.height, pixels.width]
        chosen = convolution or (ATARI if min(sides) >= _LEAST_FOR_ATARI else SMALL)
        layers: list[Convolution] = []
        for filters, kernel, stride in chosen:
            if kernel > min(sides):
                raise UnsupportedSpaceError(
                    f"images of shape {observation.shape} are too small: a convolution of {kernel}x{kernel} pixels "
                    f"finds {sides[0]}x{sides[1]}; set policy.convolution to smaller ones, or flatten the observations "
                    "(gymnasium.wrappers.FlattenObservation)"
                )
            layers.append(Convolution(channels, filters, kernel, stride))
            channels, sides = filters, [(side - kernel) // stride + 1 for side in sides]
        return cls(pixels, tuple(layers), channels * sides[0] * sides[1])


@dataclass(frozen=True)
class ImagePart:
    """A part that convolutions read."""

    index: int
    """Of the part among all."""
    part: PackedPart
    observation: ObservationSpec
    """The part as an observation of its own."""
    layout: ImageLayout


@dataclass(frozen=True)
class PartsLayout:
    """The parts of a row of bytes. Its features are the vectors in their order, then the images' in theirs."""

    vectors: tuple[PackedPart, ...]
    images: tuple[ImagePart, ...]

    @classmethod
    def of(cls, observation: ObservationSpec, convolution: Sequence[tuple[int, int, int]] | None) -> PartsLayout:
        """Lay out an observation with parts; all images have the same `convolution`s. Raises UnsupportedSpaceError."""
        vectors: list[PackedPart] = []
        images: list[ImagePart] = []
        for index, part in enumerate(observation.parts):
            own = ObservationSpec(part.shape, part.dtype, part.low, part.high)
            layout = ImageLayout.of(own, convolution) if own.is_image and not part.counts else None
            if layout is None:
                vectors.append(part)
            else:
                images.append(ImagePart(index, part, own, layout))
        if convolution is not None and not images:
            raise UnsupportedSpaceError("policy.convolution reads images, and no part of the observations is one")
        return cls(tuple(vectors), tuple(images))

    @property
    def features(self) -> int:
        """Numbers that the layers after it read."""
        return sum(map(width, self.vectors)) + sum(image.layout.features for image in self.images)


InputLayout = ImageLayout | PartsLayout
"""How observations that are no plain vector are read."""


def input_layout(
    observation: ObservationSpec, convolution: Sequence[tuple[int, int, int]] | None
) -> InputLayout | None:
    """Lay out an observation; None if it is one vector. Raises UnsupportedSpaceError, as ImageLayout.of does."""
    if observation.parts:
        return PartsLayout.of(observation, convolution)
    return ImageLayout.of(observation, convolution)


def features_of(observation: ObservationSpec, layout: InputLayout | None) -> int:
    """Numbers that the first fully connected layer reads."""
    return observation.features if layout is None else layout.features


def width(part: PackedPart) -> int:
    """Numbers that a network reads of a vector: one-hot where it counts."""
    return sum(part.counts) if part.counts else int(np.prod(part.shape, dtype=np.int64))


def scale(part: PackedPart) -> float:
    """The factor that brings bytes between 0 and 1; other numbers stay unchanged."""
    return 1.0 / (part.high or 1.0) if part.dtype == "uint8" else 1.0


def one_hot_offsets(part: PackedPart) -> NDArray[np.int64]:
    """What is to be added to the entries of a part that counts, to find their ones among its `width` numbers."""
    first = np.concatenate(([0], np.cumsum(part.counts)[:-1]))
    return first - np.array(part.starts, np.int64)


def vector_of(part: PackedPart, rows: np.ndarray) -> NDArray[np.float32]:
    """A vector as a network reads it: rows uint8 [n, bytes] -> float32 [n, width]."""
    entries = part.of(rows).reshape(len(rows), -1)
    if not part.counts:
        numbers: NDArray[np.float32] = entries.astype(np.float32)
        return numbers if scale(part) == 1.0 else numbers * np.float32(scale(part))
    encoded = np.zeros((len(rows), width(part)), np.float32)
    encoded[np.arange(len(rows))[:, None], entries + one_hot_offsets(part)] = 1.0
    return encoded


def flat(observation: ObservationSpec, observations: np.ndarray) -> np.ndarray:
    """Observations [n, …] for networks that read one vector: as encoded, and where they have several parts, none of
    them an image, the vectors of all beside each other: float32 [n, features]."""
    if not observation.parts:
        return observation.encode(observations)
    return np.concatenate([vector_of(part, observations) for part in observation.parts], axis=1)


def require_readable(config: EncodedConfig, observation: ObservationSpec) -> None:
    """Raise UnsupportedSpaceError where Remuda's own layers are to read observations, and cannot."""
    if not config.reads_by_module:
        features_of(observation, input_layout(observation, config.convolution))


def has_images(layout: InputLayout | None) -> bool:
    """Whether convolutions read anything of an observation."""
    return layout is not None and (isinstance(layout, ImageLayout) or bool(layout.images))


def units(hidden: tuple[int, ...] | None, layout: InputLayout | None, *, default: tuple[int, ...]) -> tuple[int, ...]:
    """Units of the hidden layers: those asked for, else `default`, and for images one wide layer."""
    if hidden is not None:
        return hidden
    return (512,) if has_images(layout) else default


CoreKind = Literal["lstm", "gru"]
"""Long short-term memory (Hochreiter and Schmidhuber 1997) or gated recurrent unit (Cho et al. 2014)."""
GATES = {"lstm": 4, "gru": 3}
"""How many rows of its weights each unit of a core has."""
ENCODER, CORE, HEAD = "encoder.", "core.", "head."
"""What the names of the three parts begin with in a network's state."""


@dataclass(frozen=True)
class RecurrentLayout:
    """How a recurrent network reads observations: an encoder or convolutions (of images), hidden layers, the core."""

    numbers: int
    """Of an observation, where they are normalised."""
    hidden: tuple[int, ...]
    """Units of the layers between the observation and the core, one at least, each followed by the activation."""
    activation: Literal["tanh", "relu"]
    core: CoreKind
    units: int
    """Of the core: numbers that the head reads."""
    normalizes: bool = False
    """Observations, which are no images then, are brought to running mean 0 and standard deviation 1 first."""

    @property
    def state_size(self) -> int:
        """Numbers that are carried from one observation to the next. An LSTM's are its outputs, then its cells."""
        return 2 * self.units if self.core == "lstm" else self.units

    @property
    def encoded(self) -> int:
        """Numbers that the core reads."""
        return self.hidden[-1]

    @property
    def remembered(self) -> ObservationSpec:
        """What the core gives, as the head reads it: like observations of a Box."""
        return ObservationSpec((self.units,), "float32")


def begins_of(valid: np.ndarray) -> np.ndarray:
    """Which observations [B, T + 1] are the first of an episode, given which steps [B, T] are no resets. What came
    before the first observation is in its state."""
    begins = np.zeros((valid.shape[0], valid.shape[1] + 1), np.bool_)
    begins[:, 1:] = ~valid
    return begins
