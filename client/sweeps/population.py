"""A population as under the key `search.pbt` of a sweep's file: who continues from whom, with which settings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import BeforeValidator, Field, JsonValue

from remuda.client.sweeps.space import Distribution, Space
from remuda.config.current import changeable
from remuda.config.custom import settings_of
from remuda.config.errors import Loc
from remuda.config.schema import ExperimentConfig
from remuda.config.section import Fraction, NonNegative, Positive, PositiveFloat, Section, no_bool

Settings = Mapping[str, JsonValue]
"""By dotted key."""
MAX_MEMBERS = 1_000


class Population(Section):
    """Members that train side by side: after each interval the worst continue from the checkpoints of the best, with
    changed settings (Jaderberg et al. 2017)."""

    population: Annotated[int, Field(ge=2, le=MAX_MEMBERS), BeforeValidator(no_bool)]
    """Number of members."""
    interval_env_steps: Positive
    """Environment steps of each member between two comparisons."""
    space: Space
    """Settings by dotted key, with the values of the first members. Only settings that may change during a run."""
    replaced: Annotated[float, Field(gt=0, le=0.5, allow_inf_nan=False), BeforeValidator(no_bool)] = 0.25
    """Share of the members, at least one member, that continue from others; their parents are drawn from as many of the
    best."""
    factors: Annotated[tuple[PositiveFloat, ...], Field(min_length=1)] = (0.8, 1.25)
    """A changed number is the parent's, multiplied by one of these numbers; a changed value of a list is a neighbour of
    the parent's."""
    resample: Fraction = 0.25
    """Probability that a setting is drawn from `space` again, instead of changed."""
    copies: Literal["weights", "weights_and_replay"] = "weights"
    """`weights`: network, optimizer, normalisation and counters of the parent's checkpoint; the replay starts empty.
    `weights_and_replay`: the parent's replay, too."""
    seed: NonNegative = 0
    """Seed of all draws."""


class PopulationSearch(Section):
    """Population-based training, in place of trials."""

    pbt: Population
    """The population."""


@dataclass(frozen=True)
class Descent:
    """The beginning of a member's next interval."""

    parent: int
    """Member with the checkpoint to begin from; the member itself, if it goes on."""
    settings: Settings


def problems(pbt: Population, config: ExperimentConfig) -> Iterator[tuple[Loc, str]]:
    """Yield the reasons why runs with this config cannot be members, with their places in the sweep's file. Imports a
    user's class."""
    known = changeable(config.model_copy(update={"policy": settings_of(config)}))
    for key in pbt.space:
        if key not in known:
            yield (
                ("search", "pbt", "space", key),
                f"cannot change during a run; settings that can: {', '.join(known)}",
            )
    if config.policies:
        yield ("config",), "has several policies; members of a population have one"
    if not config.evaluator.episodes:
        yield ("config",), "evaluator.episodes is 0: members are compared by evaluations"
    if config.stop.max_train_iters is not None or config.stop.max_wall_s is not None:
        yield ("config",), "a population ends by stop.max_env_steps or stop.stop_value: leave out the other bounds"


def setting_text(value: JsonValue) -> str:
    """Format a value for people."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def first_settings(pbt: Population, rng: np.random.Generator) -> list[Settings]:
    """Draw the settings of all members."""
    return [{key: _drawn(one, rng) for key, one in pbt.space.items()} for _ in range(pbt.population)]


def next_descents(
    pbt: Population, returns: Sequence[float | None], settings: Sequence[Settings], rng: np.random.Generator
) -> list[Descent]:
    """Choose the parents of all members by truncation selection, with the settings of the next interval.

    `returns` and `settings` are of the members in order; None is a failed member, which is always replaced. A member
    goes on unless its parent is better. At least one member must not have failed.
    """
    shuffled = map(int, rng.permutation(len(returns)))  # equal returns: nobody is always the worst
    ranked = sorted(shuffled, key=lambda member: -_rank(returns[member]))
    count = max(1, math.floor(len(ranked) * pbt.replaced + 1e-9))
    best = [member for member in ranked[:count] if returns[member] is not None]
    worst = {*ranked[-count:], *(member for member in ranked if returns[member] is None)}
    descents: list[Descent] = []
    for member, own in enumerate(settings):
        parent = best[rng.integers(len(best))]
        if member in worst and _rank(returns[parent]) > _rank(returns[member]):
            changed = {key: _changed(pbt, one, settings[parent][key], rng) for key, one in pbt.space.items()}
            descents.append(Descent(parent, changed))
        else:
            descents.append(Descent(member, own))
    return descents


def _rank(result: float | None) -> float:
    return -math.inf if result is None else result


def _changed(pbt: Population, given: Distribution, value: JsonValue, rng: np.random.Generator) -> JsonValue:
    if rng.random() < pbt.resample:
        return _drawn(given, rng)
    if given.values is not None:
        at = given.values.index(value) + (1 if rng.random() < 0.5 else -1)
        return given.values[min(max(at, 0), len(given.values) - 1)]
    assert isinstance(value, int | float)
    factor = pbt.factors[rng.integers(len(pbt.factors))]
    moved = _fitting(given, value * factor)
    if not math.isclose(moved, value) or factor == 1.0 or (given.step is None and not given.is_whole):
        return moved
    return _fitting(given, value + math.copysign(given.step or 1, factor - 1.0))  # too small a factor for a step


def _drawn(given: Distribution, rng: np.random.Generator) -> JsonValue:
    if given.values is not None:
        return given.values[rng.integers(len(given.values))]
    low, high = given.bounds
    if given.log:
        return _fitting(given, math.exp(rng.uniform(math.log(low), math.log(high))))
    if given.is_whole or given.step is not None:
        step = given.step or 1
        return _fitting(given, low + step * int(rng.integers(math.floor((high - low) / step + 1e-9) + 1)))
    return float(rng.uniform(low, high))


def _fitting(given: Distribution, number: float) -> int | float:
    """Return the nearest number of a range."""
    low, high = given.bounds
    step = given.step or (1 if given.is_whole else None)
    if step is not None:
        steps = min(max(round((number - low) / step), 0), math.floor((high - low) / step + 1e-9))
        number = low + step * steps
    number = min(max(number, low), high)
    return int(number) if given.is_whole else float(number)
