"""A config checked as it is typed: every problem with its line and its setting. Runs no code that it names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from remuda.config.errors import ConfigError
from remuda.config.load import LoadedConfig, load_text

NAME = "config.yaml"
_PLACE = re.compile(rf"{re.escape(NAME)}(?::(\d+))?: (.*)", re.DOTALL)
_KEY = re.compile(r"([A-Za-z_][\w.\[\]-]*): ")


class Problem(Struct, frozen=True):
    """One problem of a config."""

    line: int | None
    key: str | None
    """The dotted name of the setting that it is about."""
    message: str


class Checked(Struct, frozen=True):
    """Whether a config can be submitted."""

    valid: bool
    name: str | None
    problems: list[Problem]


class ConfigProblemsError(Exception):
    """The config has problems."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("the config has problems")
        self.problems = list(problems)


def checked(text: str, sets: Sequence[str], folder: Path) -> Checked:
    """Check a config as YAML, with settings that beat it; relative paths begin in `folder`."""
    try:
        loaded = valid(text, sets, folder)
    except ConfigProblemsError as error:
        return Checked(False, None, error.problems)
    return Checked(True, loaded.config.name, [])


def valid(text: str, sets: Sequence[str], folder: Path) -> LoadedConfig:
    """The config. Raises ConfigProblemsError."""
    try:
        loaded = load_text(text, folder=folder, overrides=sets, name=NAME, import_algorithm=False)
        loaded.require_numbers("the workers may be on other machines")
        return loaded
    except ConfigError as error:
        raise ConfigProblemsError([problem(each) for each in error.problems]) from error


def problem(text: str) -> Problem:
    """The parts of a line of a ConfigError."""
    place = _PLACE.fullmatch(text)
    if place is None:
        return Problem(None, None, text)
    key = _KEY.match(place[2])
    return Problem(None if place[1] is None else int(place[1]), None if key is None else key[1], place[2])
