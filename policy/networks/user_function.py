"""Functions of users that make torch modules, and what these give for two observations."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn

from remuda.config.errors import NoExit
from remuda.config.user_code import UserCodeError, user_object
from remuda.policy.spaces import ActionSpec, ObservationSpec


@dataclass(frozen=True)
class UserFunction:
    """What a setting names."""

    setting: str
    """Dotted."""
    reference: str
    """`module:function`."""
    kwargs: Mapping[str, object]
    source_dir: str | None
    """The folder in which its module is looked for first."""

    def __call__(self, *described: ObservationSpec | ActionSpec) -> nn.Module:
        """Call the function. Raises UserCodeError where it gives no module."""
        found = user_object(self.reference, setting=self.setting, source_dir=self.source_dir)
        make = cast("Callable[..., object]", found)
        try:
            with NoExit():
                made = make(*described, **self.kwargs)
        except Exception as error:  # whatever the user's function raises
            raise self.wrong(f"the function raised {type(error).__name__}: {error}") from error
        if not isinstance(made, nn.Module):
            raise self.wrong(f"the function gave {type(made).__name__}, and should give a torch.nn.Module")
        return made

    def outputs(self, module: nn.Module, inputs: object, *, name: str, shape: tuple[int | str, ...]) -> torch.Tensor:
        """Run a module of the user, without effects on it, on the inputs of two observations.

        Args:
            module: what is run.
            inputs: all that it reads: a tensor, or a dict of several.
            name: what messages call it.
            shape: what it should give; a word stands for any size.

        Raises:
            UserCodeError: it fails, or gives something else.
        """
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
        """An error of this function."""
        return UserCodeError(self.setting, f"{self.setting} = {self.reference!r}: {text}")


def _fits(found: tuple[int, ...], expected: tuple[int | str, ...]) -> bool:
    pairs = zip(found, expected, strict=False)
    return len(found) == len(expected) and all(isinstance(size, str) or own == size for own, size in pairs)


def shapes(inputs: object) -> str:
    """The shape of a tensor, or of each of several, for messages."""
    if isinstance(inputs, torch.Tensor):
        return f"{str(inputs.dtype).removeprefix('torch.')} {tuple(inputs.shape)}"
    assert isinstance(inputs, dict)
    return str({name: tuple(tensor.shape) for name, tensor in inputs.items()})
