"""Compares an environment's real results with its spaces."""

# gymnasium's spaces are generic without bounds, and observations may be anything.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from remuda.config.environment import EnvConfig
from remuda.config.errors import NoExit
from remuda.environments.make import known_spec, make_plain

FIRST = 100
"""Number of examined observations of each environment of a run; later observations cost nothing."""
REPEATED_STEPS = 50
"""Number of steps taken twice with the same seed."""
_SEED = 0
_OF_LIBRARIES = re.compile(r"(gymnasium\.envs|ale_py)\b")
"""Modules of environments that need no examination."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m|^(WARN|ERROR): ")

Env = gymnasium.Env[Any, Any]
Level = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True)
class Finding:
    """Result of an examination: one line about an environment."""

    level: Level
    text: str


class Looker:
    """Steps an environment with random actions and notes each kind of misfit once, by its first example."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self.wrong: dict[str, str] = {}
        """Text of each misfit, by kind."""
        self.steps = self.episodes = self.longest = 0
        self._begun = 0

    def look(self, steps: int) -> None:
        """Take `steps` steps. An error of the environment ends the examination and is noted."""
        self._env.action_space.seed(_SEED)
        try:
            mask = self._reset(seed=_SEED)
            for _ in range(steps):
                mask = self._step(mask)
        except Exception as error:  # whatever the environment raises
            where = f"in step {self.steps - self._begun + 1} of episode {self.episodes + 1}"
            self.wrong.setdefault("raises", f"it raised {type(error).__name__}: {error} {where}")

    def _reset(self, *, seed: int | None = None) -> object:
        observation, info = self._env.reset(seed=seed)
        self._begun = self.steps
        return self._seen(observation, info)

    def _step(self, mask: object) -> object:
        action = self._env.action_space.sample(mask) if mask is not None else self._env.action_space.sample()
        observation, reward, terminated, truncated, info = self._env.step(action)
        self.steps += 1
        if not np.isfinite(float(reward)):
            self.wrong.setdefault("reward", f"the reward is {reward}: rewards must be finite numbers")
        mask = self._seen(observation, info)
        if not (terminated or truncated):
            return mask
        self.episodes += 1
        self.longest = max(self.longest, self.steps - self._begun)
        return self._reset()

    def _seen(self, observation: object, info: Mapping[str, Any]) -> object:
        for kind, text in misfits(self._env.observation_space, observation, "the observation"):
            self.wrong.setdefault(kind, text)
        mask = info.get("action_mask")
        if mask is None or not isinstance(self._env.action_space, spaces.Discrete):
            return None
        if np.shape(mask) != (self._env.action_space.n,) or not np.any(mask):
            allowed = f"has shape {np.shape(mask)} and allows {np.sum(mask)} actions"
            self.wrong.setdefault("mask", f"info['action_mask'] {allowed}")
            return None
        return np.asarray(mask, np.int8)


class Remarks:
    """Reports misfits in the first observations of a run's environments, each kind once."""

    def __init__(self, name: str, say: Callable[[str], None]) -> None:
        """`name`: env.id or env.make; `say` receives a text for the log."""
        self._name, self._say = name, say
        self._said = set[str]()

    def look(self, space: spaces.Space[Any], observation: object) -> None:
        """Examine one observation. Results that cannot be examined are refused elsewhere."""
        with suppress(TypeError, ValueError):
            for kind, text in misfits(space, observation, "the observation"):
                if kind not in self._said:
                    self._said.add(kind)
                    self._say(f"{self._name}: {text}")


