"""What an environment of a vector did wrong, and how often one may be made again before its worker fails."""

from __future__ import annotations

import re
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable
from typing import TypeVar

import msgspec
import numpy as np

from remuda.config.errors import NoExit
from remuda.environments.seeding import replacement_seed

REPLACED = "environment_replaced"
"""Key of a step's info, bool: the environment broke, and another was made in its place. What the step gives is the
first observation of a new episode, with reward 0: it is a reset, and what broke is not in it."""
LARGEST_REWARD = 1e30
"""Rewards are learned from as float32, which ends at 3.4e38, and in sums."""
LARGEST_OBSERVATION = 1e38
"""Of those that are float64: float32 ends there, and their squares must be finite in float64."""
MOST_IN_A_ROW = 3
"""Faults of one environment without a good step in between, after which it is not made again: it would break again."""
HOUR_S = 3600.0

_KINDS_SHOWN = 3
_MOST_ACTION = 200
_MOST_TRACEBACK = 20_000

_Begun = TypeVar("_Begun")


class Fault(msgspec.Struct, frozen=True):
    """One environment that broke."""

    env_index: int
    """In its vector, or among those of an evaluator."""
    env: str
    """env.id, or env.make."""
    seed: int | None
    """Of its last seeded reset; None if there was none."""
    where: str
    """Such as `in step 7 of episode 2`; episodes count from the seeded reset."""
    action: str
    """What it was given; empty if it was being reset."""
    problem: str
    """What was wrong: `it returned the reward nan`."""
    fresh_seed: int | None
    """Of the one that is made in its place."""
    traceback: str = ""
    """Of what it raised."""

    def text(self) -> str:
        """For people, in one line."""
        after = f", after action {self.action}" if self.action else ""
        who = f"environment {self.env_index} ({self.env}, seed {self.seed})"
        return f"{who} broke {self.where}{after}: {self.problem}"


class UnusableResultError(ValueError):
    """An environment returned what cannot be learned from."""


class BrokenEnvironmentError(RuntimeError):
    """An environment broke and is not made again; the message says what was wrong, and which limit is reached."""


class RestartLimit:
    """Lets environments be made again `per_hour` times within any hour, and tells of each."""

    def __init__(
        self, per_hour: int, broke: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`broke` is called with a text for the log; `clock` returns seconds."""
        self._per_hour = per_hour
        self._broke = broke
        self._clock = clock
        self._restarts = deque[tuple[float, str]]()
        """When, and the problem."""

    def __call__(self, fault: Fault) -> None:
        """Count a fault, before the environment is made again. Raises BrokenEnvironmentError beyond the limit."""
        now_s = self._clock()
        while self._restarts and self._restarts[0][0] <= now_s - HOUR_S:
            self._restarts.popleft()
        if len(self._restarts) >= self._per_hour:
            raise BrokenEnvironmentError(f"{fault.text()}; {self._used_up()}")
        self._restarts.append((now_s, fault.problem))
        count = f"restart {len(self._restarts)} of at most {self._per_hour} an hour"
        trace = f"\n{fault.traceback}" if fault.traceback else ""
        self._broke(f"{fault.text()}; it is made again with seed {fault.fresh_seed} ({count}){trace}")

    def _used_up(self) -> str:
        """Why no environment is made again: the restarts of this hour, by kind of problem."""
        if not self._per_hour:
            return "it is not made again: env.restarts_per_hour is 0"
        example: dict[str, str] = {}
        for _, problem in self._restarts:
            example.setdefault(_kind(problem), problem)
        counts = Counter(_kind(problem) for _, problem in self._restarts).most_common()
        shown = [f"{count} x {example[kind]}" for kind, count in counts[:_KINDS_SHOWN]]
        others = sum(count for _, count in counts[_KINDS_SHOWN:])
        if others:
            shown.append(f"{others} x other problems")
        restarts = f"all {self._per_hour} restarts within an hour (env.restarts_per_hour) are used up"
        return f"{restarts}: {', '.join(shown)}"


def _kind(problem: str) -> str:
    """The problem without its numbers, by which two of a kind differ."""
    return re.sub(r"\d+", "#", problem)


def problem_of(error: Exception) -> str:
    """What an error says of an environment."""
    return _plain(str(error) if isinstance(error, UnusableResultError) else f"{type(error).__name__}: {error}")


def traceback_of(error: Exception) -> str:
    """The traceback of what an environment raised; empty for what it returned."""
    if isinstance(error, UnusableResultError):
        return ""
    return _plain("".join(traceback.format_exception(error))[-_MOST_TRACEBACK:].rstrip())


def shown_action(action: object) -> str:
    """An action for people; empty for None."""
    if action is None:
        return ""
    text = str(np.asarray(action).tolist())
    return text if len(text) <= _MOST_ACTION else text[:_MOST_ACTION] + "…"


def _plain(text: str) -> str:
    """Without characters that no message can have."""
    return text.encode(errors="replace").decode()


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
