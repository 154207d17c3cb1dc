"""Reading the key `search` of a sweep's file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, cast

from pydantic import JsonValue

from remuda.config.document import Loc
from remuda.config.numbers import LARGEST_COUNT
from remuda.sweeping.search.space import DistributionError, Pruning, Search, SearchedSetting, distribution

MAX_TRIALS = 10_000
MOST_AT_ONCE = 1_000
_KEYS = ("trials", "space", "sampler", "seed", "objective", "at_once", "pruning")
_PRUNING_KEYS = ("percentile", "after_trials", "after_env_steps", "every_env_steps")
_OWN_PLACES = ("seed", "name")

Wrong = Callable[[Loc, str], None]
"""Notes a problem at a place of the file."""


def read_search(given: JsonValue, source: Callable[[Loc], str], wrong: Wrong) -> Search | None:
    """The search that is described, or None after `wrong` was told why there is none. `source` gives file and line."""
    if not isinstance(given, dict):
        wrong(("search",), f"should be a mapping with {', '.join(_KEYS)}, not {given!r}")
        return None
    found: list[str] = []

    def note(loc: Loc, what: str) -> None:
        found.append(what)
        wrong(loc, what)

    _check_keys(given, ("search",), _KEYS, note)
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


def _space(given: JsonValue, source: Callable[[Loc], str], wrong: Wrong) -> tuple[SearchedSetting, ...]:
    if not isinstance(given, dict) or not given:
        wrong(("search", "space"), "should be a mapping of settings to lists of values or ranges")
        return ()
    settings: list[SearchedSetting] = []
    for key, value in given.items():
        loc = ("search", "space", key)
        try:
            if key in _OWN_PLACES:
                raise DistributionError("cannot be searched")
            settings.append(SearchedSetting(key, distribution(value), source(loc)))
        except DistributionError as error:
            wrong(loc, str(error))
    return tuple(settings)


def _pruning(given: JsonValue, wrong: Wrong) -> Pruning | None:
    if given is None or given is False:
        return None
    if given is True:
        return Pruning()
    loc = ("search", "pruning")
    if not isinstance(given, dict):
        wrong(loc, f"should be true, or a mapping with {', '.join(_PRUNING_KEYS)}, not {given!r}")
        return None
    _check_keys(given, loc, _PRUNING_KEYS, wrong)
    percentile = given.get("percentile", 50.0)
    if isinstance(percentile, bool) or not isinstance(percentile, int | float) or not 0 < percentile < 100:
        wrong((*loc, "percentile"), f"should be above 0 and below 100, not {percentile!r}")
        percentile = 50.0
    every = given.get("every_env_steps")
    return Pruning(
        float(percentile),
        _count(given, (*loc, "after_trials"), MAX_TRIALS, wrong, default=5),
        _count(given, (*loc, "after_env_steps"), LARGEST_COUNT, wrong, default=0),
        None if every is None else _count(given, (*loc, "every_env_steps"), LARGEST_COUNT, wrong, default=1, least=1),
    )


def _check_keys(given: Mapping[str, JsonValue], loc: Loc, known: Sequence[str], wrong: Wrong) -> None:
    for key in given:
        if key not in known:
            wrong((*loc, key), f"there is no such key; the keys are {', '.join(known)}")


def _count(
    given: Mapping[str, JsonValue], loc: Loc, most: int, wrong: Wrong, *, default: int | None, least: int = 0
) -> int:
    value = given.get(str(loc[-1]), default)
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    wrong(loc, "is required" if value is None else f"should be an integer from {least} to {most}, not {value!r}")
    return least


def _one_of(given: Mapping[str, JsonValue], key: str, options: Sequence[str], wrong: Wrong) -> str:
    value = given.get(key, options[0])
    if isinstance(value, str) and value in options:
        return value
    wrong(("search", key), f"should be {' or '.join(options)}, not {value!r}")
    return options[0]
