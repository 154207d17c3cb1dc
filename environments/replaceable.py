"""An environment that is replaced after a failure; the others of its vector continue."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, TypeVar, cast

import gymnasium
import numpy as np

from remuda.config.errors import NoExit
from remuda.environments.faults import (
    LARGEST_OBSERVATION,
    LARGEST_REWARD,
    MOST_IN_A_ROW,
    REPLACED,
    BrokenEnvironmentError,
    Fault,
    UnusableResultError,
    problem_of,
    shown_action,
    traceback_of,
)
from remuda.environments.lanes import ParallelEnv, WrappedAgents
from remuda.environments.make import SingleEnv
from remuda.environments.probe import FIRST, Remarks
from remuda.environments.seeding import replacement_seed
from remuda.environments.spaces import Array

_OF_RESET = ("observation", "info")
_OF_STEP = ("observation", "reward", "terminated", "truncated", "info")
_OF_AGENTS_RESET = ("observations", "infos")
_OF_AGENTS_STEP = ("observations", "rewards", "terminations", "truncations", "infos")
_MOST_SHOWN = 60
_SURELY = 1e37
"""Up to this sum of squares no entry is too large, in float32 and in float64."""

_Infos = Mapping[str, Mapping[str, Any]]
_AgentsStep = tuple[Mapping[str, Array], Mapping[str, float], Mapping[str, bool], Mapping[str, bool], _Infos]
_Env = TypeVar("_Env")
_Begun = TypeVar("_Begun")
"""Result of a reset."""
_Result = TypeVar("_Result")


class _Replaceable(Generic[_Env, _Begun]):
    """Position of an environment, its faults in a row, and its replacement."""

    def _prepare(
        self,
        build: Callable[[], _Env],
        index: int,
        name: str,
        broke: Callable[[Fault], None],
        begins: Callable[[int], None] | None,
    ) -> None:
        self._build, self._index, self._name, self._broke, self._begins = build, index, name, broke, begins
        self._seed: int | None = None
        self._episode = self._step = self._in_a_row = 0
        self._open = True
        self._no_exit = NoExit()

    @abstractmethod
    def _put(self, env: _Env) -> None:
        """Take another environment into use."""

    @abstractmethod
    def _begun(self, seed: int | None) -> _Begun:
        """Begin an episode. Raises errors of the environment."""

    @abstractmethod
    def close(self) -> None:
        """Close the environment, once."""

    def _reset(self, seed: int | None) -> tuple[_Begun, bool]:
        """Begin an episode; returns True with the result if the environment was replaced. Raises BrokenEnvironmentError
        beyond the limits."""
        if self._begins is not None:
            self._begins(self._index)
        if seed is not None:
            self._seed, self._episode = seed, 0
        self._episode, self._step = self._episode + 1, 0
        try:
            with self._no_exit:
                return self._begun(seed), False
        except MemoryError:
            raise  # the process is not to be trusted any more
        except Exception as error:  # anything that the environment raises
            return self._replace(error, None), True

    def _replace(self, error: Exception, action: object) -> _Begun:
        """Report a failure, close the environment, and begin an episode in a replacement. Repeats after further
        failures. `action` is None at a reset. Raises BrokenEnvironmentError beyond the limits."""
        while True:
            seed = self._report(error, action)
            try:
                with self._no_exit:
                    self.close()
            except Exception as closing:
                text = (
                    f"environment {self._index} ({self._name}): closing it raised {type(closing).__name__}: {closing}"
                )
                print(text, file=sys.stderr, flush=True)
            try:
                with self._no_exit:
                    self._put(self._build())
                    self._open, self._episode, self._step = True, 1, 0
                    return self._begun(seed)
            except MemoryError:
                raise
            except Exception as again:  # anything that the new environment raises
                error, action = again, None

    def _report(self, error: Exception, action: object) -> int | None:
        """Report a failure; returns the seed of the replacement, None without a first seed."""
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


class ReplaceableEnv(gymnasium.Wrapper[Array, Any, Array, Any], _Replaceable[SingleEnv, tuple[Array, dict[str, Any]]]):
    """Steps one environment. After an error or an unusable result the environment is closed and built again with a
    fresh seed; the step then is the reset of the new environment, with REPLACED in its info.

    Unusable results: an observation of another shape or dtype than its space, or with numbers that are not finite; a
    reward that is not a finite number, or too large to add up; and results outside gymnasium's interface: not five
    values, or an info that is not a dict.
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
        """Raises errors of `build`.

        Args:
            build: builds the environment, and each replacement.
            index: number of the environment, for the log.
            name: env.id or env.make.
            broke: receives each fault before the replacement; raises to refuse it.
            begins: receives `index` before each step and reset.
            remarks: checks the first observations; None: no check.
        """
        gymnasium.Wrapper.__init__(self, build())  # pyright: ignore[reportUnknownMemberType]
        self._prepare(build, index, name, broke, begins)
        space = self.env.observation_space
        self._shape: tuple[int, ...] = tuple(space.shape or ())
        self._dtype: np.dtype[Any] = np.dtype(space.dtype)
        self._remarks, self._looks = remarks, 0 if remarks is None else FIRST

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Take a step, or begin in another environment. Raises BrokenEnvironmentError beyond the limits."""
        if self._begins is not None:
            self._begins(self._index)
        self._step += 1
        try:
            with self._no_exit:
                observation, reward, terminated, truncated, info = _parts_of(
                    self.env.step(action), "gymnasium", "step", _OF_STEP
                )
                seen, paid = self._checked(observation), _checked_reward(reward)
                ends, cut, info = bool(terminated), bool(truncated), _checked_info(info)
        except MemoryError:
            raise  # the process is not to be trusted any more
        except Exception as error:  # anything that the environment raises
            seen, info = self._replace(error, action)
            return seen, 0.0, False, False, {**info, REPLACED: True}
        self._in_a_row = 0
        return seen, paid, ends, cut, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begin an episode. A failure replaces the environment: then with REPLACED in the info, and a fresh seed.
        Raises BrokenEnvironmentError beyond the limits."""
        (observation, info), replaced = self._reset(seed)
        return (observation, {**info, REPLACED: True}) if replaced else (observation, info)

    def close(self) -> None:
        """Close the environment, once."""
        if self._open:
            self._open = False
            self.env.close()

    def _put(self, env: SingleEnv) -> None:
        self.env = env

    def _begun(self, seed: int | None) -> tuple[Array, dict[str, Any]]:
        observation, info = _parts_of(self.env.reset(seed=seed), "gymnasium", "reset", _OF_RESET)
        return self._checked(observation), _checked_info(info)

    def _checked(self, observation: Any) -> Array:
        if self._looks and self._remarks is not None:
            self._looks -= 1
            self._remarks.look(self.env.observation_space, observation)
        return _checked_observation(observation, self._shape, self._dtype)


