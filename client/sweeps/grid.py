"""Reads a grid: a config, lists of values for settings, and the names of variants."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    PlainValidator,
    ValidationError,
    model_validator,
)

from remuda.client.sweeps.population import Population, PopulationSearch
from remuda.client.sweeps.space import Distribution, Pruning, Search
from remuda.config.errors import ConfigError, Document, Loc, dotted
from remuda.config.explain import ConfigSource, explain
from remuda.config.load import example_or_file, read_document
from remuda.config.readers import Override
from remuda.config.section import NonNegative, Section

_OWN_KEYS = {"seed": "seeds", "name": "name"}
"""Settings with a separate key in a grid."""
MAX_RUNS = 10_000


class Parameter(Section):
    """A setting with its values."""

    values: Annotated[tuple[JsonValue, ...], Field(min_length=1)]
    """The values."""
    shorthand: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")] | None = None
    """Name of the setting in names of variants; see default_shorthand."""
    in_name: bool | None = None
    """True names the setting in names of variants, which is the default for several values."""

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, given: object) -> object:
        if isinstance(given, list):
            return {"values": cast("object", given)}
        if not isinstance(given, dict) or "values" not in given:
            raise ValueError(
                "should be a list of values, as in [1, 2], or a mapping with `values`; write the whole name of a "
                "setting in a section: learner.learning_rate"
            )
        return cast("object", given)

    @model_validator(mode="after")
    def _several_values_are_named(self) -> Parameter:
        if self.in_name is False and len(self.values) > 1:
            raise ValueError("in_name may be true only; a setting with several values is always in the name")
        return self


def _counted(given: object) -> object:
    """A number of seeds stands for the seeds from 0."""
    if isinstance(given, bool) or not isinstance(given, int):
        return given
    if not 0 < given <= MAX_RUNS:
        raise ValueError(f"should be a number of seeds from 1 to {MAX_RUNS}, or a list of different seeds, not {given}")
    return range(given)


def _different(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"should be a number of seeds, or a list of different seeds, not {[*seeds]}")
    return seeds


def _varied(key: str) -> str:
    if key in _OWN_KEYS:
        raise ValueError(f"has its own key in a grid, `{_OWN_KEYS[key]}`, beside `grid`")
    return key


def _search_or_population(given: object) -> Search | PopulationSearch | None:
    """The key `pbt` makes a population of a search."""
    if given is None:
        return None
    if not isinstance(given, dict) or "pbt" not in given:
        return Search.model_validate(given)
    if len(cast("dict[str, object]", given)) > 1:
        raise ValueError("has other keys beside pbt: a population takes all of its settings from pbt")
    return PopulationSearch.model_validate(given)


Seeds = Annotated[tuple[NonNegative, ...], Field(min_length=1), BeforeValidator(_counted), AfterValidator(_different)]


class GridFile(Section):
    """The content of a grid's file."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    """Name of the sweep."""
    config: str
    """Path of the config of all runs, from the folder of the file."""
    seeds: Seeds | None = None
    """Seeds of the repetitions; None keeps the seed of the config."""
    grid: dict[Annotated[str, AfterValidator(_varied)], Parameter] | None = None
    """Varied settings by dotted key."""
    search: Annotated[Search | PopulationSearch | None, PlainValidator(_search_or_population)] = None
    """Search over further settings, or a population; the settings of `grid` then have a single value."""


@dataclass(frozen=True)
class Variant:
    """A combination of values."""

    name: str
    settings: Mapping[str, JsonValue]
    """By dotted key."""
    overrides: tuple[Override, ...]


