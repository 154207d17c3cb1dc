"""When a worker that died is started again, and when it is given up."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 32.0
GOOD_LIFE_S = 60.0
"""A life this long wipes the record of failures before it."""
LIVES_IN_A_ROW = 8
"""Short lives in a row after which a worker is given up."""

EXIT_DONE = 0
"""The worker was told to leave, or asked by its operating system: it is not started again."""
EXIT_FAILED = 1
EXIT_REFUSED = 3
"""The coordinator will not have it (another protocol): starting it again changes nothing."""
EXIT_ORPHANED = 4
"""Its coordinator has been silent for too long."""

_FINAL = {EXIT_DONE: "left", EXIT_REFUSED: "was refused", EXIT_ORPHANED: "lost its coordinator"}


@dataclass
class Slot:
    """One worker to be kept alive: a UUID for good, an incarnation per life."""

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
    def failed(self) -> bool:
        """It is given up because it keeps dying."""
        return self.short_lives >= LIVES_IN_A_ROW

    def born(self, now_s: float) -> int:
        """A new life begins; returns its incarnation."""
        self.incarnation += 1
        self.born_s = now_s
        self.due_s = None
        return self.incarnation

    def died(self, exit_code: int, now_s: float) -> None:
        """A life has ended; decides whether and when there is another."""
        self.exit_code = exit_code
        if exit_code in _FINAL:
            self.given_up = _FINAL[exit_code]
            return
        self.short_lives = 1 if now_s - self.born_s >= GOOD_LIFE_S else self.short_lives + 1
        if self.failed:
            self.given_up = f"died {self.short_lives} times in a row, the last time with {describe_exit(exit_code)}"
            return
        self.due_s = now_s + min(FIRST_DELAY_S * 2 ** (self.short_lives - 1), LONGEST_DELAY_S)


def describe_exit(exit_code: int) -> str:
    """`exit code 1`, or `signal 9` for a process that was killed (negative code)."""
    return f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
