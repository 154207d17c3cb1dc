"""What a user is told about a config that cannot be used."""

from __future__ import annotations

from collections.abc import Sequence

_LONGEST_PROBLEM = 500


class Error(Exception):
    """Base of every error that Remuda's Python interface raises on purpose: `except remuda.Error` catches them all."""


class ConfigError(Error):
    """The config is wrong. Its text has a line per problem: where, which key, what is wrong, the nearest valid key."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(_one_line(problem) for problem in problems)
        super().__init__("\n".join(self.problems))


def _one_line(problem: str) -> str:
    """Fit for a terminal: a config may hold control characters and endless words."""
    shown = shortened(problem, _LONGEST_PROBLEM)
    return "".join(character if character.isprintable() else "�" for character in shown)


def shortened(text: str, longest: int) -> str:
    """`text` in at most `longest` characters."""
    return text if len(text) <= longest else text[: longest - 1] + "…"
