"""Settings of algorithms with replaceable networks: the encoder of observations, or the whole network."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import ClassVar, cast

from pydantic import model_validator

from remuda.config.algorithms.base import BuiltInConfig
from remuda.config.numbers import Convolution, Kwargs, Reference

SUPPLIED = frozenset(
    f"remuda.learning:{name}"
    for name in ("by_parts", "impala_resnet", "nature_cnn", "perceptron", "simba", "transformer")
)
"""Encoders of Remuda, as opposed to user code."""


class EncoderConfig(BuiltInConfig):
    """Settings of the encoder: the layers before the hidden layers."""

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

    @property
    def reads_by_module(self) -> bool:
        """True if a module named by the settings reads observations."""
        return self.encoder is not None

    @model_validator(mode="before")
    @classmethod
    def _has_room_for_a_network(cls, values: object) -> object:
        given = values
        named = isinstance(values, dict) and "network" in cast("dict[str, object]", values)
        if named and "network" not in cls.model_fields:
            kind = cls.model_fields["type"].default
            raise ValueError(
                f"{kind} takes no network: bring the part that reads observations as encoder, `module:function`"
            )
        return given

    @model_validator(mode="after")
    def _has_arguments_of_something(self) -> EncoderConfig:
        if self.encoder is None and self.encoder_kwargs:
            raise ValueError("encoder_kwargs are arguments of encoder, which is null: name it, or leave them out")
        return self


class EncodedConfig(EncoderConfig):
    """Settings of networks that read images by convolutions if users name no encoder."""

    convolution: Convolution | None = None
    """Layers before the hidden layers that read images (uint8 observations of two to four axes, boolean ones of three
    or four), as a list of [filters, kernel, stride]. Null takes [[32, 8, 4], [64, 4, 2], [64, 3, 1]] (Mnih et al.
    2015), and for images of less than 36 pixels [[16, 3, 1]] (Young and Tian 2019)."""

    @model_validator(mode="after")
    def _reads_in_one_way(self) -> EncodedConfig:
        if self.encoder is not None and self.convolution is not None:
            raise ValueError("encoder and convolution both say what reads images: leave one of them out")
        return self


class NetworkConfig(EncodedConfig):
    """Settings of networks that users may replace as a whole."""

    replaced: ClassVar[tuple[str, ...]] = ("encoder", "convolution", "hidden")
    """Settings of Remuda's own network."""

    network: Reference | None = None
    """A whole network of your own, `module:function`, in the folder of the config or installed, in place of encoder,
    hidden layers and outputs. The function is called with descriptions of observations and actions
    (remuda.ObservationSpec, remuda.ActionSpec) and `network_kwargs`, and returns a torch.nn.Module that reads prepared
    observations, as an encoder does. For dqn and rainbow the module returns the values of actions; for all other
    algorithms the module has modules `actor` and `critic`, and optionally an `encoder` before both. See
    docs/encoders.md."""
    network_kwargs: Kwargs = {}  # noqa: RUF012  (pydantic copies it)
    """Further arguments of the network's function, by name."""

    @property
    def user_code(self) -> Mapping[str, str]:
        """See AlgorithmConfig."""
        return super().user_code if self.network is None else {"policy.network": self.network}

    @property
    def reads_by_module(self) -> bool:
        """See EncoderConfig."""
        return self.network is not None or super().reads_by_module

    @property
    def lowers_products(self) -> bool:
        """See BuiltInConfig."""
        return self.network is None and super().lowers_products

    @model_validator(mode="after")
    def _is_the_whole_network(self) -> NetworkConfig:
        if self.network is None:
            if self.network_kwargs:
                raise ValueError("network_kwargs are arguments of network, which is null: name it, or leave them out")
            return self
        for key in self.replaced:
            default: object = type(self).model_fields[key].get_default(call_default_factory=True)
            if getattr(self, key) != default:
                raise ValueError(
                    f"network is the whole network, in place of {key}, too: leave one of them out (the default of "
                    f"{key} is {json.dumps(default)})"
                )
        return self
