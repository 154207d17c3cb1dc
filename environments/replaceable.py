"""An environment that is made again when it breaks, so that the others of its vector go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import gymnasium
import numpy as np

from remuda.config.errors import NoExit
from remuda.environments.breakages import Breakages
from remuda.environments.faults import LARGEST_OBSERVATION, LARGEST_REWARD, REPLACED, Fault, UnusableResultError
from remuda.environments.make import SingleEnv
from remuda.environments.probe import FIRST, Remarks
from remuda.environments.spaces import Array

_OF_RESET = ("observation", "info")
_OF_STEP = ("observation", "reward", "terminated", "truncated", "info")
_MOST_SHOWN = 60
_SURELY = 1e37
"""A sum of squares up to this has no entry that is too large, in float32 and in float64."""


class ReplaceableEnv(gymnasium.Wrapper[Array, Any, Array, Any]):
    """Steps one environment. If it raises, or returns what cannot be learned from, it is closed and made again with a
    fresh seed; the step then is the reset of the new one, with REPLACED in its info.

    What cannot be learned from: an observation of another shape or dtype than its space says, or with numbers that are
    not finite; a reward that is not a finite number, or is too large to add up; and what is no step of gymnasium at
    all: not five values, or an info that is no dict.
    """

    def __init__(
        self,
        build: Callable[[], SingleEnv],
        *,
        index: int,
        name: str,
        broke: Callable[[Fault], None],
        begins: Callable[[int], None] | None = None,
        remarks: Remarks | None = None,
    ) -> None:
        """Raises what `build` raises.

        Args:
            build: makes the environment, and each that takes its place.
            index: its number, for the log.
            name: env.id or env.make.
            broke: is called with each fault, before the environment is made again; raises where it must not be.
            begins: is called with `index` before each step and reset.
            remarks: looks at the first observations; None: nobody does.
        """
        super().__init__(build())
        self._build = build
        self._index, self._begins = index, begins
        self._breakages = Breakages(index=index, name=name, broke=broke)
        space = self.env.observation_space
        self._shape: tuple[int, ...] = tuple(space.shape or ())
        self._dtype: np.dtype[Any] = np.dtype(space.dtype)
        self._remarks, self._looks = remarks, 0 if remarks is None else FIRST
        self._open = True
        self._no_exit = NoExit()

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Take a step, or begin in another environment. Raises BrokenEnvironmentError beyond the limits."""
        if self._begins is not None:
            self._begins(self._index)
        self._breakages.step()
        try:
            with self._no_exit:
                observation, reward, terminated, truncated, info = parts_of(
                    self.env.step(action), "gymnasium", "step", _OF_STEP
                )
                seen, paid = self._checked(observation), checked_reward(reward)
                ends, cut, info = bool(terminated), bool(truncated), checked_info(info)
        except MemoryError:
            raise  # the process is not to be trusted any more
        except Exception as error:  # anything that the environment raises
            seen, info = self._replaced(error, action)
            return seen, 0.0, False, False, info
        self._breakages.good_step()
        return seen, paid, ends, cut, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begin an episode, in another environment if this one breaks: then with REPLACED in the info, and a fresh
        seed. Raises BrokenEnvironmentError beyond the limits."""
        if self._begins is not None:
            self._begins(self._index)
        self._breakages.reset(seed)
        try:
            return self._begun(seed, options)
        except MemoryError:
            raise
        except Exception as error:  # anything that the environment raises
            return self._replaced(error, None)

    def close(self) -> None:
        """Close the environment, once."""
        if self._open:
            self._open = False
            self.env.close()

    def _begun(self, seed: int | None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        with self._no_exit:
            observation, info = parts_of(self.env.reset(seed=seed, options=options), "gymnasium", "reset", _OF_RESET)
            return self._checked(observation), checked_info(info)

    def _replaced(self, error: Exception, action: object) -> tuple[Array, dict[str, Any]]:
        """Close the environment that has broken, and begin an episode in a new one, or in the next if that breaks."""
        observation, info = self._breakages.begin_again(error, action, close=self.close, begin=self._begun_in_another)
        return observation, {**info, REPLACED: True}

    def _begun_in_another(self, seed: int | None) -> tuple[Array, dict[str, Any]]:
        with self._no_exit:
            self.env = self._build()
        self._open = True
        self._breakages.reset(None)
        return self._begun(seed)

    def _checked(self, observation: Any) -> Array:
        if self._looks and self._remarks is not None:
            self._looks -= 1
            self._remarks.look(self.env.observation_space, observation)
        return checked_observation(observation, self._shape, self._dtype)


def checked_observation(observation: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """The observation as an array of what its space says. Raises UnusableResultError."""
    array: Array = np.asarray(observation)
    if array.shape != shape:
        raise UnusableResultError(f"it returned an observation of shape {array.shape}, and its space says {shape}")
    if array.dtype != dtype and not np.can_cast(array.dtype, dtype, "same_kind"):
        raise UnusableResultError(f"it returned an observation of {array.dtype}, and its space says {dtype}")
    if array.dtype.kind == "f" and not np.vdot(array, array) <= _SURELY:
        _check_numbers(array)
    return array


def checked_reward(reward: Any) -> float:
    """The reward as a number. Raises UnusableResultError."""
    try:
        paid = float(reward)
    except (TypeError, ValueError):
        raise UnusableResultError(f"it returned the reward {_shown(reward)}, which is not one number") from None
    if not abs(paid) <= LARGEST_REWARD:
        raise UnusableResultError(_bad_reward(paid))
    return paid


def parts_of(returned: Any, interface: str, method: str, names: tuple[str, ...]) -> tuple[Any, ...]:
    """What a method of this interface returned, as many values as `names`. Raises UnusableResultError: environments
    written for gym, as it was before gymnasium, return less."""
    if isinstance(returned, (tuple, list)):  # a union of types would be built again in each step
        parts = cast("Sequence[Any]", returned)
        if len(parts) == len(names):
            return tuple(parts)
        got = f"{len(parts)} values"
    else:
        got = f"one {type(returned).__name__}"
    wanted = f"{interface}'s returns {len(names)}: {', '.join(names)}"
    raise UnusableResultError(f"its {method} returned {got}, and {wanted}")


def checked_info(info: object) -> dict[str, Any]:
    """The info as it is. Raises UnusableResultError where it is no mapping."""
    if type(info) is not dict and not isinstance(info, Mapping):
        raise UnusableResultError(f"it returned {_shown(info)} as info, which is not a dict")
    return cast("dict[str, Any]", info)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "…"


def _check_numbers(array: Array) -> None:
    """Raise UnusableResultError for numbers that are not finite, or too large for float32."""
    if not np.isfinite(array).all():
        raise UnusableResultError("it returned an observation that is not finite")
    if array.dtype.itemsize > 4 and (np.abs(array) > LARGEST_OBSERVATION).any():
        raise UnusableResultError(f"it returned an observation beyond {LARGEST_OBSERVATION:g}, too large to normalise")


def _bad_reward(paid: float) -> str:
    why = f", beyond {LARGEST_REWARD:g}: too large to add up" if np.isfinite(paid) else ""
    return f"it returned the reward {paid:g}{why}"
