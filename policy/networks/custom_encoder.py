"""Encoders that users bring: `policy.encoder`, from observations to features."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import torch
from torch import nn

from remuda.config.algorithms.encoded import EncodedConfig, EncoderConfig
from remuda.policy.networks.images import Pixels
from remuda.policy.networks.parts import ImagePart, PartsLayout, features_of, input_layout
from remuda.policy.networks.program import ReadPixels, Steps
from remuda.policy.networks.reading import Names, joined
from remuda.policy.networks.trunks import CustomTrunk, as_channels, part_image, part_vector, trunk_of
from remuda.policy.networks.user_function import UserFunction
from remuda.policy.spaces import ObservationSpec

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


class ReadingModule(CustomTrunk):
    """Prepares encoded observations, and gives them to the user's module: [n, …] -> float32 [n, …]."""

    def __init__(self, observation: ObservationSpec, module: nn.Module) -> None:
        super().__init__()
        self.prepare, self.module = Preparation(observation), module

    def forward(self, encoded: torch.Tensor) -> torch.Tensor:
        """See the class."""
        given: torch.Tensor = self.module(self.prepare(encoded))
        return given.float()

    def steps(self, names: Names) -> Steps | None:
        """See remuda.policy.networks.reading."""
        return joined([self.prepare, self.module], names)

    def example(self, observation: ObservationSpec) -> Prepared:
        """Two observations as the module reads them."""
        prepared: Prepared = self.prepare(torch.from_numpy(observation.encode(observation.example(2))))
        return prepared


class CustomEncoder(ReadingModule):
    """One that the settings name: encoded observations [n, …] -> float32 [n, features]."""

    def __init__(self, config: EncoderConfig, observation: ObservationSpec, source_dir: str | None) -> None:
        assert config.encoder is not None
        function = UserFunction("policy.encoder", config.encoder, config.encoder_kwargs, source_dir)
        super().__init__(observation, function(observation))
        example = self.example(observation)
        self.features = function.outputs(self.module, example, name="module", shape=(2, "features")).shape[1]
        """Numbers that the module gives for each observation."""


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
