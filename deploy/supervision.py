"""Decides about restarts of dead processes."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 32.0
STABLE_AFTER_S = 60.0
"""Age in seconds of a process whose end resets the count of short runs. The next process starts at once: the cause is
no failure at the start."""
DEATHS_IN_A_ROW = 8
"""Number of short runs in a row after which a worker keeps dying."""

EXIT_DONE = 0
"""Exit code of a worker that was dismissed or received SIGTERM: no restart."""
EXIT_FAILED = 1
EXIT_REFUSED = 3
"""Exit code of a worker refused by the coordinator (another protocol version): a restart changes nothing."""
EXIT_ORPHANED = 4
"""Exit code after a silence of the coordinator beyond the coordinator timeout."""

_FINAL = {EXIT_DONE: "left", EXIT_REFUSED: "was refused", EXIT_ORPHANED: "lost its coordinator"}


@dataclass
class SupervisedWorker:
    """A supervised worker: the UUID stays, and each process has its own incarnation.

    The worker is restarted after any number of deaths: the cause may be one run, and the next run may be fine.
    """

    role: str
    uuid: str
    incarnation: int = 0
    early_deaths: int = 0
    """Number of successive processes that ended within STABLE_AFTER_S."""
    started_s: float = 0.0
    due_s: float | None = 0.0
    """Time of the next start; None for a running or given-up process."""
    given_up: str | None = None
    """Reason against a restart, as the end of a sentence; None for a supervised worker."""
    exit_code: int = EXIT_DONE
    """Exit code of the newest ended process."""
    how: str = ""
    """End of this process, for people."""

    @property
    def keeps_dying(self) -> bool:
        """True if the newest processes all ended soon after their start."""
        return self.early_deaths >= DEATHS_IN_A_ROW

    @property
    def former_exit(self) -> str:
        """End of the newest process, for people; empty before the first end."""
        return self.how if self.incarnation > 1 else ""

    def started(self, now_s: float) -> int:
        """Note a new process; return the incarnation."""
        self.incarnation += 1
        self.started_s = now_s
        self.due_s = None
        return self.incarnation

    def ended(self, exit_code: int, now_s: float, how: str = "") -> str:
        """Note the end of the process, decide about a restart, and return the decision as text. `how` describes the end
        better than the exit code, if known."""
        self.exit_code, self.how = exit_code, how or describe_exit(exit_code)
        if exit_code in _FINAL:
            self.given_up = _FINAL[exit_code]
            return f"is not started again: it {self.given_up}"
        if now_s - self.started_s >= STABLE_AFTER_S:
            self.early_deaths, self.due_s = 0, now_s
            return f"ended with {self.how}; starting it again at once"
        self.early_deaths += 1
        pause_s = min(FIRST_DELAY_S * 2 ** min(self.early_deaths - 1, DEATHS_IN_A_ROW), LONGEST_DELAY_S)
        self.due_s = now_s + pause_s
        often = f" ({self.early_deaths} short runs in a row)" if self.keeps_dying else ""
        return f"ended with {self.how}{often}; starting it again in {pause_s:g} s"


def a_role_keeps_dying(workers: Sequence[SupervisedWorker]) -> bool:
    """True if every worker of some role keeps dying."""
    roles = {worker.role for worker in workers}
    return any(all(worker.keeps_dying for worker in workers if worker.role == role) for role in roles)


def worst_exit_code(workers: Iterable[SupervisedWorker]) -> int:
    """Return the highest exit code of the given-up workers."""
    return max((worker.exit_code for worker in workers if worker.given_up), default=EXIT_DONE)


class KeptProcess:
    """A process restarted after a death by a signal. A process that exits by itself would only exit again."""

    def __init__(self, name: str) -> None:
        """`name`: for people."""
        self._life = SupervisedWorker(name, "")

    def started(self, now_s: float) -> None:
        self._life.started(now_s)

    def after(self, exit_code: int, now_s: float, say: Callable[[str], None]) -> Literal["start", "wait", "give up"]:
        """Decide after the process has ended; call again until the process is started. `say` receives each end once."""
        if exit_code >= 0:
            return "give up"
        if self._life.due_s is None:
            say(f"the {self._life.role} {self._life.ended(exit_code, now_s)}")
        if self._life.keeps_dying:
            return "give up"
        return "start" if self._life.due_s is not None and now_s >= self._life.due_s else "wait"


def describe_exit(exit_code: int) -> str:
    """Return `exit code 1`, or `signal 9 (SIGKILL)` for a killed process (negative code)."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"signal {-exit_code} ({signal.Signals(-exit_code).name})"
    except ValueError:
        return f"signal {-exit_code}"
