"""Modules of users, policy.encoder and policy.network, and their checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn

from remuda.config.algorithms.base import EncodedConfig, EncoderConfig, NetworkConfig
from remuda.config.errors import NoExit
from remuda.config.user_code import UserCodeError, require_arguments, user_object
from remuda.policy.networks.layouts import Pixels, features_of, image_of, input_layout
from remuda.policy.networks.program import ReadPixels, Steps
from remuda.policy.networks.reading import Names, joined
from remuda.policy.networks.trunks import CustomTrunk, as_channels, part_image, part_vector, trunk_of
from remuda.policy.spaces import ActionSpec, ObservationSpec


@dataclass(frozen=True)
class UserFunction:
    """The function named by a setting."""

    setting: str
    """Dotted."""
    reference: str
    """`module:function`."""
    kwargs: Mapping[str, object]
    source_dir: str | None
    """Folder that is searched first for the module."""

    def __call__(self, *described: ObservationSpec | ActionSpec) -> nn.Module:
        """Call the function. Raises UserCodeError unless it returns a module."""
        found = user_object(self.reference, setting=self.setting, source_dir=self.source_dir)
        make = cast("Callable[..., object]", found)
        require_arguments(found, self.kwargs, setting=f"{self.setting}_kwargs", reference=self.reference)
        try:
            with NoExit():
                made = make(*described, **self.kwargs)
        except Exception as error:  # whatever the user's function raises
            raise self.wrong(f"the function raised {type(error).__name__}: {error}") from error
        if not isinstance(made, nn.Module):
            raise self.wrong(f"the function gave {type(made).__name__}, and should give a torch.nn.Module")
        return made

    def outputs(self, module: nn.Module, inputs: object, *, name: str, shape: tuple[int | str, ...]) -> torch.Tensor:
        """Run a user's module, called `name` in messages, on the inputs of two observations, without effects on it.
        Raises UserCodeError if the module fails, or returns another shape; a word in `shape` stands for any size."""
        trained = module.training
        module.eval()
        try:
            with torch.no_grad(), NoExit():
                given: object = module(inputs)
        except Exception as error:  # whatever the user's module raises
            raise self.wrong(f"its {name} failed on {shapes(inputs)}: {type(error).__name__}: {error}") from error
        module.train(trained)
        if isinstance(given, torch.Tensor) and _fits(tuple(given.shape), shape):
            return given.float()
        found = f"shape {tuple(given.shape)}" if isinstance(given, torch.Tensor) else type(given).__name__
        raise self.wrong(
            f"for two observations its {name} gave {found}, and should give ({', '.join(map(str, shape))})"
        )

    def wrong(self, text: str) -> UserCodeError:
        return UserCodeError(self.setting, f"{self.setting} = {self.reference!r}: {text}")


def _fits(found: tuple[int, ...], expected: tuple[int | str, ...]) -> bool:
    pairs = zip(found, expected, strict=False)
    return len(found) == len(expected) and all(isinstance(size, str) or own == size for own, size in pairs)


def shapes(inputs: object) -> str:
    """Shape of a tensor, or of each tensor in a dict, for messages."""
    if isinstance(inputs, torch.Tensor):
        return f"{str(inputs.dtype).removeprefix('torch.')} {tuple(inputs.shape)}"
    assert isinstance(inputs, dict)
    return str({name: tuple(tensor.shape) for name, tensor in inputs.items()})


Prepared = torch.Tensor | dict[str, torch.Tensor]
"""Input of encoders: numbers float32 [n, *shape]; images float32 in 0 … 1 [n, channels, height, width]; Discrete spaces
one-hot [n, values]; for several parts a dict by the part's name."""


def reads(config: EncodedConfig, observation: ObservationSpec, source_dir: str | None) -> tuple[nn.Module | None, int]:
    """Make the module that reads encoded observations, and count its features: the encoder of the settings, or
    convolutions for images. None if the numbers themselves are the features.

    Raises UnsupportedSpaceError, and UserCodeError if the encoder cannot be made.
    """
    if config.encoder is not None:
        encoder = CustomEncoder(config, observation, source_dir)
        return encoder, encoder.features
    layout = input_layout(observation, config.convolution)
    return None if layout is None else trunk_of(layout), features_of(observation, layout)