class ReplaceableAgents(WrappedAgents, _Replaceable[ParallelEnv, tuple[Mapping[str, Array], _Infos]]):
    """A ParallelEnv. After an error or an unusable result (see ReplaceableEnv) the environment is closed and built
    again with a fresh seed; the step then is the reset of the new environment, with `replaced` set."""

    def __init__(
        self,
        build: Callable[[], ParallelEnv],
        *,
        index: int,
        name: str,
        broke: Callable[[Fault], None],
        begins: Callable[[int], None] | None = None,
    ) -> None:
        """See ReplaceableEnv. Raises errors of `build`."""
        WrappedAgents.__init__(self, build())
        self._prepare(build, index, name, broke, begins)
        self.replaced = False
        """True if the environment broke in the newest step or reset and was replaced."""
        spaces = {agent: self.observation_space(agent) for agent in self.possible_agents}
        self._expected = {agent: (tuple(one.shape or ()), np.dtype(one.dtype)) for agent, one in spaces.items()}

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Mapping[str, Array], _Infos]:
        """Begin an episode. Raises BrokenEnvironmentError beyond the limits."""
        begun, self.replaced = self._reset(seed)
        return begun

    def step(self, actions: dict[str, Any]) -> _AgentsStep:
        """Take a step, or begin in another environment. Raises BrokenEnvironmentError beyond the limits."""
        if self._begins is not None:
            self._begins(self._index)
        self.replaced = False
        self._step += 1
        try:
            with self._no_exit:
                returned = _parts_of(self._env.step(actions), "PettingZoo", "step", _OF_AGENTS_STEP)
                observations, rewards, terminations, truncations, infos = returned
                seen = self._checked(observations, dict.fromkeys([*actions, *self._env.agents]))
                paid = _by_agent(_checked_reward, {agent: rewards.get(agent, 0.0) for agent in actions})
                ends = {agent: bool(flag) for agent, flag in terminations.items()}
                cut = {agent: bool(flag) for agent, flag in truncations.items()}
                infos = _by_agent(_checked_info, _checked_info(infos))
        except MemoryError:
            raise
        except Exception as error:  # anything that the environment raises
            self.replaced = True
            seen, infos = self._replace(error, [*actions.values()])
            return seen, {}, {}, {}, infos
        self._in_a_row = 0
        return seen, paid, ends, cut, infos

    def close(self) -> None:
        """Close the environment, once."""
        if self._open:
            self._open = False
            self._env.close()

    def _put(self, env: ParallelEnv) -> None:
        self._env, self._open = env, True
        if other := set(env.possible_agents) ^ set(self._expected):
            raise UnusableResultError(f"made again, only one of the two has an agent {min(other)}")

    def _begun(self, seed: int | None) -> tuple[Mapping[str, Array], _Infos]:
        returned = self._env.reset() if seed is None else self._env.reset(seed=seed)
        observations, infos = _parts_of(returned, "PettingZoo", "reset", _OF_AGENTS_RESET)
        there = list(self._env.agents)
        if not there:
            raise UnusableResultError("it has no agents after its reset")
        if missing := [agent for agent in there if agent not in observations]:
            raise UnusableResultError(f"it returned no observation for agent {missing[0]} at its reset")
        return self._checked(observations, there), _by_agent(_checked_info, _checked_info(infos))

    def _checked(self, observations: Mapping[str, Any], agents: Collection[str]) -> Mapping[str, Array]:
        """Return the observations of these agents, if present. Raises UnusableResultError."""
        expected, agent = self._expected, ""
        seen: dict[str, Array] = {}
        try:
            for agent in agents:
                if agent in observations and agent in expected:
                    seen[agent] = _checked_observation(observations[agent], *expected[agent])
        except UnusableResultError as error:
            raise UnusableResultError(f"{error} (agent {agent})") from None
        return seen


