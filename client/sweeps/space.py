"""A search: distributions of settings, read from the key `search` of a sweep's file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from pydantic import JsonValue

from remuda.config.errors import Loc
from remuda.config.section import LARGEST_COUNT, LARGEST_FLOAT

_RANGE_KEYS = ("low", "high", "log", "step")


class DistributionError(ValueError):
    """The distribution of a setting is wrong."""


@dataclass(frozen=True)
class FloatRange:
    """A number from `low` to `high`, both included."""

    low: float
    high: float
    log: bool = False
    """True for a uniform distribution of the logarithm."""
    step: float | None = None
    """Restricts the values to `low`, `low` + `step` and so on; None permits any number."""


@dataclass(frozen=True)
class IntRange:
    """An integer from `low` to `high`, both included."""

    low: int
    high: int
    log: bool = False
    step: int = 1


@dataclass(frozen=True)
class Choices:
    """A list of values of any kind."""

    values: tuple[JsonValue, ...]


Distribution = FloatRange | IntRange | Choices


@dataclass(frozen=True)
class SearchedSetting:
    """A setting varied by a search."""

    key: str
    """Dotted."""
    distribution: Distribution
    source: str
    """File and line, for messages."""


@dataclass(frozen=True)
class Pruning:
    """Prunes a trial at a report of its mean evaluation return, unless its best report so far is among the best
    `percentile` % of the finished trials' reports at the same step."""

    percentile: float = 50.0
    after_trials: int = 5
    """Number of finished trials before the first pruning."""
    after_env_steps: int = 0
    """Environment steps of a trial before it may be pruned."""
    every_env_steps: int | None = None
    """Environment steps between two reports; None is `evaluator.interval_env_steps`."""


@dataclass(frozen=True)
class Search:
    """Trials, sampler and pruning of a search."""

    trials: int
    settings: tuple[SearchedSetting, ...]
    sampler: Literal["tpe", "random"] = "tpe"
    """`tpe`: where good results were (Bergstra et al. 2011). `random`: anywhere."""
    seed: int = 0
    objective: Literal["best", "last"] = "best"
    """Mean evaluation return that counts for a run; a trial counts the mean over its seeds."""
    at_once: int = 2
    """Number of trials at the same time."""
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
    """Format a distribution as in the file."""
    if isinstance(given, Choices):
        return json.dumps(list(given.values))
    log = ", log: true" if given.log else ""
    step = f", step: {given.step:g}" if given.step not in (None, 1) else ""
    return f"{{low: {given.low:g}, high: {given.high:g}{log}{step}}}"


MAX_TRIALS = 10_000
MOST_AT_ONCE = 1_000
_SEARCH_KEYS = ("trials", "space", "sampler", "seed", "objective", "at_once", "pruning")
_PRUNING_KEYS = ("percentile", "after_trials", "after_env_steps", "every_env_steps")
_OWN_KEYS = ("seed", "name")

ReportProblem = Callable[[Loc, str], None]
"""Notes a problem at a place of the file."""


def read_search(given: JsonValue, source: Callable[[Loc], str], report: ReportProblem) -> Search | None:
    """Return the described search, or None after reporting problems. `source` returns file and line."""
    if not isinstance(given, dict):
        report(("search",), f"should be a mapping with {', '.join(_SEARCH_KEYS)}, not {given!r}")
        return None
    found: list[str] = []

    def note(loc: Loc, what: str) -> None:
        found.append(what)
        report(loc, what)

    _check_keys(given, ("search",), _SEARCH_KEYS, note)
    search = Search(
        trials=_count(given, ("search", "trials"), MAX_TRIALS, note, default=None, least=1),
        settings=_space(given.get("space"), source, note),
        sampler=cast('Literal["tpe", "random"]', _one_of(given, "sampler", ("tpe", "random"), note)),
        seed=_count(given, ("search", "seed"), LARGEST_COUNT, note, default=0),
        objective=cast('Literal["best", "last"]', _one_of(given, "objective", ("best", "last"), note)),
        at_once=_count(given, ("search", "at_once"), MOST_AT_ONCE, note, default=2, least=1),
        pruning=_pruning(given.get("pruning"), note),
    )
    return None if found else search


def _space(given: JsonValue, source: Callable[[Loc], str], report: ReportProblem) -> tuple[SearchedSetting, ...]:
    if not isinstance(given, dict) or not given:
        report(("search", "space"), "should be a mapping of settings to lists of values or ranges")
        return ()
    settings: list[SearchedSetting] = []
    for key, value in given.items():
        loc = ("search", "space", key)
        try:
            if key in _OWN_KEYS:
                raise DistributionError("cannot be searched")
            settings.append(SearchedSetting(key, distribution(value), source(loc)))
        except DistributionError as error:
            report(loc, str(error))
    return tuple(settings)


def _pruning(given: JsonValue, report: ReportProblem) -> Pruning | None:
    if given is None or given is False:
        return None
    if given is True:
        return Pruning()
    loc = ("search", "pruning")
    if not isinstance(given, dict):
        report(loc, f"should be true, or a mapping with {', '.join(_PRUNING_KEYS)}, not {given!r}")
        return None
    _check_keys(given, loc, _PRUNING_KEYS, report)
    percentile = given.get("percentile", 50.0)
    if isinstance(percentile, bool) or not isinstance(percentile, int | float) or not 0 < percentile < 100:
        report((*loc, "percentile"), f"should be above 0 and below 100, not {percentile!r}")
        percentile = 50.0
    every = given.get("every_env_steps")
    return Pruning(
        float(percentile),
        _count(given, (*loc, "after_trials"), MAX_TRIALS, report, default=5),
        _count(given, (*loc, "after_env_steps"), LARGEST_COUNT, report, default=0),
        None if every is None else _count(given, (*loc, "every_env_steps"), LARGEST_COUNT, report, default=1, least=1),
    )


def _check_keys(given: Mapping[str, JsonValue], loc: Loc, known: Sequence[str], report: ReportProblem) -> None:
    for key in given:
        if key not in known:
            report((*loc, key), f"unknown key; known keys: {', '.join(known)}")


def _count(
    given: Mapping[str, JsonValue], loc: Loc, most: int, report: ReportProblem, *, default: int | None, least: int = 0
) -> int:
    value = given.get(str(loc[-1]), default)
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    report(loc, "is required" if value is None else f"should be an integer from {least} to {most}, not {value!r}")
    return least


def _one_of(given: Mapping[str, JsonValue], key: str, options: Sequence[str], report: ReportProblem) -> str:
    value = given.get(key, options[0])
    if isinstance(value, str) and value in options:
        return value
    report(("search", key), f"should be {' or '.join(options)}, not {value!r}")
    return options[0]
