"""Names of the variants of a grid, and so of their folders: `cartpole_lea-lea0-001_pol-due`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import JsonValue

_PART_LETTERS = 3
_UNFIT = re.compile(r"[^-_A-Za-z0-9]")


def default_shorthand(key: str) -> str:
    """The first three characters of each part of a dotted key, without those that are neither letter nor digit:
    `learner.learning_rate` is lea-lea, `policy.n_step` is pol-ns."""
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
    """The grid's name and `_<shorthand><value>` for each pair; true is the shorthand alone, and false is left out."""
    name = grid
    for shorthand, value in named:
        if isinstance(value, bool):
            name += f"_{shorthand}" if value else ""
        else:
            name += f"_{shorthand}{value_text(value)}"
    return name


def run_name(variant: str, seed: int) -> str:
    """A variant with its seed."""
    return f"{variant}_s{seed}"
