"""What has broken one environment so far: each fault is named, and too many of them end its worker."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from remuda.config.errors import NoExit
from remuda.environments.faults import (
    MOST_IN_A_ROW,
    BrokenEnvironmentError,
    Fault,
    problem_of,
    shown_action,
    traceback_of,
)
from remuda.environments.seeding import replacement_seed

_Begun = TypeVar("_Begun")


class Breakages:
    """Knows where an environment is, and says of each fault whether it may be made again."""

    def __init__(self, *, index: int, name: str, broke: Callable[[Fault], None]) -> None:
        """See ReplaceableEnv."""
        self._index, self._name, self._broke = index, name, broke
        self._seed: int | None = None
        self._episode = self._step = self._in_a_row = 0

    def reset(self, seed: int | None) -> None:
        """Its next episode is about to begin."""
        if seed is not None:
            self._seed, self._episode = seed, 0
        self._episode, self._step = self._episode + 1, 0

    def step(self) -> None:
        """It is about to take a step."""
        self._step += 1

    def good_step(self) -> None:
        """The step was a good one."""
        self._in_a_row = 0

    def broke(self, error: Exception, action: object) -> int | None:
        """It has broken; `action` is None at a reset. Returns the seed of the one to make in its place, None if this
        one had none. Raises BrokenEnvironmentError where it is not to be made again."""
        where = f"in step {self._step} of episode {self._episode}" if self._step else f"at reset {self._episode}"
        fault = Fault(
            env_index=self._index,
            env=self._name,
            seed=self._seed,
            where=where,
            action=shown_action(action),
            problem=problem_of(error),
            fresh_seed=None if self._seed is None else replacement_seed(self._seed),
            traceback=traceback_of(error),
        )
        self._in_a_row += 1
        if self._in_a_row >= MOST_IN_A_ROW:
            raise BrokenEnvironmentError(
                f"{fault.text()}; it is not made again: {MOST_IN_A_ROW} times in a row it broke without a good step"
            ) from error
        self._broke(fault)
        self._seed, self._episode, self._step = fault.fresh_seed, 0, 0
        return fault.fresh_seed

    def begin_again(
        self, error: Exception, action: object, *, close: Callable[[], None], begin: Callable[[int | None], _Begun]
    ) -> _Begun:
        """It has broken, see `broke`: close it, and return what `begin` does, which makes another and resets it with
        this seed; and so on where that breaks, too."""
        while True:
            seed = self.broke(error, action)
            self._close(close)
            try:
                return begin(seed)
            except MemoryError:
                raise  # the process is not to be trusted any more
            except Exception as again:  # anything that the new one raises
                error, action = again, None

    def _close(self, close: Callable[[], None]) -> None:
        """Close what has broken, which may not be able to end either."""
        try:
            with NoExit():
                close()
        except Exception as error:
            text = f"environment {self._index} ({self._name}): closing it raised {type(error).__name__}: {error}"
            print(text, file=sys.stderr, flush=True)