def misfits(space: spaces.Space[Any], value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Yield the contradictions between a value and its space: kind, and sentence with the remedy."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        yield from _of_parts(space, value, where)
    elif isinstance(space, spaces.Box):
        yield from _of_box(space, np.asarray(value), where)
    elif not space.contains(value) and not space.contains(np.asarray(value).astype(space.dtype).reshape(space.shape)):
        yield f"{where} outside", f"{where} is {value}, which is not in its space {space}"


def _of_parts(space: spaces.Dict | spaces.Tuple[Any], value: Any, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(space, spaces.Tuple):
        named = {str(index): part for index, part in enumerate(space.spaces)}
        given = {str(index): part for index, part in enumerate(value)}
    else:
        named, given = dict(space.spaces), dict(value)
    if named.keys() != given.keys():
        yield f"{where} parts", f"{where} has the parts {sorted(given)}, and its space {sorted(named)}"
        return
    for name, part in named.items():
        yield from misfits(part, given[name], f"{where}[{name!r}]")


def _of_box(space: spaces.Box, array: np.ndarray, where: str) -> Iterator[tuple[str, str]]:
    if array.shape != space.shape:
        yield f"{where} shape", f"{where} has shape {array.shape}, and its Box {space.shape}"
        return
    if array.dtype != space.dtype:
        way_out = f"return it as np.{space.dtype}, or make the Box one of {array.dtype}"
        yield f"{where} dtype", f"{where} is {array.dtype}, and its Box is {space.dtype}: {way_out}"
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        yield f"{where} finite", f"{where} has entries that are not finite: {_at(array, ~np.isfinite(array))}"
        return
    for bound, outside, word in ((space.low, array < space.low, "below"), (space.high, array > space.high, "above")):
        if outside.any():
            at = tuple(int(index) for index in np.argwhere(outside)[0])
            text = f"{where}{list(at)} is {array[at]:g}, {word} the bound {bound[at]:g} of its Box"
            yield f"{where} {word}", f"{text}: widen the Box, or clip the observation"


def _at(array: np.ndarray, chosen: np.ndarray) -> str:
    at = tuple(int(index) for index in np.argwhere(chosen)[0])
    return f"{list(at)} is {array[at]}"


def probe(
    env: EnvConfig, *, source_dir: str | None, steps: int, clock: Callable[[], float] = time.perf_counter
) -> list[Finding]:
    """Examine an environment: its results in `steps` steps, its repeatability by a seed, and gymnasium's own checker.
    Raises EnvironmentBuildError."""

    def build() -> Env:
        return make_plain(env, source_dir=source_dir)

    with NoExit(), closing(build()) as plain:
        looker, begin_s = Looker(plain), clock()
        looker.look(steps)
        elapsed_s = clock() - begin_s
        limit = None if plain.spec is None else plain.spec.max_episode_steps
    found = [Finding("wrong", text) for text in looker.wrong.values()]
    if not found:
        found.append(Finding("ok", f"observations, rewards and infos of {looker.steps} steps are as its spaces say"))
    is_known = env.make is None and _OF_LIBRARIES.match(str(known_spec(env).entry_point)) is not None
    if env.max_episode_steps is not None or not is_known:
        found.append(_of_episodes(looker, env.max_episode_steps or limit))
    if "raises" not in looker.wrong:
        with NoExit(), closing(build()) as one, closing(build()) as other:
            found.append(_repeats(one, other))
    found += _by_gymnasium(build)
    rate = looker.steps / elapsed_s if elapsed_s > 0.0 else float("inf")
    return [*found, Finding("ok", f"speed: {rate:,.0f} steps/s in one process, random actions")]


def _of_episodes(looker: Looker, limit: int | None) -> Finding:
    if limit is not None:
        return Finding("ok", f"episodes end after {limit} steps at the latest ({looker.episodes} ended)")
    if looker.episodes:
        return Finding("ok", f"{looker.episodes} episodes ended, the longest after {looker.longest} steps")
    text = f"no episode ended in {looker.steps} steps, and there is no time limit: set env.max_episode_steps"
    return Finding("warning", text)


def _repeats(one: Env, other: Env) -> Finding:
    """Check that the same seed and actions give the same observations and rewards."""
    trails: list[list[Any]] = []
    for env in (one, other):
        env.action_space.seed(_SEED)
        observation, _ = env.reset(seed=_SEED)
        trail: list[Any] = [observation]
        for _ in range(REPEATED_STEPS):
            observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            trail += [observation, reward]
            if terminated or truncated:
                break
        trails.append(trail)
    if len(trails[0]) == len(trails[1]) and all(_equal(a, b) for a, b in zip(*trails, strict=True)):
        return Finding("ok", "the same seed gives the same episode")
    way_out = "draw all chance from self.np_random, and call super().reset(seed=seed)"
    return Finding("warning", f"the same seed does not give the same episode: {way_out}")


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping):
        return all(_equal(value, other[name]) for name, value in one.items())
    if isinstance(one, tuple):
        return all(_equal(*pair) for pair in zip(one, other, strict=True))
    return bool(np.array_equal(one, other))


def _by_gymnasium(build: Callable[[], Env]) -> list[Finding]:
    """Return the results of gymnasium's checker."""
    with warnings.catch_warnings(record=True) as said, NoExit(), closing(build()) as env:
        warnings.simplefilter("always")
        try:
            check_env(env.unwrapped, skip_render_check=True)
            error = None
        except Exception as raised:  # AssertionError, and what the environment raises
            error = raised
    texts: Sequence[str] = list(dict.fromkeys(_plain(str(one.message)) for one in said))
    found = [Finding("warning", f"gymnasium's checker: {text}") for text in texts]
    if error is not None:
        return [*found, Finding("wrong", f"gymnasium's checker: {_plain(str(error)) or type(error).__name__}")]
    return found or [Finding("ok", "gymnasium's checker finds nothing")]


def _plain(text: str) -> str:
    return _COLOUR.sub("", _COLOUR.sub("", text)).strip()
