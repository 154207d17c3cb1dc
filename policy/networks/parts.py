"""How observations of several parts become numbers: which parts are images, and which are vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remuda.config.algorithms.encoded import EncodedConfig
from remuda.environments.packed_part import PackedPart
from remuda.environments.unsupported import UnsupportedSpaceError
from remuda.policy.networks.images import ImageLayout
from remuda.policy.spaces import ObservationSpec


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


def one_hot_places(part: PackedPart) -> NDArray[np.int64]:
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
    encoded[np.arange(len(rows))[:, None], entries + one_hot_places(part)] = 1.0
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
