"""Files that cannot be written for a while: tried again after pauses, and reported at the beginning and at the end.

Records in the meantime are counted and left out: a log must never delay a run. After an error that waiting does not
repair (a service that has failed, a table that cannot have a column) the file is not written any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

RETRY_S = (1.0, 2.0, 5.0, 10.0)
"""Pauses before a file is tried again; the last one repeats."""


class Written(Protocol):
    """Something that is written piece by piece."""

    @property
    def path(self) -> Path:
        """Where."""
        ...


@dataclass
class _Outage:
    error: str
    for_good: bool
    missing: int = 0
    attempts: int = 0
    next_try_s: float = 0.0


@dataclass(frozen=True)
class News:
    """A change in the state of a file, for people."""

    text: str
    works: bool
    """It is written again."""


class Outages:
    """Tries to write, and remembers which files cannot be written now."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: seconds."""
        self._clock = clock
        self._outages: dict[int, _Outage] = {}

    def attempt(self, file: Written, action: Callable[[], None], *, at_once: bool = False) -> News | None:
        """Write a piece, unless the file failed and it is too early to try again; `at_once`: try in any case.

        Returns what people should know: that it can no longer be written, or that it is again."""
        outage = self._outages.get(id(file))
        if outage is not None and (outage.for_good or (self._clock() < outage.next_try_s and not at_once)):
            outage.missing += 1
            return None
        try:
            action()
        except OSError as error:
            self._wait(outage or self._begin(file, error), error)
            text = f"{file.path} cannot be written, which is tried again, and the run goes on: {error}"
            return News(text, works=False) if outage is None else None
        except Exception as error:
            self._begin(file, error).for_good = True
            return News(f"{file.path} is given up, and the run goes on: {error}", works=False)
        if outage is None:
            return None
        del self._outages[id(file)]
        text = f"{file.path} is written again; {outage.missing} records before this are missing: {outage.error}"
        return News(text, works=True)

    def end(self, file: Written) -> str | None:
        """Note that nothing more is written; returns a text about missing records at its end."""
        outage = self._outages.get(id(file))
        if outage is None or outage.for_good:
            return None
        del self._outages[id(file)]
        return f"{file.path} lacks its last {outage.missing} records: {outage.error}"

    def _begin(self, file: Written, error: Exception) -> _Outage:
        return self._outages.setdefault(id(file), _Outage(str(error), for_good=False))

    def _wait(self, outage: _Outage, error: OSError) -> None:
        outage.error = str(error)
        outage.next_try_s = self._clock() + RETRY_S[min(outage.attempts, len(RETRY_S) - 1)]
        outage.attempts += 1
        outage.missing += 1
