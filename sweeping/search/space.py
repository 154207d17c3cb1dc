"""What a search varies: a distribution for each setting."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from pydantic import JsonValue

from remuda.config.numbers import LARGEST_COUNT, LARGEST_FLOAT

_RANGE_KEYS = ("low", "high", "log", "step")


class DistributionError(ValueError):
    """What is wrong with the distribution of a setting."""


@dataclass(frozen=True)
class FloatRange:
    """A number from `low` to `high`, both included."""

    low: float
    high: float
    log: bool = False
    """Whether its logarithm is spread evenly."""
    step: float | None = None
    """Only `low`, `low` + `step` and so on; None: any number."""


@dataclass(frozen=True)
class IntRange:
    """An integer from `low` to `high`, both included."""

    low: int
    high: int
    log: bool = False
    step: int = 1


@dataclass(frozen=True)
class Choices:
    """One of several values, of any kind."""

    values: tuple[JsonValue, ...]


Distribution = FloatRange | IntRange | Choices


@dataclass(frozen=True)
class SearchedSetting:
    """A setting that a search varies."""

    key: str
    """Dotted."""
    distribution: Distribution
    source: str
    """File and line, for messages."""


@dataclass(frozen=True)
class Pruning:
    """A trial is given up at a report of its mean evaluation return, unless its best report so far is among the best
    `percentile` % of what finished trials had reported at the same step."""

    percentile: float = 50.0
    after_trials: int = 5
    """So many trials must finish before any may be given up."""
    after_env_steps: int = 0
    """No trial is given up before it has made so many steps."""
    every_env_steps: int | None = None
    """Environment steps between two reports; None: `evaluator.interval_env_steps`."""


@dataclass(frozen=True)
class Search:
    """How settings are searched."""

    trials: int
    settings: tuple[SearchedSetting, ...]
    sampler: Literal["tpe", "random"] = "tpe"
    """`tpe`: where good results were (Bergstra et al. 2011). `random`: anywhere."""
    seed: int = 0
    objective: Literal["best", "last"] = "best"
    """Which mean evaluation return of a run counts; a trial counts the mean over its seeds."""
    at_once: int = 2
    """Trials that run at the same time."""
    pruning: Pruning | None = None


def distribution(given: JsonValue) -> Distribution:
    """Read `[a, b, c]`, or `{low: …, high: …}` with `log` and `step`. Raises DistributionError."""
    if isinstance(given, list) and len(given) > 1:
        if len({repr(value) for value in given}) < len(given):
            raise DistributionError(f"names a value twice: {given!r}")
        return Choices(tuple(given))
    if not isinstance(given, dict) or not {"low", "high"} <= given.keys():
        raise DistributionError(
            f"should be a list of two or more values, or a range such as {{low: 1e-4, high: 1e-2, log: true}}, "
            f"not {given!r}"
        )
    for key in given:
        if key not in _RANGE_KEYS:
            raise DistributionError(f"{key} is not a key of a range; its keys are {', '.join(_RANGE_KEYS)}")
    return _range(given)


def _range(given: Mapping[str, JsonValue]) -> FloatRange | IntRange:
    log = given.get("log", False)
    if not isinstance(log, bool):
        raise DistributionError(f"log should be true or false, not {log!r}")
    numbers = [given[key] for key in ("low", "high", "step") if given.get(key) is not None]
    if not all(isinstance(one, int | float) and not isinstance(one, bool) and math.isfinite(one) for one in numbers):
        raise DistributionError(f"low, high and step should be numbers, not {numbers!r}")
    low, high, *step = (cast("float", one) for one in numbers)
    if not low < high:
        raise DistributionError(f"low ({low:g}) should be less than high ({high:g})")
    if log and low <= 0:
        raise DistributionError(f"a range with log needs a low above 0, not {low:g}")
    if step and (log or not 0 < step[0] <= high - low):
        raise DistributionError("a step should be above 0, at most high - low, and without log")
    if all(isinstance(one, int) for one in numbers) and max(abs(low), abs(high)) <= LARGEST_COUNT:
        return IntRange(int(low), int(high), log, int(step[0]) if step else 1)
    if max(abs(low), abs(high)) > LARGEST_FLOAT:
        raise DistributionError(f"low and high should be between ±{LARGEST_FLOAT:g}")
    return FloatRange(low, high, log, step[0] if step else None)


def ends(given: Distribution) -> tuple[JsonValue, ...]:
    """The two ends of a range, or every value of a list."""
    return given.values if isinstance(given, Choices) else (given.low, given.high)


def described(given: Distribution) -> str:
    """As it is written in the file."""
    if isinstance(given, Choices):
        return json.dumps(list(given.values))
    log = ", log: true" if given.log else ""
    step = f", step: {given.step:g}" if given.step not in (None, 1) else ""
    return f"{{low: {given.low:g}, high: {given.high:g}{log}{step}}}"