class ReadingModule(CustomTrunk):
    """Prepares encoded observations for the user's module, and runs it: [n, …] -> float32 [n, …]."""

    def __init__(self, observation: ObservationSpec, module: nn.Module) -> None:
        super().__init__()
        self.prepare, self.module = Preparation(observation), module

    def forward(self, encoded: torch.Tensor) -> torch.Tensor:
        """See the class."""
        given: torch.Tensor = self.module(self.prepare(encoded))
        return given.float()

    def steps(self, names: Names) -> Steps | None:
        return joined([self.prepare, self.module], names)

    def example(self, observation: ObservationSpec) -> Prepared:
        """Make two prepared observations."""
        prepared: Prepared = self.prepare(torch.from_numpy(observation.encode(observation.example(2))))
        return prepared


class CustomEncoder(ReadingModule):
    """The encoder of the settings: encoded observations [n, …] -> float32 [n, features]."""

    def __init__(self, config: EncoderConfig, observation: ObservationSpec, source_dir: str | None) -> None:
        assert config.encoder is not None
        function = UserFunction("policy.encoder", config.encoder, config.encoder_kwargs, source_dir)
        super().__init__(observation, function(observation))
        example = self.example(observation)
        self.features = function.outputs(self.module, example, name="module", shape=(2, "features")).shape[1]
        """Number of features per observation."""


