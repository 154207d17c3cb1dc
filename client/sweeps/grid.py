"""Reads a grid: a config, lists of values for settings, and the names of variants."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TypeGuard

from pydantic import JsonValue

from remuda.client.sweeps.space import Search, read_search
from remuda.config.errors import ConfigError, Document, Loc
from remuda.config.load import example_or_file, read_document
from remuda.config.readers import Override
from remuda.config.section import LARGEST_COUNT

_KEYS = ("name", "config", "seeds", "grid", "search")
_PARAMETER_KEYS = ("values", "shorthand", "in_name")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SHORTHAND = re.compile(r"[A-Za-z0-9_-]+")
_OWN_KEYS = {"seed": "seeds", "name": "name"}
"""Settings with a separate key in a grid."""
MAX_RUNS = 10_000


@dataclass(frozen=True)
class Parameter:
    """A setting with its values."""

    key: str
    values: tuple[JsonValue, ...]
    shorthand: str
    in_name: bool
    source: str
    """File and line, for messages."""


@dataclass(frozen=True)
class Variant:
    """A combination of values."""

    name: str
    settings: Mapping[str, JsonValue]
    """By dotted key."""
    overrides: tuple[Override, ...]


@dataclass(frozen=True)
class Grid:
    """A base config, the settings to vary, and the seeds of the repetitions."""

    path: Path
    name: str
    config: Path
    seeds: tuple[int, ...] | None
    """None keeps the seed of the config."""
    parameters: tuple[Parameter, ...]
    search: Search | None = None
    """Search over further settings; `parameters` then have a single value."""

    def trial(self, number: int, settings: Mapping[str, JsonValue]) -> Variant:
        """Return a trial of the search as a variant, with the settings of the trial and of the grid."""
        [fixed] = self.variants()
        sources = {one.key: one.source for one in self.search.settings} if self.search is not None else {}
        own = tuple(Override(tuple(key.split(".")), value, sources[key]) for key, value in settings.items())
        return Variant(f"{self.name}_t{number:03d}", {**fixed.settings, **settings}, (*fixed.overrides, *own))

    def variants(self) -> Iterator[Variant]:
        """Every combination; the first parameter changes slowest."""
        for values in product(*(parameter.values for parameter in self.parameters)):
            pairs = list(zip(self.parameters, values, strict=True))
            yield Variant(
                variant_name(self.name, [(one.shorthand, value) for one, value in pairs if one.in_name]),
                {one.key: value for one, value in pairs},
                tuple(Override(tuple(one.key.split(".")), value, one.source) for one, value in pairs),
            )


def read_grid(path: Path) -> Grid:
    """Read a grid from YAML, or an example by its name, without checking the values of settings.

    Raises ConfigError with every problem of the file.
    """
    path = example_or_file(path)
    document = read_document(path)
    problems: list[str] = []
    try:
        return _Reader(path, document, problems).grid()
    except KeyError:
        raise ConfigError(problems) from None


class _ParameterError(Exception):
    """A setting of the grid is wrong."""


class _Reader:
    """Checks a grid key by key; raises KeyError after a problem that makes further checks impossible."""

    def __init__(self, path: Path, document: Document, problems: list[str]) -> None:
        self._path = path
        self._document = document
        self._values = document.values
        self._problems = problems

    def grid(self) -> Grid:
        for key in self._values:
            if key not in _KEYS:
                self._wrong((key,), f"unknown key of a grid; known keys: {', '.join(_KEYS)}")
        name, config = self._word("name", _NAME), self._word("config", None)
        seeds, parameters = self._seeds(), self._parameters()
        self._check_names(parameters)
        search = self._search(parameters)
        if self._problems or name is None or config is None:
            raise KeyError
        grid = Grid(self._path, name, self._path.parent / config, seeds, parameters, search)
        self._check_size(grid)
        return grid

    def _word(self, key: str, pattern: re.Pattern[str] | None) -> str | None:
        value = self._values.get(key)
        if value is None:
            self._wrong((key,), "is required")
        elif not isinstance(value, str) or (pattern and not pattern.fullmatch(value)):
            fit = "letters, digits, dots, hyphens and underscores" if pattern else "the path of a config"
            self._wrong((key,), f"should be {fit}, not {value!r}")
        else:
            return value
        return None

    def _seeds(self) -> tuple[int, ...] | None:
        value = self._values.get("seeds")
        if value is None:
            return None
        if _is_count(value) and value:
            return tuple(range(value))
        if isinstance(value, list) and value and all(map(_is_count, value)) and len(set(map(str, value))) == len(value):
            return tuple(seed for seed in value if _is_count(seed))
        self._wrong(("seeds",), f"should be a number of seeds, or a list of different seeds, not {value!r}")
        return None

    def _parameters(self) -> tuple[Parameter, ...]:
        values = self._values.get("grid") or {}
        if not isinstance(values, dict):
            self._wrong(("grid",), "should be a mapping of settings to lists of values")
            return ()
        parameters: list[Parameter] = []
        for key, value in values.items():
            try:
                parameters.append(self._parameter(key, value))
            except _ParameterError as error:
                self._wrong(("grid", key), str(error))
        return tuple(parameters)

    def _parameter(self, key: str, given: JsonValue) -> Parameter:
        if key in _OWN_KEYS:
            raise _ParameterError(f"has its own key in a grid, `{_OWN_KEYS[key]}`, beside `grid`")
        options = given if isinstance(given, dict) else {"values": given}
        for option in options:
            if option not in _PARAMETER_KEYS:
                raise _ParameterError(
                    f"{option} is not a key of a setting; give a list of values, or {', '.join(_PARAMETER_KEYS)}; "
                    "write the whole name of a setting in a section: learner.learning_rate"
                )
        values = options.get("values")
        if not isinstance(values, list) or not values:
            raise _ParameterError(f"should be a list of values, as in {key}: [1, 2], not {values!r}")
        shorthand = options.get("shorthand", default_shorthand(key))
        if not isinstance(shorthand, str) or not _SHORTHAND.fullmatch(shorthand):
            raise _ParameterError(f"shorthand should be letters, digits, hyphens and underscores, not {shorthand!r}")
        in_name = options.get("in_name", len(values) > 1)
        if not isinstance(in_name, bool) or (len(values) > 1 and not in_name):
            raise _ParameterError("in_name may be true only; a setting with several values is always in the name")
        line = self._document.line_of(("grid", key))
        return Parameter(key, tuple(values), shorthand, in_name, f"{self._path}:{line}")

    def _search(self, parameters: tuple[Parameter, ...]) -> Search | None:
        given = self._values.get("search")
        if given is None:
            return None
        search = read_search(given, lambda loc: f"{self._path}:{self._document.line_of(loc)}", self._wrong)
        for one in parameters:
            if len(one.values) > 1:
                self._wrong(
                    ("grid", one.key), "has several values: beside a search give it one, or move it into search.space"
                )
            if search is not None and any(one.key == searched.key for searched in search.settings):
                self._wrong(("grid", one.key), "is in search.space, too")
        return search

    def _check_names(self, parameters: tuple[Parameter, ...]) -> None:
        """Note a problem for two settings with the same shorthand."""
        known: dict[str, str] = {}
        for one in parameters:
            if one.in_name and known.setdefault(one.shorthand, one.key) != one.key:
                self._wrong(
                    ("grid", one.key),
                    f"is shortened to {one.shorthand}, like {known[one.shorthand]}: give one a shorthand, as in "
                    f"{one.key}: {{values: [...], shorthand: {one.key.rpartition('.')[2]}}}",
                )

    def _check_size(self, grid: Grid) -> None:
        count = len(grid.seeds or (0,))
        for parameter in grid.parameters:
            count *= len(parameter.values)
        if count > MAX_RUNS:
            self._wrong(("grid",), f"makes {count} runs; the most is {MAX_RUNS}")
            raise KeyError
        names: dict[str, Mapping[str, JsonValue]] = {}
        for variant in grid.variants():
            if variant.name in names:
                self._wrong(("grid",), f"{variant.settings} and {names[variant.name]} are both called {variant.name}")
            names[variant.name] = variant.settings
        if self._problems:
            raise KeyError

    def _wrong(self, loc: Loc, what: str) -> None:
        line = self._document.line_of(loc)
        where = f"{self._path}:{line}" if line else f"{self._path}"
        self._problems.append(f"{where}: {'.'.join(map(str, loc))}: {what}")


def _is_count(value: JsonValue) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_COUNT


_PART_LETTERS = 3
_UNFIT = re.compile(r"[^-_A-Za-z0-9]")


def default_shorthand(key: str) -> str:
    """Join the first three characters of the parts of a dotted key, without punctuation: `learner.learning_rate` is
    lea-lea, `policy.n_step` is pol-ns."""
    parts = ("".join(letter for letter in part[:_PART_LETTERS] if letter.isalnum()) for part in key.split("."))
    return "-".join(part for part in parts if part)


def value_text(value: JsonValue) -> str:
    """A value as part of a file name: in lower case, with a hyphen for each character except letters, digits, hyphens
    and underscores, and lists joined by hyphens: 0.1 is 0-1, [64, 64] is 64-64, CartPole-v1 is cartpole-v1."""
    if isinstance(value, list):
        return "-".join(map(value_text, value))
    if isinstance(value, dict):
        return "-".join(f"{value_text(key)}-{value_text(item)}" for key, item in value.items())
    return _UNFIT.sub("-", str(value).lower())


def variant_name(grid: str, named: Sequence[tuple[str, JsonValue]]) -> str:
    """Join the grid's name and `_<shorthand><value>` of all pairs; true is the shorthand alone, false is omitted."""
    name = grid
    for shorthand, value in named:
        if isinstance(value, bool):
            name += f"_{shorthand}" if value else ""
        else:
            name += f"_{shorthand}{value_text(value)}"
    return name


def run_name(variant: str, seed: int) -> str:
    """Return the name of a variant with a seed."""
    return f"{variant}_s{seed}"