class Grid:
    """A base config, the settings to vary, and the seeds of the repetitions."""

    def __init__(self, path: Path, document: Document) -> None:
        """Raises ConfigError with every problem of the file."""
        self._source = ConfigSource(path, document, ())
        try:
            file = GridFile.model_validate(document.values)
        except ValidationError as error:
            raise ConfigError(explain(error.errors(include_url=False), self._source, section_of=_section)) from None
        self.path, self.name, self.config = path, file.name, path.parent / file.config
        self.seeds, self.parameters = file.seeds, file.grid or {}
        self.search = file.search if isinstance(file.search, Search) else None
        self.population = file.search.pbt if isinstance(file.search, PopulationSearch) else None
        self.require_none(self._contradictions())

    def require_none(self, problems: Iterable[tuple[Loc, str]]) -> None:
        """Raise ConfigError for any problems, and name the line of each problem in the file."""
        if found := [f"{self._source.of(loc)}: {dotted(loc)}: {what}" for loc, what in problems]:
            raise ConfigError(found)

    @property
    def space(self) -> Mapping[str, Distribution]:
        """Settings that a search or a population chooses; empty without both."""
        chooses: Search | Population | None = self.search or self.population
        return {} if chooses is None else chooses.space

    def trial(self, number: int, settings: Mapping[str, JsonValue]) -> Variant:
        """Return a trial of the search as a variant, with the settings of the trial and of the grid."""
        return self._chosen(f"t{number:03d}", settings)

    def member(self, number: int, settings: Mapping[str, JsonValue]) -> Variant:
        """Return a member of the population as a variant, with its settings and those of the grid."""
        return self._chosen(f"m{number:02d}", settings)

    def _chosen(self, name: str, settings: Mapping[str, JsonValue]) -> Variant:
        section = ("search", "space") if self.population is None else ("search", "pbt", "space")
        [fixed] = self.variants()
        own = tuple(self._override(section, key, value) for key, value in settings.items())
        return Variant(f"{self.name}_{name}", {**fixed.settings, **settings}, (*fixed.overrides, *own))

    def variants(self) -> Iterator[Variant]:
        """Every combination; the first parameter changes slowest."""
        for values in product(*(parameter.values for parameter in self.parameters.values())):
            settings = dict(zip(self.parameters, values, strict=True))
            named = [(short, settings[key]) for key, short in self._shorthands().items()]
            overrides = tuple(self._override(("grid",), key, value) for key, value in settings.items())
            yield Variant(variant_name(self.name, named), settings, overrides)

    def _shorthands(self) -> dict[str, str]:
        """Return the short names of the settings in the names of variants, by dotted key."""
        named = {key: one for key, one in self.parameters.items() if one.in_name or len(one.values) > 1}
        return {key: one.shorthand or default_shorthand(key) for key, one in named.items()}

    def _override(self, section: Loc, key: str, value: JsonValue) -> Override:
        return Override(tuple(key.split(".")), value, self._source.of((*section, key)))

    def _contradictions(self) -> Iterator[tuple[Loc, str]]:
        """Yield the problems of settings that do not go together, with the place of each."""
        known: dict[str, str] = {}
        for key, short in self._shorthands().items():
            if known.setdefault(short, key) != key:
                yield (
                    ("grid", key),
                    f"is shortened to {short}, like {known[short]}: give one a shorthand, as in {key}: "
                    f"{{values: [...], shorthand: {key.rpartition('.')[2]}}}",
                )
        where = "search" if self.population is None else "search.pbt"
        for key, one in self.parameters.items():
            if self.space and len(one.values) > 1:
                yield ("grid", key), f"has several values: beside a search give it one, or move it into {where}.space"
            if key in self.space:
                yield ("grid", key), f"is in {where}.space, too"
        if self.population is not None and len(self.seeds or (0,)) > 1:
            yield ("seeds",), "a population needs one seed: its members have the seeds from there"
        count = len(self.seeds or (0,)) * prod(len(one.values) for one in self.parameters.values())
        if count > MAX_RUNS:
            yield ("grid",), f"makes {count} runs; the most is {MAX_RUNS}"
            return
        names: dict[str, Mapping[str, JsonValue]] = {}
        for variant in self.variants():
            if variant.name in names:
                yield ("grid",), f"{variant.settings} and {names[variant.name]} are both called {variant.name}"
            names[variant.name] = variant.settings


def _section(loc: Loc) -> type[Section] | None:
    """Return the section of a grid's file at `loc`."""
    match loc:
        case ():
            return GridFile
        case ("grid", _):
            return Parameter
        case ("search",):
            return Search
        case ("search", "space", _) | ("search", "pbt", "space", _):
            return Distribution
        case ("search", "pruning"):
            return Pruning
        case ("search", "pbt"):
            return Population
        case _:
            return None


def read_grid(path: Path) -> Grid:
    """Read a grid from YAML, or an example by its name, without checking the values of settings.

    Raises ConfigError with every problem of the file.
    """
    path = example_or_file(path)
    return Grid(path, read_document(path))


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
