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


CALM_S = 60.0
"""A file that fails again within this time after it worked is still in the same outage: on a disk with hardly any room
short records find some and long ones do not."""


@dataclass
class _Outage:
    error: str
    for_good: bool = False
    missing: int = 0
    """Records, since this was reported last."""
    attempts: int = 0
    next_try_s: float = 0.0
    works_since_s: float | None = None
    again: bool = False
    """It has failed again after it was reported to work."""


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
        if outage is not None and self._is_passed_over(outage, at_once):
            outage.missing += 1
            return None
        try:
            action()
        except OSError as error:
            return self._failed(file, outage, error)
        except Exception as error:
            self._outages[id(file)] = _Outage(str(error), for_good=True)
            return News(f"{file.path} is given up, and the run goes on: {error}", works=False)
        return None if outage is None else self._worked(file, outage)

    def _is_passed_over(self, outage: _Outage, at_once: bool) -> bool:
        if outage.works_since_s is not None:
            return False
        return outage.for_good or (self._clock() < outage.next_try_s and not at_once)

    def _failed(self, file: Written, known: _Outage | None, error: OSError) -> News | None:
        outage = None if known is None or self._is_calm(known) else known
        if outage is None:
            outage = self._outages[id(file)] = _Outage(str(error))
            text = f"{file.path} cannot be written, which is tried again, and the run goes on: {error}"
            news = News(text, works=False)
        else:
            news = None
            outage.again = outage.again or outage.works_since_s is not None
        outage.error, outage.works_since_s = str(error), None
        outage.next_try_s = self._clock() + RETRY_S[min(outage.attempts, len(RETRY_S) - 1)]
        outage.attempts += 1
        outage.missing += 1
        return news

    def _worked(self, file: Written, outage: _Outage) -> News | None:
        """Report that the file works: at once for the first time, and later if it has worked for a while."""
        begins = outage.works_since_s is None
        if outage.works_since_s is None:
            outage.works_since_s = self._clock()
        calm = self._is_calm(outage)
        if calm:
            del self._outages[id(file)]
        if not (calm if outage.again else begins):
            return None
        text = f"{file.path} is written again; {outage.missing} records before this are missing: {outage.error}"
        outage.missing = 0
        return News(text, works=True)

    def _is_calm(self, outage: _Outage) -> bool:
        return outage.works_since_s is not None and self._clock() - outage.works_since_s >= CALM_S

    def end(self, file: Written) -> str | None:
        """Note that nothing more is written; returns a text about missing records at its end."""
        outage = self._outages.pop(id(file), None)
        if outage is None or outage.for_good or not outage.missing:
            return None
        lacks = "lacks its last" if outage.works_since_s is None else "lacks"
        return f"{file.path} {lacks} {outage.missing} records: {outage.error}"
