"""The parameters of a request: each is checked where it is taken."""

from __future__ import annotations

import math
from collections.abc import Sequence

LONGEST_TEXT = 2_000


class InvalidError(Exception):
    """A parameter or a body is malformed; the text names it."""


class Query:
    """Pairs of names and texts, as in an address behind the question mark."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self._pairs = pairs

    def texts(self, name: str, *, most: int) -> list[str]:
        """All texts of this name. Raises InvalidError for more than `most`."""
        found = [text for key, text in self._pairs if key == name]
        if len(found) > most:
            raise InvalidError(f"{name}: given {len(found)} times, at most {most} are allowed")
        for text in found:
            if len(text) > LONGEST_TEXT:
                raise InvalidError(f"{name}: longer than {LONGEST_TEXT} characters")
        return found

    def some(self, name: str, *, most: int) -> list[str]:
        """Returns the texts of this name, each once. Raises InvalidError for none, and for more than `most`."""
        found = list(dict.fromkeys(self.texts(name, most=most)))
        if not found:
            raise InvalidError(f"{name}: missing")
        return found

    def optional(self, name: str) -> str | None:
        """The text of this name, if there is one. Raises InvalidError for several."""
        found = self.texts(name, most=1)
        return found[0] if found else None

    def text(self, name: str) -> str:
        """The text of this name. Raises InvalidError if there is none, or an empty one."""
        found = self.optional(name)
        if not found:
            raise InvalidError(f"{name}: missing")
        return found

    def whole(self, name: str, default: int, *, least: int, most: int) -> int:
        """A whole number. Raises InvalidError."""
        found = self.optional(name)
        if found is None:
            return default
        if not (found.isascii() and found.isdecimal() and len(found) <= 20 and least <= int(found) <= most):
            raise InvalidError(f"{name}={found[:40]}: a whole number from {least} to {most}")
        return int(found)

    def offset(self, name: str) -> int | None:
        """A place in a file, if there is one. Raises InvalidError."""
        return None if self.optional(name) is None else self.whole(name, 0, least=0, most=2**62)

    def seconds(self, name: str, default: float) -> float:
        """A number of seconds, 0 or more. Raises InvalidError."""
        found = self.optional(name)
        if found is None:
            return default
        try:
            value = float(found)
        except ValueError:
            value = math.nan
        if not value >= 0:
            raise InvalidError(f"{name}={found[:40]}: a number of seconds, 0 or more")
        return value

    def flag(self, name: str) -> bool:
        """True for 1, false for 0 or nothing. Raises InvalidError."""
        found = self.optional(name)
        if found not in (None, "0", "1"):
            raise InvalidError(f"{name}={found[:40] if found else ''}: 0 or 1")
        return found == "1"
