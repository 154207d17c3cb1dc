"""Common settings of all algorithms, and facts about an algorithm before it runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Literal, cast

from pydantic import ConfigDict, JsonValue, model_validator

from remuda.config.section import Convolution, Kwargs, Reference, ScheduledSection

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
"""Folder of the examples in the package."""
Actions = Literal["Discrete", "MultiDiscrete", "Box"]
"""Spaces of actions."""
Spaces = Literal["images", "Box actions", "Discrete actions"]
"""Spaces that sensible settings depend on: images come first, whatever the actions are."""


class AlgorithmConfig(ScheduledSection):
    """The section of an algorithm. Choosing and loading a config asks this class, for built-in algorithms and a user's
    own alike; the roles ask the declaration (remuda.config.declaration)."""

    defaults: ClassVar[Mapping[str, JsonValue]] = MappingProxyType({})
    """Defaults of settings in other sections, by dotted key: `{"learner.batch_size": 256}`. These replace the defaults
    of the schema; a value in the config file always wins. See remuda.config.defaults."""
    stored_configs: ClassVar[Mapping[str, Path]] = MappingProxyType({})
    """Config files for environments, by `env.id`, used if only an algorithm and an environment are named."""

    recommended_for: ClassVar[tuple[Spaces | Literal["Box actions without bounds"], ...]] = ()
    """Spaces for which Remuda takes this built-in algorithm if users name `auto`."""

    @classmethod
    def settings_for(cls, spaces: Spaces, *, in_parts: bool) -> Mapping[str, JsonValue]:
        """Return sensible settings, by dotted key as in `defaults`, for environments with these spaces and without a
        stored config; defaults apply to the rest. `in_parts`: observations have several parts."""
        return {}

    def unused_settings(self) -> Mapping[str, tuple[str, ...]]:
        """Return settings without effect, as dotted keys, by the reason: {"policy.recurrent is null":
        ("policy.recurrent_units",)}. A user who has set one of these settings gets a warning."""
        return {}

    @property
    def user_code(self) -> Mapping[str, str]:
        """Names of the user's own code in these settings, besides `policy.type`, as `module:name` by dotted key."""
        return {}


class BuiltInConfig(AlgorithmConfig):
    """The section of a built-in algorithm. Its properties announce the later declaration: a config is checked before
    its declaration exists."""

    model_config = ConfigDict(json_schema_extra={"required": ["type"]})
    acts_in: ClassVar[tuple[Actions, ...]] = ()
    """Supported action spaces, for the message to a user whose algorithm does not support the action space."""

    type: str
    """Name of the algorithm."""

    formerly: ClassVar[Mapping[str, JsonValue]] = MappingProxyType({})
    """Effects of a version without these settings, as their values. A config that an older version stored has all of
    its settings, and takes these values; a config that leaves out other settings as well takes the defaults."""

    @classmethod
    def as_stored(cls, policy: Mapping[str, object]) -> Mapping[str, object]:
        """Add the values of `formerly` to a section `policy` that an older version stored."""
        missing = cls.model_fields.keys() - policy.keys()
        return {**cls.formerly, **policy} if missing and missing <= cls.formerly.keys() else policy

    @classmethod
    def with_current_names(cls, values: Mapping[str, object]) -> Mapping[str, object]:
        """Rename settings of a former version of the algorithm; takes and returns settings of a config by section."""
        return values

    @property
    def segment_steps(self) -> int | None:
        """Environment steps in a segment; None for rows other than segments."""
        return None

    @property
    def reanalyzed_share(self) -> float | None:
        """The share of `Declaration.reanalyzed`; None for algorithms without recomputed columns."""
        return None

    @property
    def needs_whole_batches(self) -> str:
        """Reason against learning from parts of a batch; empty for `Declaration.learns_from_parts`."""
        return ""

    @property
    def lowers_products(self) -> bool:
        """`Declaration.lowers_products`."""
        return True


Values = Mapping[str, object]
"""The settings of a config, by section."""


def into_optimizer(values: Values, former: str, setting: str) -> Values:
    """Move a former setting of `policy` into `learner.optimizer_settings`, unless the config gives both."""
    policy, learner = _section(values, "policy"), _section(values, "learner")
    settings = None if learner is None else learner.get("optimizer_settings", {})
    if policy is None or former not in policy or not isinstance(settings, Mapping) or setting in settings:
        return values
    merged = {**cast("Values", settings), setting: policy[former]}
    left = {name: value for name, value in policy.items() if name != former}
    return {**values, "policy": left, "learner": {**(learner or {}), "optimizer_settings": merged}}


def into_schedules(values: Values, former: str, constants: Mapping[str, object]) -> Values:
    """Replace a former setting of `policy`, the env_step at which numbers have fallen to 0, by schedules. Changes
    nothing if a number has a schedule already. A `former` setting of null means no fall. `constants` has the numbers by
    dotted key, with the values for numbers missing from the config.
    """
    policy = _section(values, "policy")
    if policy is None or former not in policy:
        return values
    end = policy[former]
    found: dict[str, object] = {
        **values,
        "policy": {name: value for name, value in policy.items() if name != former},
    }
    for key, default in constants.items() if end is not None else ():
        section, _, name = key.partition(".")
        inside = _section(found, section)
        number = default if inside is None else inside.get(name, default)
        if inside is None or isinstance(number, list | tuple):
            return values
        found[section] = {**inside, name: [[0, number], [end, 0]]}
    return found


def _section(values: Values, name: str) -> Values | None:
    """Return a section as a mapping; None for an object, which has current settings only."""
    section = values.get(name, {})
    return cast("Values", section) if isinstance(section, Mapping) else None


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
    observations, as an encoder does. For dqn, rainbow and pqn the module returns the values of actions; for ppo,
    impala, sac, crossq and td3 the module has modules `actor` and `critic`, and optionally an `encoder` before both;
    iql refuses a network. See docs/encoders.md."""
    network_kwargs: Kwargs = {}  # noqa: RUF012  (pydantic copies it)
    """Further arguments of the network's function, by name."""

    @model_validator(mode="after")
    def _core_needs_own_layers(self) -> NetworkConfig:
        if self.network is not None and getattr(self, "recurrent", None) is not None:
            raise ValueError(
                "network is the whole network, and has no recurrent core: leave recurrent out, or bring the part that "
                "reads observations as encoder, which the core then stands behind"
            )
        return self

    @property
    def user_code(self) -> Mapping[str, str]:
        return super().user_code if self.network is None else {"policy.network": self.network}

    @property
    def reads_by_module(self) -> bool:
        return self.network is not None or super().reads_by_module

    @property
    def lowers_products(self) -> bool:
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
