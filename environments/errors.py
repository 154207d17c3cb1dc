"""Errors and time limit of building environments, faults in a vector, and limits of replacing environments."""

from __future__ import annotations

import faulthandler
import math
import os
import re
import sys
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar, cast

import msgspec
import numpy as np

from remuda.config.environment import EnvConfig
from remuda.config.errors import Error, shortened
from remuda.config.plain import masked

_EXTRAS = {"box2d": "box2d", "mujoco": "mujoco", "classic-control": "video", "atari": "atari"}
"""Extras of gymnasium in messages about missing packages, and Remuda's extras with the same packages."""
_NAMED_EXTRA = re.compile(r"gymnasium\[([a-z0-9-]+)\]")
LARGEST_REWARD = 1e30
"""Learners use float32, up to 3.4e38, and sums of rewards."""
LARGEST_OBSERVATION = 1e38
"""For float64: float32 ends there, and squares must be finite in float64."""
MOST_IN_A_ROW = 3
"""Faults in a row, without a good step, after which an environment is not replaced again."""
HOUR_S = 3600.0
MOST_SHOWN = 60
"""Characters of a result in an error."""

_Result = TypeVar("_Result")
_LOOK_S = 0.25
"""Time between two looks at the building of an environment."""
_KINDS_SHOWN = 3
_MOST_ACTION = 200
_MOST_TRACEBACK = 20_000


class EnvironmentBuildError(Error, ValueError):
    """The environment of a config cannot be built; the message says what to change."""


def unbuildable(env: EnvConfig, error: Exception) -> EnvironmentBuildError:
    """Return the error for an environment whose constructor or function raised `error`."""
    from gymnasium.error import DependencyNotInstalled  # a coordinator does without gymnasium

    asked = f"env.id = {env.id!r}" if env.id is not None else f"env.make = {env.make!r}"
    if isinstance(error, DependencyNotInstalled):
        extra = next((_EXTRAS[name] for name in _NAMED_EXTRA.findall(str(error)) if name in _EXTRAS), None)
        if extra is not None:
            return EnvironmentBuildError(f"{asked} needs packages that are missing: pip install 'remuda[{extra}]'")
    return EnvironmentBuildError(
        f"{asked} with env.kwargs = {masked(env.kwargs)} cannot be built: {type(error).__name__}: {error}"
    )


@contextmanager
def ending_hangs(env: EnvConfig) -> Generator[None]:
    """Context that builds an environment. After `env.build_timeout_s` the stacks of all threads are printed, and the
    process ends: nothing can interrupt a constructor that hangs in the main thread. A notebook or an interactive Python
    goes on, since its user would lose all variables."""
    if env.build_timeout_s is None:
        yield
        return
    built = threading.Event()
    watch = threading.Thread(target=_end_unless, args=(built, env), name="remuda-building", daemon=True)
    watch.start()
    try:
        yield
    finally:
        built.set()
        watch.join()


def _end_unless(built: threading.Event, env: EnvConfig) -> None:
    waited_s, limit_s = 0.0, env.build_timeout_s or math.inf
    while not built.wait(_LOOK_S):
        waited_s += _LOOK_S
        if waited_s >= limit_s:
            text = f"{env.id or env.make} could not be built: it hung for {waited_s:g} s (env.build_timeout_s); stacks:"
            with suppress(Exception):  # of a closed standard error
                print(text, file=sys.stderr, flush=True)
                faulthandler.dump_traceback(sys.__stderr__ or 2, all_threads=True)
            if hasattr(sys, "ps1"):
                return
            os._exit(1)


class UnsupportedSpaceError(Error, ValueError):
    """An environment's observations or actions cannot be stored, or no algorithm supports them. The message names the
    space and the supported spaces."""


class Fault(msgspec.Struct, frozen=True):
    """One failure of an environment."""

    env_index: int
    """Index in the vector, or in the evaluator."""
    env: str
    """env.id, or env.make."""
    seed: int | None
    """Seed of the last seeded reset; None without any."""
    where: str
    """Place of the failure, like `in step 7 of episode 2`; episodes count from the seeded reset."""
    action: str
    """The action of the step; empty at a reset."""
    problem: str
    """Problem, like `it returned the reward nan`."""
    fresh_seed: int | None
    """Seed of the replacement."""
    traceback: str = ""
    """Traceback of an error; empty otherwise."""

    def text(self) -> str:
        """Return the fault for people, in one line."""
        after = f", after action {self.action}" if self.action else ""
        who = f"environment {self.env_index} ({self.env}, seed {self.seed})"
        return f"{who} broke {self.where}{after}: {self.problem}"


class UnusableResultError(ValueError):
    """Unusable result of an environment."""


def checked_flag(flag: Any, name: str) -> bool:
    """Return the flag `name`, an end of an episode. Raises UnusableResultError unless it is true or false, as a bool or
    a number."""
    try:
        if flag == 0 or flag == 1:
            return bool(flag)
    except (TypeError, ValueError):  # of an array of several
        pass
    shown = shortened(repr(flag), MOST_SHOWN)
    raise UnusableResultError(f"it returned {name} = {shown}, which is neither True nor False")


def by_agent(check: Callable[[Any], _Result], values: Mapping[str, Any]) -> dict[str, _Result]:
    """Return the checked values. Raises UnusableResultError with the name of the agent."""
    found: dict[str, _Result] = {}
    agent = ""
    try:
        for agent, value in values.items():
            found[agent] = check(value)
    except UnusableResultError as error:
        raise UnusableResultError(f"{error} (agent {agent})") from None
    return found


_ENDS = (partial(checked_flag, name="terminated"), partial(checked_flag, name="truncated"))
"""Checks of the two ends of an agent's episode."""


def checked_ends(
    terminations: Mapping[str, Any], truncations: Mapping[str, Any]
) -> tuple[dict[str, bool], dict[str, bool]]:
    """Return the two ends of several agents' episodes. Raises UnusableResultError unless each is true or false."""
    return by_agent(_ENDS[0], terminations), by_agent(_ENDS[1], truncations)


class BrokenEnvironmentError(RuntimeError):
    """Failure of an environment without a replacement; the message has the problem and the reached limit."""


class RestartLimit:
    """Allows `per_hour` replacements within any hour, and reports each."""

    def __init__(
        self, per_hour: int, broke: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`broke` is called with a text for the log; `clock` returns seconds."""
        self._per_hour = per_hour
        self._broke = broke
        self._clock = clock
        self._restarts = deque[tuple[float, str]]()
        """Time and problem of each replacement."""

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
        """Return the reason against a replacement: the replacements of this hour, by kind of problem."""
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
    """Return the problem without its numbers, as its kind."""
    return re.sub(r"\d+", "#", problem)


def problem_of(error: Exception) -> tuple[str, str]:
    """Return the message of an error about an environment, and the traceback; empty for unusable results."""
    if isinstance(error, UnusableResultError):
        return _plain(str(error)), ""
    told = "".join(traceback.format_exception(error))[-_MOST_TRACEBACK:].rstrip()
    return _plain(f"{type(error).__name__}: {error}"), _plain(told)


def shown_action(action: object) -> str:
    """Return an action for people; empty for None."""
    if action is None:
        return ""
    actions = cast("list[object]", action) if isinstance(action, list) else None
    listed = np.asarray(action).tolist() if actions is None else [np.asarray(one).tolist() for one in actions]
    return shortened(str(listed), _MOST_ACTION)


def _plain(text: str) -> str:
    """Return the text without characters that messages cannot encode."""
    return text.encode(errors="replace").decode()
