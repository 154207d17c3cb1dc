"""Whole networks that users bring: `policy.network`, from observations to what an algorithm learns."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from remuda.config.algorithms.encoded import NetworkConfig
from remuda.policy.networks.custom_encoder import Prepared, ReadingModule
from remuda.policy.networks.user_function import UserFunction, shapes
from remuda.policy.spaces import ActionSpec, ObservationSpec


class CustomValues(nn.Module):
    """Numbers of each action by a module of the user: encoded observations [n, …] -> float32 [n, *shape]."""

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
        """`output` is the name under which collectors compute these numbers, as one row. Raises UserCodeError."""
        super().__init__()
        function = _function(config, source_dir)
        module = _learning(function, function(observation, action), "module")
        self.reading = ReadingModule(observation, module)
        function.outputs(module, self.reading.example(observation), name="module", shape=(2, math.prod(shape)))
        self._shape, self._output = shape, output

    def forward(self, observations: torch.Tensor, noise: object = None) -> torch.Tensor:
        """See the class. There is no use for `noise`: it is for layers that a user's module does not have."""
        numbers: torch.Tensor = self.reading(observations)
        return numbers.view(-1, *self._shape)

    def acting(self) -> dict[str, nn.Module]:
        """See remuda.policy.networks.reading."""
        return {self._output: self.reading}


@dataclass(frozen=True)
class ActorAndCritic:
    """The modules of a user's network with an actor and a critic."""

    encoder: ReadingModule
    """Encoded observations [n, …] -> float32 [n, …]; observations as they are prepared where the user has none."""
    actor: nn.Module
    """What the encoder gives -> [n, outputs]."""
    critic: nn.Module
    """The same, or one row of that and of an action's numbers -> [n, values]."""

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
        """Call the user's function.

        Args:
            config: names it.
            observation: what is read.
            action: what the network is for.
            source_dir: see UserFunction.
            outputs: of the actor.
            action_numbers: that the critic reads beside the features.
            values: of the critic.

        Raises:
            UserCodeError: it fails, or gives something else.
        """
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
        """Everything that it learns."""
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
    """What actor and critic read of two observations, which are rows of numbers if a critic reads actions beside."""
    if encoder is not None:
        return function.outputs(encoder, example, name="encoder", shape=(2, "features"))
    if isinstance(example, torch.Tensor) and (example.dim() == 2 or not as_rows):
        return example
    raise function.wrong(
        f"its module has no `encoder`, which makes features float32 [n, k] of observations {shapes(example)} for actor "
        "and critic"
    )
