"""Environments of dm_env, such as bsuite's, as gymnasium's. Imports neither package."""

# gymnasium's spaces are generic without bounds: isinstance leaves pyright with a Dict of unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any, Protocol, TypeGuard, cast

import gymnasium
import numpy as np
from gymnasium import spaces

from remuda.environments.errors import UnsupportedSpaceError
from remuda.environments.spaces import Space

_MEMBERS = ("observation_spec", "action_spec", "reset", "step")
_DEEPEST = 4
"""Levels of objects to search for random numbers: bsuite puts up to three wrappers around an environment."""


class TimeStep(Protocol):
    """Result of a step."""

    @property
    def reward(self) -> float | None: ...
    @property
    def discount(self) -> float | None: ...
    @property
    def observation(self) -> Any: ...
    def last(self) -> bool:
        """Return True at the end of an episode."""
        ...


class DmEnvironment(Protocol):
    """The interface of dm_env.Environment."""

    def observation_spec(self) -> Any: ...
    def action_spec(self) -> Any: ...
    def reset(self) -> TimeStep: ...
    def step(self, action: Any) -> TimeStep: ...


def is_dm_env(built: object) -> TypeGuard[DmEnvironment]:
    """Return True for an environment of dm_env."""
    return all(callable(getattr(built, member, None)) for member in _MEMBERS)


class DmEnv(gymnasium.Env[Any, Any]):
    """A dm_env environment. The end of an episode is terminal if the discount there is 0, otherwise a truncation.

    dm_env has no seeds: `reset` seeds the random numbers of numpy that the environment holds.
    """

    def __init__(self, env: DmEnvironment) -> None:
        """Raises UnsupportedSpaceError."""
        self._env = env
        self.observation_space = _space(env.observation_spec())
        self.action_space = _space(env.action_spec())

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        if seed is not None:
            for number, stream in enumerate(_streams(self._env, _DEEPEST)):
                _seed(stream, [seed, number])
        return _value(self.observation_space, self._env.reset().observation), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one step."""
        step = self._env.step(action)
        observation = _value(self.observation_space, step.observation)
        ended = step.last()
        terminal = ended and step.discount == 0.0
        return observation, float(step.reward or 0.0), terminal, ended and not terminal, {}

    def close(self) -> None:
        """Close the environment."""
        close = getattr(self._env, "close", None)
        if callable(close):
            close()


def _space(spec: Any) -> Space:
    """Return gymnasium's space for a spec of dm_env. A single number becomes an array with one entry."""
    if isinstance(spec, Mapping):
        return spaces.Dict({str(name): _space(inner) for name, inner in cast("Mapping[str, Any]", spec).items()})
    if isinstance(spec, list | tuple):
        return spaces.Tuple([_space(inner) for inner in cast("list[Any]", spec)])
    if hasattr(spec, "num_values"):
        return spaces.Discrete(int(spec.num_values))
    dtype, shape = np.dtype(spec.dtype), tuple(spec.shape) or (1,)
    if dtype.kind not in "fiub":
        raise UnsupportedSpaceError(f"{spec} is an array of {dtype}, and networks read numbers and booleans")
    least, most = _widest(dtype)
    low = np.broadcast_to(getattr(spec, "minimum", least), shape).astype(dtype)
    high = np.broadcast_to(getattr(spec, "maximum", most), shape).astype(dtype)
    return spaces.Box(low, high, shape, dtype.type)


def _widest(dtype: np.dtype[Any]) -> tuple[float, float]:
    if dtype.kind == "f":
        return -np.inf, np.inf
    return (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)


def _value(space: Space, value: Any) -> Any:
    """Give an observation the form of its space."""
    if isinstance(space, spaces.Dict):
        return {name: _value(inner, value[name]) for name, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_value(inner, one) for inner, one in zip(space.spaces, value, strict=True))
    return np.asarray(value).reshape(space.shape or ()) if isinstance(space, spaces.Box) else value


def _streams(holder: object, depth: int) -> Iterator[np.random.RandomState | np.random.Generator]:
    """Yield the streams of random numbers among the attributes of an object, and of the objects that it holds."""
    for held in list(getattr(holder, "__dict__", {}).values()):
        if isinstance(held, np.random.RandomState | np.random.Generator):
            yield held
        elif depth > 1 and not isinstance(held, type | FunctionType | ModuleType | np.ndarray):
            yield from _streams(held, depth - 1)


def _seed(stream: np.random.RandomState | np.random.Generator, seed: list[int]) -> None:
    if isinstance(stream, np.random.RandomState):
        stream.seed(seed)
    else:
        stream.bit_generator.state = type(stream.bit_generator)(seed).state
