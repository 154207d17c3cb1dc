"""Settings of runs whose environment has several agents: names, self-play, and what a policy's section leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, cast

from pydantic import AfterValidator, Field, JsonValue

from remuda.config.algorithms.policy import PolicyConfig
from remuda.config.algorithms.registry import DEFAULT
from remuda.config.bounds import MOST_OPPONENTS
from remuda.config.learning import BufferConfig, LearnerConfig
from remuda.config.numbers import Fraction, Positive
from remuda.config.section import Section

TAKEN_NAMES = frozenset({"buffer", "collector", "commander", "evaluator", "learner", "serial"})
"""Folders of logs, beside which policies have theirs."""


def _not_taken(name: str) -> str:
    if name in TAKEN_NAMES:
        raise ValueError(f"{name} is the name of a folder of logs: choose another name for the policy")
    return name


PolicyName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,49}$"), AfterValidator(_not_taken)]
"""Names folders, and tables of the journal: neither tells capital letters from small ones everywhere."""
AgentPattern = Annotated[str, Field(min_length=1, max_length=200)]
MOST_POLICIES = 100
SECTIONS = ("policy", "learner", "buffer")
"""What each of several policies has of its own."""


class SelfPlayConfig(Section):
    """Games against older checkpoints, in environments with several agents: a policy then learns to play against more
    than its newest self."""

    share: Fraction = 0.0
    """Share of training episodes in which one agent, drawn at random, is played by the newest policy and learns, and
    all others are played by older checkpoints of their policies and do not learn. Above 0 the newest checkpoint that
    was evaluated counts as the best, since returns then say little about strength; and evaluations also report how an
    agent of each policy does against older checkpoints (`against_past`)."""
    keep: Annotated[Positive, Field(le=MOST_OPPONENTS)] = 5
    """The number of newest checkpoints of each policy from which opponents are drawn, one for each policy and episode.
    At most `checkpoint.keep`."""


def with_sections_above(value: object) -> object:
    """Fill the sections of each of several policies up from those of the whole config, so that they need to name only
    what differs. A policy of another `type` takes nothing from there. What is not a mapping is left as it is, for the
    validation to refuse."""
    if not isinstance(value, Mapping):
        return value
    values = dict(cast("Mapping[str, object]", value))
    policies = values.get("policies")
    if isinstance(policies, Mapping):
        named = cast("Mapping[object, object]", policies)
        values["policies"] = {name: _filled(one, values) for name, one in named.items()}
    return values


def without_repeated(values: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The other way round, for all settings of a config: each of several policies names only what differs from the
    sections of the whole config, so that a change there reaches it. A policy of another `type` is named whole."""
    policies = values.get("policies")
    if not isinstance(policies, dict):
        return dict(values)
    named: dict[str, JsonValue] = {name: _differing(one, values) for name, one in policies.items()}
    return {**values, "policies": named}


def _differing(one: JsonValue, above: Mapping[str, JsonValue]) -> JsonValue:
    if not isinstance(one, dict):
        return one
    own = dict(one)
    for section in SECTIONS:
        outer, inner = above.get(section), own.get(section)
        if not isinstance(outer, dict) or not isinstance(inner, dict):
            continue
        if section == "policy" and inner.get("type") != outer.get("type"):
            continue
        own[section] = {name: value for name, value in inner.items() if name not in outer or outer[name] != value}
        if not own[section]:
            del own[section]
    return own


def _filled(one: object, above: Mapping[str, object]) -> object:
    if not isinstance(one, Mapping):
        return one
    own = dict(cast("Mapping[str, object]", one))
    for section in SECTIONS:
        outer, inner = _plain(above.get(section, {})), _plain(own.get(section, {}))
        if isinstance(outer, dict) and isinstance(inner, dict):
            inner = _merged(section, cast("dict[str, object]", outer), cast("dict[str, object]", inner))
        own[section] = inner
    return own


def _merged(section: str, outer: dict[str, object], inner: dict[str, object]) -> dict[str, object]:
    if section != "policy":
        return {**outer, **inner}
    kind = outer.get("type", DEFAULT.type)
    return {"type": kind, **outer, **inner} if inner.get("type", kind) == kind else inner


def _plain(value: object) -> object:
    return value.model_dump(mode="json") if isinstance(value, Section) else value


class AgentsPolicyConfig(Section):
    """One of several policies: whose actions it makes, and how it learns. Its sections `policy`, `learner` and `buffer`
    need to name only what differs from those of the whole config; a `policy` of another `type` takes nothing from
    there."""

    agents: Annotated[tuple[AgentPattern, ...], Field(min_length=1, max_length=1_000)]
    """Names of the agents whose actions it makes; `*` and `?` stand for characters, as in names of files:
    `[adversary_*]`. Each agent of the environment belongs to exactly one policy."""
    policy: PolicyConfig
    """Its algorithm and its networks."""
    learner: LearnerConfig
    """Its updates."""
    buffer: BufferConfig
    """Its replay."""
