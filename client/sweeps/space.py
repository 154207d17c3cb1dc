"""A search: distributions of settings, sampler and pruning, as under the key `search` of a sweep's file."""

from __future__ import annotations

import json
from typing import Annotated, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, PlainValidator, model_validator

from remuda.config.section import LARGEST_COUNT, LARGEST_FLOAT, NonNegative, Positive, Section, no_bool

MAX_TRIALS = 10_000
_EXAMPLE = "should be a list of two or more values, or a range such as {low: 1e-4, high: 1e-2, log: true}"


def _number(value: object) -> int | float:
    """Refuse all but numbers; whole numbers stay whole."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST_FLOAT:
        raise ValueError(f"should be a number between ±{LARGEST_FLOAT:g}, not {value!r}")
    return value


def _searchable(key: str) -> str:
    if key in ("seed", "name"):
        raise ValueError("cannot be searched")
    return key


Number = Annotated[int | float, PlainValidator(_number)]
Trials = Annotated[int, Field(ge=0, le=MAX_TRIALS), BeforeValidator(no_bool)]


class Distribution(Section):
    """Values of a setting: a list, or a range of numbers."""

    values: tuple[JsonValue, ...] | None = None
    """Two or more values of any kind."""
    low: Number | None = None
    """Least number of a range. The range has whole numbers alone if all its numbers are whole."""
    high: Number | None = None
    """Largest number of a range."""
    log: bool = False
    """True for a uniform distribution of the logarithm."""
    step: Number | None = None
    """Restricts the numbers to `low`, `low` + `step` and so on; None permits any number."""

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, given: object) -> object:
        if isinstance(given, list):
            return {"values": cast("object", given)}
        if not isinstance(given, dict):
            raise ValueError(f"{_EXAMPLE}, not {given!r}")
        return cast("object", given)

    @model_validator(mode="after")
    def _check(self) -> Distribution:
        if self.values is not None:
            if len(self.values) < 2 or self.low is not None or self.high is not None:
                raise ValueError(_EXAMPLE)
            if len({repr(value) for value in self.values}) < len(self.values):
                raise ValueError(f"names a value twice: {[*self.values]!r}")
        elif self.low is None or self.high is None:
            raise ValueError(_EXAMPLE)
        elif not self.low < self.high:
            raise ValueError(f"low ({self.low:g}) should be less than high ({self.high:g})")
        elif self.log and self.low <= 0:
            raise ValueError(f"a range with log needs a low above 0, not {self.low:g}")
        elif self.step is not None and (self.log or not 0 < self.step <= self.high - self.low):
            raise ValueError("a step should be above 0, at most high - low, and without log")
        return self

    @property
    def bounds(self) -> tuple[int | float, int | float]:
        """Both ends of a range."""
        assert self.low is not None
        assert self.high is not None
        return self.low, self.high

    @property
    def ends(self) -> tuple[JsonValue, ...]:
        """Both ends of a range, or every value of a list."""
        return self.bounds if self.values is None else self.values

    @property
    def is_whole(self) -> bool:
        """True for a range of whole numbers."""
        numbers = [*self.bounds, *([] if self.step is None else [self.step])]
        return all(isinstance(one, int) and abs(one) <= LARGEST_COUNT for one in numbers)

    def __str__(self) -> str:
        """Format as in the file."""
        if self.values is not None:
            return json.dumps([*self.values])
        log = ", log: true" if self.log else ""
        step = f", step: {self.step:g}" if self.step not in (None, 1) else ""
        return f"{{low: {self.low:g}, high: {self.high:g}{log}{step}}}"


Space = Annotated[dict[Annotated[str, AfterValidator(_searchable)], Distribution], Field(min_length=1)]


class Pruning(Section):
    """Prunes a trial at a report of its mean evaluation return, unless its best report so far is among the best
    `percentile` % of the finished trials' reports at the same step."""

    percentile: Annotated[float, Field(gt=0, lt=100), BeforeValidator(no_bool)] = 50.0
    """Share of better trials."""
    after_trials: Trials = 5
    """Number of finished trials before the first pruning."""
    after_env_steps: NonNegative = 0
    """Environment steps of a trial before it may be pruned."""
    every_env_steps: Positive | None = None
    """Environment steps between two reports; None is `evaluator.interval_env_steps`."""


def _or_switch(given: object) -> object:
    """`true` for the defaults, `false` for no pruning."""
    return ({} if given else None) if isinstance(given, bool) else given


class Search(Section):
    """Trials, sampler and pruning of a search."""

    trials: Annotated[Trials, Field(ge=1)]
    """Number of trials."""
    space: Space
    """Varied settings by dotted key."""
    sampler: Literal["tpe", "random"] = "tpe"
    """`tpe`: where good results were (Bergstra et al. 2011). `random`: anywhere."""
    seed: NonNegative = 0
    """Seed of the sampler."""
    objective: Literal["best", "last"] = "best"
    """Mean evaluation return that counts for a run; a trial counts the mean over its seeds."""
    at_once: Annotated[int, Field(ge=1, le=1_000), BeforeValidator(no_bool)] = 2
    """Number of trials at the same time."""
    pruning: Annotated[Pruning | None, BeforeValidator(_or_switch)] = None
    """Ends bad trials early; None ends none."""