class Preparation(nn.Module):
    """Turns observations encoded by ObservationSpec.encode, [n, …], into the input of encoders: numbers float32 [n,
    *shape], images float32 in 0 … 1 [n, channels, height, width], Discrete spaces one-hot [n, values], or for several
    parts a dict by the part's name."""

    def __init__(self, observation: ObservationSpec) -> None:
        super().__init__()
        self._observation = observation
        self._pixels = Pixels.of(observation)

    def forward(self, encoded: torch.Tensor) -> Prepared:
        """See the class."""
        if self._observation.parts:
            return self._parts(encoded)
        if self._pixels is not None:
            return as_channels(encoded, self._pixels)
        numbers = encoded.float().clone()  # a module of the user's own may change its input in place, as x /= 255 does
        return numbers if self._observation.n is not None else numbers.reshape(-1, *self._observation.shape)

    def steps(self, names: Names) -> Steps | None:
        if self._pixels is not None:
            return (ReadPixels(self._pixels.channels_last, self._pixels.scale),)
        is_row = self._observation.n is not None or len(self._observation.shape) == 1
        return () if is_row and not self._observation.parts else None

    def _parts(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        prepared: dict[str, torch.Tensor] = {}
        for part in self._observation.parts:
            image = image_of(part)
            pixels = None if image is None else Pixels.of(image)
            if image is not None and pixels is not None:
                prepared[part.name] = as_channels(part_image(part, image, rows), pixels)
            else:
                numbers = part_vector(part, rows)
                prepared[part.name] = numbers if part.counts else numbers.reshape(-1, *part.shape)
        return prepared


class CustomValues(nn.Module):
    """Numbers per action by a user's module: encoded observations [n, …] -> float32 [n, *shape]."""

    def __init__(
        self,
        config: NetworkConfig,
        observation: ObservationSpec,
        action: ActionSpec,
        source_dir: str | None,
        *,
        shape: tuple[int, ...],
        output: str,
    ) -> None:
        """`output`: name of these numbers in acting networks, as one row. Raises UserCodeError."""
        super().__init__()
        function = _function(config, source_dir)
        module = _learning(function, function(observation, action), "module")
        self.reading = ReadingModule(observation, module)
        function.outputs(module, self.reading.example(observation), name="module", shape=(2, math.prod(shape)))
        self._shape, self._output = shape, output

    def forward(self, observations: torch.Tensor, noise: object = None) -> torch.Tensor:
        """See the class. Ignores `noise`, which is for noisy layers."""
        numbers: torch.Tensor = self.reading(observations)
        return numbers.view(-1, *self._shape)

    def acting(self) -> dict[str, nn.Module]:
        return {self._output: self.reading}


@dataclass(frozen=True)
class ActorAndCritic:
    """The modules of a user's network with an actor and a critic."""

    encoder: ReadingModule
    """Encoded observations [n, …] -> float32 [n, …]; prepared observations if the user has no encoder."""
    actor: nn.Module
    """Output of the encoder -> [n, outputs]."""
    critic: nn.Module
    """Output of the encoder, with the numbers of an action in the same row -> [n, values]."""

    @classmethod
    def made(
        cls,
        config: NetworkConfig,
        observation: ObservationSpec,
        action: ActionSpec,
        source_dir: str | None,
        *,
        outputs: int,
        action_numbers: int = 0,
        values: int = 1,
    ) -> ActorAndCritic:
        """Call the user's function. `outputs` are of the actor, `values` of the critic, `action_numbers` the numbers of
        an action among its inputs. Raises UserCodeError if the function fails, or returns something else."""
        function = _function(config, source_dir)
        made = function(observation, action)
        encoder, actor, critic = (_part(function, made, name) for name in ("encoder", "actor", "critic"))
        if actor is None or critic is None:
            missing = "actor" if actor is None else "critic"
            raise function.wrong(f"its module has no `{missing}`; it should have modules `actor` and `critic`")
        reading = ReadingModule(observation, nn.Identity() if encoder is None else encoder)
        seen = _seen(function, encoder, reading.example(observation), as_rows=action_numbers > 0)
        function.outputs(actor, seen, name="actor", shape=(2, outputs))
        if action_numbers:
            seen = torch.cat((seen, torch.zeros(2, action_numbers)), dim=1)
        function.outputs(critic, seen, name="critic", shape=(2, values))
        return cls(reading, _learning(function, actor, "actor"), _learning(function, critic, "critic"))

    @property
    def parameters(self) -> set[nn.Parameter]:
        return {*self.encoder.parameters(), *self.actor.parameters(), *self.critic.parameters()}


def require_separate(config: NetworkConfig, made: Sequence[ActorAndCritic]) -> None:
    """Raise UserCodeError where several calls of the user's function gave the same weights."""
    parameters = [one.parameters for one in made]
    if len(set().union(*parameters)) < sum(map(len, parameters)):
        raise _function(config, None).wrong(
            "two calls of the function gave modules with the same weights, and actor and critics have weights of their "
            "own: make new modules at each call"
        )


def _function(config: NetworkConfig, source_dir: str | None) -> UserFunction:
    assert config.network is not None
    return UserFunction("policy.network", config.network, config.network_kwargs, source_dir)


def _part(function: UserFunction, made: nn.Module, name: str) -> nn.Module | None:
    part: object = getattr(made, name, None)
    if part is None or isinstance(part, nn.Module):
        return part
    raise function.wrong(f"the `{name}` of its module is a {type(part).__name__}, and should be a torch.nn.Module")


def _learning(function: UserFunction, module: nn.Module, name: str) -> nn.Module:
    if next(module.parameters(), None) is None:
        raise function.wrong(f"its {name} has no parameters: there is nothing to learn")
    return module


def _seen(function: UserFunction, encoder: nn.Module | None, example: Prepared, *, as_rows: bool) -> torch.Tensor:
    """Inputs of actor and critic for two observations; rows of numbers if a critic also reads actions."""
    if encoder is not None:
        return function.outputs(encoder, example, name="encoder", shape=(2, "features"))
    if isinstance(example, torch.Tensor) and (example.dim() == 2 or not as_rows):
        return example
    raise function.wrong(
        f"its module has no `encoder`, which makes features float32 [n, k] of observations {shapes(example)} for actor "
        "and critic"
    )
