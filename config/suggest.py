"""Which setting a user meant."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache

from remuda.config.document import Loc, dotted
from remuda.config.schema import ExperimentConfig, Section

_OTHER_NAMES = {
    "lr": "learner.learning_rate",
    "gamma": "policy.discount",
    "replay_size": "buffer.capacity",
    "env_id": "env.id",
    "algorithm": "policy.type",
    "n_steps": "policy.n_step",
    "max_steps": "stop.max_env_steps",
}
"""What other libraries call it."""


def section_at(loc: Loc) -> type[Section] | None:
    """The section of the schema at `loc`; None where `loc` is a value or nothing."""
    section: type[Section] = ExperimentConfig
    for part in loc:
        field = section.model_fields.get(str(part))
        inner = field.annotation if field else None
        if not (isinstance(inner, type) and issubclass(inner, Section)):
            return None
        section = inner
    return section


@cache
def all_keys() -> dict[str, Loc]:
    """Every setting that is a value, dotted, in the schema's order."""
    return {dotted(loc): loc for loc in _leaves(())}


def _leaves(loc: Loc) -> list[Loc]:
    section = section_at(loc)
    if section is None:
        return [loc]
    return [leaf for name in section.model_fields for leaf in _leaves((*loc, name))]


def nearest_setting(loc: Loc) -> str:
    """A hint for the unknown key `loc`: the setting it resembles, or all that are valid beside it."""
    section = section_at(loc[:-1])
    if section is None:
        return ""
    name = str(loc[-1])
    nearest = _OTHER_NAMES.get(name) or _nearest_beside(name, loc[:-1], section) or _nearest_elsewhere(name)
    if nearest:
        return f"did you mean {nearest}?"
    return f"valid here: {', '.join(section.model_fields)}"


def _nearest_beside(name: str, parent: Loc, section: type[Section]) -> str | None:
    close = get_close_matches(name[:100].lower(), section.model_fields, n=1)
    return dotted((*parent, close[0])) if close else None


def _nearest_elsewhere(name: str) -> str | None:
    by_name = {str(loc[-1]): key for key, loc in reversed(all_keys().items())}
    close = get_close_matches(name[:100].lower(), by_name, n=1, cutoff=0.8)
    return by_name[close[0]] if close else None
