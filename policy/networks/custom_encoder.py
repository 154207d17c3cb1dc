"""Encoders that users bring: `policy.encoder`, from observations to features."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import nn

from remuda.config.algorithms.encoded import EncodedConfig, EncoderConfig
from remuda.config.exits import NoExit
from remuda.config.user_code import UserCodeError, user_object
from remuda.policy.networks.images import Pixels
from remuda.policy.networks.parts import ImagePart, PartsLayout, features_of, input_layout
from remuda.policy.networks.program import ReadPixels, Steps
from remuda.policy.networks.reading import Names, joined
from remuda.policy.networks.trunks import CustomTrunk, as_channels, part_image, part_vector, trunk_of
from remuda.policy.spaces import ObservationSpec

ENCODER = "policy.encoder"
Prepared = torch.Tensor | dict[str, torch.Tensor]
"""Observations as encoders read them: numbers float32 [n, *shape]; images float32 in 0 … 1 [n, channels, height,
width]; Discrete spaces one-hot [n, values]; of several parts a dict of these by the part's name."""


def reads(config: EncodedConfig, observation: ObservationSpec, source_dir: str | None) -> tuple[nn.Module | None, int]:
    """Make the module that reads observations as encoded, and count its features: the encoder that the settings name,
    or convolutions for images. None where the numbers themselves are the features.

    Raises UnsupportedSpaceError, and UserCodeError where the encoder cannot be made.
    """
    if config.encoder is not None:
        encoder = CustomEncoder(config, observation, source_dir)
        return encoder, encoder.features
    layout = input_layout(observation, config.convolution)
    return None if layout is None else trunk_of(layout), features_of(observation, layout)


class CustomEncoder(CustomTrunk):
    """Prepares encoded observations, and gives them to the user's module: [n, …] -> float32 [n, features]."""

    def __init__(self, config: EncoderConfig, observation: ObservationSpec, source_dir: str | None) -> None:
        super().__init__()
        self._named = f"{ENCODER} = {config.encoder!r}"
        self.prepare = Preparation(observation)
        self.module = self._made(config, observation, source_dir)
        self.features = self._count(observation)
        """Numbers that the module gives for each observation."""

    def forward(self, encoded: torch.Tensor) -> torch.Tensor:
        """See the class."""
        features: torch.Tensor = self.module(self.prepare(encoded))
        return features.float()

    def steps(self, names: Names) -> Steps | None:
        """See remuda.policy.networks.reading."""
        return joined([self.prepare, self.module], names)

    def _made(self, config: EncoderConfig, observation: ObservationSpec, source_dir: str | None) -> nn.Module:
        assert config.encoder is not None
        found = user_object(config.encoder, setting=ENCODER, source_dir=source_dir)
        make = cast("Callable[..., object]", found)
        try:
            with NoExit():
                made = make(observation, **config.encoder_kwargs)
        except Exception as error:  # whatever the user's function raises
            raise self._wrong(f"the function raised {type(error).__name__}: {error}") from error
        if not isinstance(made, nn.Module):
            raise self._wrong(f"the function gave {type(made).__name__}, and should give a torch.nn.Module")
        return made

    def _count(self, observation: ObservationSpec) -> int:
        """Run the module on two observations. Raises UserCodeError where it gives no features."""
        example = torch.from_numpy(observation.encode(observation.example(2)))
        trained = self.module.training
        self.module.eval()
        try:
            with torch.no_grad(), NoExit():
                given: object = self.module(self.prepare(example))
        except Exception as error:  # whatever the user's module raises
            shapes = _shapes(self.prepare(example))
            raise self._wrong(f"its module failed on {shapes}: {type(error).__name__}: {error}") from error
        self.module.train(trained)
        shape = tuple(given.shape) if isinstance(given, torch.Tensor) else None
        if shape is None or len(shape) != 2 or shape[0] != 2:
            found = f"shape {shape}" if shape is not None else type(given).__name__
            raise self._wrong(f"for two observations its module gave {found}, and should give (2, features)")
        return shape[1]

    def _wrong(self, text: str) -> UserCodeError:
        return UserCodeError(ENCODER, f"{self._named}: {text}")


class Preparation(nn.Module):
    """Observations as ObservationSpec.encode gives them -> Prepared."""

    def __init__(self, observation: ObservationSpec) -> None:
        super().__init__()
        self._observation = observation
        self._pixels = Pixels.of(observation)
        self._layout = PartsLayout.of(observation, None) if observation.parts else None

    def forward(self, encoded: torch.Tensor) -> Prepared:
        """See the class."""
        if self._layout is not None:
            return self._parts(self._layout, encoded)
        if self._pixels is not None:
            return as_channels(encoded, self._pixels)
        if self._observation.n is not None:
            return encoded.float()
        return encoded.float().reshape(-1, *self._observation.shape)

    def steps(self, names: Names) -> Steps | None:
        """See remuda.policy.networks.reading."""
        if self._pixels is not None:
            return (ReadPixels(self._pixels.channels_last, self._pixels.scale),)
        is_row = self._observation.n is not None or len(self._observation.shape) == 1
        return () if is_row and self._layout is None else None

    def _parts(self, layout: PartsLayout, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        prepared: dict[str, torch.Tensor] = {}
        images: dict[str, ImagePart] = {image.part.name: image for image in layout.images}
        for part in self._observation.parts:
            image = images.get(part.name)
            if image is not None:
                prepared[part.name] = as_channels(part_image(image, rows), image.layout.pixels)
            else:
                numbers = part_vector(part, rows)
                prepared[part.name] = numbers if part.counts else numbers.reshape(-1, *part.shape)
        return prepared


def _shapes(prepared: Prepared) -> str:
    if isinstance(prepared, torch.Tensor):
        return f"float32 {tuple(prepared.shape)}"
    return str({name: tuple(tensor.shape) for name, tensor in prepared.items()})
