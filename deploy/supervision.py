"""When a worker that died is started again."""

from __future__ import annotations

import signal
from dataclasses import dataclass

FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 32.0
GOOD_LIFE_S = 60.0
"""A life this long wipes the record of failures before it, and the next one begins at once: whatever ended it, it is
nothing that ends every life at its beginning."""
LIVES_IN_A_ROW = 8
"""So many short lives in a row: the worker keeps dying."""

EXIT_DONE = 0
"""The worker was told to leave, or asked by its operating system: it is not started again."""
EXIT_FAILED = 1
EXIT_REFUSED = 3
"""The coordinator will not have it (another protocol): starting it again changes nothing."""
EXIT_ORPHANED = 4
"""Its coordinator has been silent for longer than it was to wait."""

_FINAL = {EXIT_DONE: "left", EXIT_REFUSED: "was refused", EXIT_ORPHANED: "lost its coordinator"}


@dataclass
class Slot:
    """One worker to be kept alive: a UUID for good, an incarnation per life.

    However often it dies it is started again: what it dies of may be the fault of one run, and the next one is sound.
    """

    role: str
    uuid: str
    incarnation: int = 0
    short_lives: int = 0
    """In a row, until now."""
    born_s: float = 0.0
    due_s: float | None = 0.0
    """When it shall be started next; None while it lives, or when it is not to be started again."""
    given_up: str | None = None
    """Why it is not started again, as the end of a sentence; None while it is kept alive."""
    exit_code: int = EXIT_DONE
    """Of the newest life that has ended."""

    @property
    def keeps_dying(self) -> bool:
        """Its newest lives were all short."""
        return self.short_lives >= LIVES_IN_A_ROW

    @property
    def former_exit(self) -> str:
        """How its newest life ended, for people; empty before there was one."""
        return describe_exit(self.exit_code) if self.incarnation > 1 else ""

    def born(self, now_s: float) -> int:
        """A new life begins; returns its incarnation."""
        self.incarnation += 1
        self.born_s = now_s
        self.due_s = None
        return self.incarnation

    def died(self, exit_code: int, now_s: float) -> str:
        """A life has ended; decides whether and when there is another, and returns that, for people."""
        self.exit_code = exit_code
        if exit_code in _FINAL:
            self.given_up = _FINAL[exit_code]
            return f"is not started again: it {self.given_up}"
        if now_s - self.born_s >= GOOD_LIFE_S:
            self.short_lives, self.due_s = 0, now_s
            return f"ended with {describe_exit(exit_code)}; starting it again at once"
        self.short_lives += 1
        pause_s = min(FIRST_DELAY_S * 2 ** min(self.short_lives - 1, LIVES_IN_A_ROW), LONGEST_DELAY_S)
        self.due_s = now_s + pause_s
        often = f" ({self.short_lives} short lives in a row)" if self.keeps_dying else ""
        return f"ended with {describe_exit(exit_code)}{often}; starting it again in {pause_s:g} s"


def describe_exit(exit_code: int) -> str:
    """`exit code 1`, or `signal 9 (SIGKILL)` for a process that was killed (negative code)."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"signal {-exit_code} ({signal.Signals(-exit_code).name})"
    except ValueError:
        return f"signal {-exit_code}"
