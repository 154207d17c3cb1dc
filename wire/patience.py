"""Time limits for a silent coordinator, and messages during the wait."""

from __future__ import annotations

from collections.abc import Callable

COORDINATOR_TIMEOUT_S = 3_600.0
"""Longer than a machine, or a person, takes to start a coordinator again."""
FIRST_WORD_S = 15.0
"""Silence before a worker logs the wait; the worker logs again after each doubling of the silence."""


class CoordinatorLostError(Exception):
    """The coordinator was silent for longer than the coordinator timeout."""


class Patience:
    """Decides about a silent coordinator. Reads no clock."""

    def __init__(self, limit_s: float = COORDINATOR_TIMEOUT_S, say: Callable[[str], None] = lambda text: None) -> None:
        """`say` prints a text for people, for instance on standard error; it must not raise."""
        self.limit_s = limit_s
        self._say = say
        self._next_word_s = FIRST_WORD_S
        self._noted = ""

    def note(self, text: str) -> None:
        """Print the reason of the silence, unless it was the last printed reason."""
        if text != self._noted:
            self._noted = text
            self._say(text)

    def silent(self, silence_s: float) -> None:
        """Note a silence of this length. Raises CoordinatorLostError beyond the limit."""
        if silence_s > self.limit_s:
            raise CoordinatorLostError(
                f"nothing was heard from the coordinator for {spoken(silence_s)} (the limit is "
                f"{spoken(self.limit_s)}): it has ended, or the network is interrupted"
            )
        if silence_s >= self._next_word_s:
            self._next_word_s = 2 * silence_s
            self._say(
                f"the coordinator has been silent for {spoken(silence_s)}; waiting for it, "
                f"at most {spoken(self.limit_s)}"
            )

    def heard(self, silence_s: float) -> None:
        """Note the end of a silence of this length."""
        if self._next_word_s > FIRST_WORD_S:
            self._next_word_s = FIRST_WORD_S
            self._say(f"the coordinator is back after {spoken(silence_s)}")


def spoken(seconds: float) -> str:
    """A duration for people: `45 s`, `5 min`, `2.5 h`."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"