def _checked_observation(observation: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return the observation as an array of its space. Raises UnusableResultError."""
    array: Array = np.asarray(observation)
    if array.shape != shape:
        raise UnusableResultError(f"it returned an observation of shape {array.shape}, and its space says {shape}")
    if array.dtype != dtype and not np.can_cast(array.dtype, dtype, "same_kind"):
        raise UnusableResultError(f"it returned an observation of {array.dtype}, and its space says {dtype}")
    if array.dtype.kind == "f" and not np.vdot(array, array) <= _SURELY:
        _check_numbers(array)
    return array


def _checked_reward(reward: Any) -> float:
    """The reward as a number. Raises UnusableResultError."""
    try:
        paid = float(reward)
    except (TypeError, ValueError):
        raise UnusableResultError(f"it returned the reward {_shown(reward)}, which is not one number") from None
    if not abs(paid) <= LARGEST_REWARD:
        raise UnusableResultError(_bad_reward(paid))
    return paid


def _parts_of(returned: Any, interface: str, method: str, names: tuple[str, ...]) -> tuple[Any, ...]:
    """Return the result of a method of this interface, with as many values as `names`. Raises UnusableResultError:
    environments for gym, the predecessor of gymnasium, return fewer values."""
    if isinstance(returned, (tuple, list)):  # a union of types would be built again in each step
        parts = cast("Sequence[Any]", returned)
        if len(parts) == len(names):
            return tuple(parts)
        got = f"{len(parts)} values"
    else:
        got = f"one {type(returned).__name__}"
    wanted = f"{interface}'s returns {len(names)}: {', '.join(names)}"
    raise UnusableResultError(f"its {method} returned {got}, and {wanted}")


def _checked_info(info: object) -> dict[str, Any]:
    """Return the info unchanged. Raises UnusableResultError unless it is a mapping."""
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


def _by_agent(check: Callable[[Any], _Result], values: Mapping[str, Any]) -> dict[str, _Result]:
    """Return the checked values. Raises UnusableResultError with the name of the agent."""
    found: dict[str, _Result] = {}
    agent = ""
    try:
        for agent, value in values.items():
            found[agent] = check(value)
    except UnusableResultError as error:
        raise UnusableResultError(f"{error} (agent {agent})") from None
    return found
