"""Settings of algorithms whose networks read observations by an encoder, which users may replace."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import model_validator

from remuda.config.algorithms.base import BuiltInConfig
from remuda.config.numbers import Convolution, Kwargs, Reference

SUPPLIED = frozenset(
    f"remuda.learning:{name}"
    for name in ("by_parts", "impala_resnet", "nature_cnn", "perceptron", "simba", "transformer")
)
"""Encoders that come with Remuda: no code of users."""


class EncoderConfig(BuiltInConfig):
    """Settings that say what reads observations before the hidden layers."""

    encoder: Reference | None = None
    """One that comes with Remuda, `remuda.learning:` with by_parts, impala_resnet, nature_cnn, perceptron, simba or
    transformer (docs/learning.md); or your own, `module:function`, in the folder of the config or installed. The
    function is called with a description of the observations (remuda.ObservationSpec) and `encoder_kwargs`, and returns
    a torch.nn.Module from prepared observations to features float32 [n, k]; the hidden layers read these. Prepared are
    numbers, float32 [n, *shape]; images, float32 in 0 … 1 [n, channels, height, width]; Discrete spaces, one-hot [n,
    values]; and of Dict and Tuple spaces a dict of these by the part's name. Null reads images by convolutions and
    numbers as they are. See docs/encoders.md."""
    encoder_kwargs: Kwargs = {}  # noqa: RUF012  (pydantic copies it)
    """Further arguments of the encoder's function, by name."""

    @property
    def user_code(self) -> Mapping[str, str]:
        """See AlgorithmConfig."""
        return {} if self.encoder is None or self.encoder in SUPPLIED else {"policy.encoder": self.encoder}

    @model_validator(mode="after")
    def _has_arguments_of_something(self) -> EncoderConfig:
        if self.encoder is None and self.encoder_kwargs:
            raise ValueError("encoder_kwargs are arguments of encoder, which is null: name it, or leave them out")
        return self


class EncodedConfig(EncoderConfig):
    """The same, of networks that read images by convolutions where users bring no encoder."""

    convolution: Convolution | None = None
    """Layers that read images (uint8 observations of two to four axes, boolean ones of three or four), each [filters,
    kernel, stride], before the hidden layers. Null takes [[32, 8, 4], [64, 4, 2], [64, 3, 1]] (Mnih et al. 2015), and
    for images of less than 36 pixels [[16, 3, 1]] (Young and Tian 2019)."""

    @model_validator(mode="after")
    def _reads_in_one_way(self) -> EncodedConfig:
        if self.encoder is not None and self.convolution is not None:
            raise ValueError("encoder and convolution both say what reads images: leave one of them out")
        return self
