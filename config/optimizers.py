"""Optimizers for `learner.optimizer`, with their settings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Annotated, cast

from pydantic import AfterValidator, JsonValue, ValidationError, WithJsonSchema

from remuda.config.document import dotted
from remuda.config.numbers import REFERENCE, Correlation, NonNegativeFloat
from remuda.config.section import Section
from remuda.config.user_code import UserCodeError, user_object

OPTIMIZER, OPTIMIZER_SETTINGS = "learner.optimizer", "learner.optimizer_settings"
USUAL_OPTIMIZER = "adam"
_GIVEN = {"lr": "learner.learning_rate is given as that", "params": "the learner gives the parameters"}


class AdamSettings(Section):
    """Adam (Kingma and Ba 2015)."""

    betas: tuple[Correlation, Correlation] = (0.9, 0.999)
    """Decay of the running means of the gradient and of the squared gradient."""
    eps: NonNegativeFloat = 1e-8
    """Added to the root of the mean square: larger values make steps smaller where gradients are small."""
    weight_decay: NonNegativeFloat = 0.0
    """Share of a weight added to its gradient (L2 penalty)."""


class AdamwSettings(AdamSettings):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    weight_decay: NonNegativeFloat = 1e-2
    """Share of a weight, times the step size, subtracted from the weight."""


class RmspropSettings(Section):
    """RMSProp (Tieleman and Hinton 2012)."""

    alpha: Correlation = 0.99
    """Decay of the running mean of the squared gradient."""
    eps: NonNegativeFloat = 1e-8
    """Added to the root of the mean square."""
    eps_inside_root: bool = False
    """Add `eps` to the mean square itself, as TensorFlow does."""
    centered: bool = False
    """Divide by the gradient's standard deviation instead of the root mean square (Graves 2013)."""
    momentum: Correlation = 0.0
    """Share of the former step added to a step."""
    weight_decay: NonNegativeFloat = 0.0
    """Share of a weight added to its gradient (L2 penalty)."""


BUILT_IN_OPTIMIZERS: Mapping[str, type[Section]] = MappingProxyType(
    {"adam": AdamSettings, "adamw": AdamwSettings, "rmsprop": RmspropSettings}
)


def _known(name: str) -> str:
    if name not in BUILT_IN_OPTIMIZERS and not re.match(REFERENCE, name):
        raise ValueError(f'should be one of {", ".join(BUILT_IN_OPTIMIZERS)}, or module:Class, not "{name[:60]}"')
    return name


OptimizerName = Annotated[
    str,
    AfterValidator(_known),
    WithJsonSchema({"anyOf": [{"enum": [*BUILT_IN_OPTIMIZERS]}, {"type": "string", "pattern": REFERENCE}]}),
]


def require_settings(optimizer: str, settings: Mapping[str, JsonValue]) -> None:
    """Check the settings of a built-in optimizer. Raises ValueError with the names of wrong settings."""
    kind = BUILT_IN_OPTIMIZERS.get(optimizer)
    if kind is None:
        return
    try:
        kind.model_validate(settings)
    except ValidationError as error:
        problems = (_problem(optimizer, kind, one["loc"], one["msg"]) for one in error.errors(include_url=False))
        raise ValueError("; ".join(problems)) from None


def _problem(optimizer: str, kind: type[Section], loc: tuple[int | str, ...], message: str) -> str:
    if loc[0] in kind.model_fields:
        return f"{dotted(loc)}: {message.removeprefix('Value error, ').replace('Input should', 'should')}"
    near = get_close_matches(str(loc[0])[:60], kind.model_fields, n=1)
    hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(kind.model_fields)}"
    return f"{str(loc[0])[:60]}: {optimizer} has no such setting; {hint}"


def own_optimizer(
    reference: str, settings: Mapping[str, JsonValue], *, source_dir: str | None
) -> Callable[..., object]:
    """Import the user's class, and check its call with parameters, `lr` and these settings. Raises UserCodeError."""
    given = user_object(reference, setting=OPTIMIZER, source_dir=source_dir, kind="class")
    found = cast("Callable[..., object]", given)
    for name, instead in _GIVEN.items():
        if name in settings:
            raise _wrong(f"leave {name} out: {instead}")
    try:
        inspect.signature(found).bind([], lr=0.0, **settings)
    except TypeError as error:
        call = ", ".join(["parameters", "lr=…", *(f"{name}=…" for name in settings)])
        raise _wrong(f"{reference} cannot be called with ({call}): {error}") from None
    except ValueError:  # some classes written in C do not tell their parameters
        pass
    return found


def _wrong(text: str) -> UserCodeError:
    return UserCodeError(OPTIMIZER_SETTINGS, f"{OPTIMIZER_SETTINGS}: {text}")
