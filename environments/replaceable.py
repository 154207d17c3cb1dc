"""Replacement of an environment after a failure, while the rest of the vector continues."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete

from remuda.config.errors import NoExit, shortened
from remuda.environments.errors import (
    LARGEST_OBSERVATION,
    LARGEST_REWARD,
    MOST_IN_A_ROW,
    MOST_SHOWN,
    BrokenEnvironmentError,
    Fault,
    UnusableResultError,
    by_agent,
    checked_ends,
    checked_flag,
    problem_of,
    shown_action,
)
from remuda.environments.probe import FIRST, Remarks
from remuda.environments.seeding import replacement_seed
from remuda.environments.spaces import Array, Space

_OF_RESET = ("observation", "info")
_OF_STEP = ("observation", "reward", "terminated", "truncated", "info")
_OF_AGENTS_RESET = ("observations", "infos")
_OF_AGENTS_STEP = ("observations", "rewards", "terminations", "truncations", "infos")
_SURELY = 1e37
"""Up to this sum of squares no entry is too large, in float32 and in float64."""


class _OneAgent:
    """Steps an environment of gymnasium's interface, and refuses unusable results."""

    def __init__(self, env: gymnasium.Env[Any, Any], remarks: Remarks | None) -> None:
        self._space = env.observation_space
        self._expected = _expected(self._space)
        self._remarks, self._looks = remarks, 0 if remarks is None else FIRST

    def require_alike(self, env: Any) -> None:
        """Raise UnusableResultError unless `env` can replace the first environment. Here the results tell."""

    def begun(self, env: Any, seed: int | None) -> tuple[Array, dict[str, Any]]:
        """Begin an episode. Raises errors of the environment, and UnusableResultError."""
        observation, info = _parts_of(env.reset(seed=seed), "gymnasium", "reset", _OF_RESET)
        return self._checked(observation), _checked_info(info)

    def stepped(self, env: Any, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Take a step. Raises like `begun`."""
        observation, reward, terminated, truncated, info = _parts_of(env.step(action), "gymnasium", "step", _OF_STEP)
        seen, paid = self._checked(observation), _checked_reward(reward)
        ends, cut = checked_flag(terminated, "terminated"), checked_flag(truncated, "truncated")
        return seen, paid, ends, cut, _checked_info(info)

    def as_step(self, begun: tuple[Array, dict[str, Any]]) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Return the begin of an episode in the form of a step."""
        return begun[0], 0.0, False, False, begun[1]

    def shown(self, action: Any) -> str:
        """Return an action for people."""
        return shown_action(action)

    def _checked(self, observation: Any) -> Array:
        if self._looks and self._remarks is not None:
            self._looks -= 1
            self._remarks.look(self._space, observation)
        return _checked_observation(observation, *self._expected)


class _SeveralAgents:
    """The same for PettingZoo's interface, with results by agent; see _OneAgent."""

    def __init__(self, env: Any) -> None:
        spaces = {agent: env.observation_space(agent) for agent in env.possible_agents}
        self._expected = {agent: _expected(one) for agent, one in spaces.items()}

    def require_alike(self, env: Any) -> None:
        if other := set(env.possible_agents) ^ set(self._expected):
            raise UnusableResultError(f"made again, only one of the two has an agent {min(other)}")

    def begun(self, env: Any, seed: int | None) -> tuple[Mapping[str, Array], Mapping[str, Any]]:
        returned = env.reset() if seed is None else env.reset(seed=seed)
        observations, infos = _parts_of(returned, "PettingZoo", "reset", _OF_AGENTS_RESET)
        there = list(env.agents)
        if not there:
            raise UnusableResultError("it has no agents after its reset")
        if missing := [agent for agent in there if agent not in observations]:
            raise UnusableResultError(f"it returned no observation for agent {missing[0]} at its reset")
        return self._checked(observations, there), by_agent(_checked_info, _checked_info(infos))

    def stepped(self, env: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        returned = _parts_of(env.step(action), "PettingZoo", "step", _OF_AGENTS_STEP)
        observations, rewards, terminations, truncations, infos = returned
        seen = self._checked(observations, dict.fromkeys([*action, *env.agents]))
        paid = by_agent(_checked_reward, {agent: rewards.get(agent, 0.0) for agent in action})
        ends, cut = checked_ends(terminations, truncations)
        return seen, paid, ends, cut, by_agent(_checked_info, _checked_info(infos))

    def as_step(self, begun: tuple[Any, Any]) -> tuple[Any, Any, Any, Any, Any]:
        return begun[0], {}, {}, {}, begun[1]

    def shown(self, action: Any) -> str:
        return shown_action([*action.values()])

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


class ReplaceableEnv:
    """Steps an environment with one or several agents. After an error or an unusable result the environment is closed
    and built again with a fresh seed; the step then is the reset of the new environment, with `replaced` set.

    Unusable results: an observation of another shape or dtype than its space, or with numbers that are not finite; a
    reward that is not a finite number, or too large to add up; an end of an episode that is neither true nor false; and
    results outside the interface: not five values, or an info that is not a dict. All other attributes are those of the
    present environment.
    """

    def __init__(
        self,
        build: Callable[[], Any],
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
            broke: receives each fault before the replacement; raises to refuse it.
            begins: receives `index` before each step and reset.
            remarks: checks the first observations of one agent; None: no check.
        """
        self.env = build()
        self.replaced = False
        """True if the environment broke in the newest step or reset and was replaced."""
        self._build, self._index, self._name, self._broke, self._begins = build, index, name, broke, begins
        one_agent = isinstance(self.env, gymnasium.Env)
        self._checks = _OneAgent(self.env, remarks) if one_agent else _SeveralAgents(self.env)
        self._seed: int | None = None
        self._episode = self._step = self._in_a_row = 0
        self._open = True
        self._no_exit = NoExit()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Take a step, or begin in another environment. Raises BrokenEnvironmentError beyond the limits."""
        if self._begins is not None:
            self._begins(self._index)
        self._step += 1
        self.replaced = False
        try:
            with self._no_exit:
                result = self._checks.stepped(self.env, action)
        except MemoryError:
            raise  # the process is not to be trusted any more
        except Exception as error:  # anything that the environment raises
            return self._checks.as_step(self._replace(error, self._checks.shown(action)))
        self._in_a_row = 0
        return result

    def reset(self, seed: int | None = None) -> tuple[Any, Any]:
        """Begin an episode. A failure replaces the environment, with a fresh seed. Raises BrokenEnvironmentError beyond
        the limits."""
        if self._begins is not None:
            self._begins(self._index)
        if seed is not None:
            self._seed, self._episode = seed, 0
        self._episode, self._step = self._episode + 1, 0
        self.replaced = False
        try:
            with self._no_exit:
                return self._checks.begun(self.env, seed)
        except MemoryError:
            raise
        except Exception as error:  # anything that the environment raises
            return self._replace(error, "")

    def close(self) -> None:
        """Close the environment, once. An error is printed and goes no further: nobody needs the environment any more,
        and a whole run would end by it."""
        if not self._open:
            return
        self._open = False
        try:
            with self._no_exit:
                self.env.close()
        except Exception as error:  # anything that the environment raises
            text = f"environment {self._index} ({self._name}): closing it raised {type(error).__name__}: {error}"
            print(text, file=sys.stderr, flush=True)

    def _replace(self, error: Exception, action: str) -> tuple[Any, Any]:
        """Report a failure, close the environment, and begin an episode in a replacement. Repeats after further
        failures. `action` is empty at a reset. Raises BrokenEnvironmentError beyond the limits."""
        self.replaced = True
        while True:
            seed = self._report(error, action)
            self.close()
            try:
                with self._no_exit:
                    self.env, self._open, self._episode, self._step = self._build(), True, 1, 0
                    self._checks.require_alike(self.env)
                    return self._checks.begun(self.env, seed)
            except MemoryError:
                raise
            except Exception as again:  # anything that the new environment raises
                error, action = again, ""

    def _report(self, error: Exception, action: str) -> int | None:
        """Report a failure; returns the seed of the replacement, None without a first seed."""
        where = f"in step {self._step} of episode {self._episode}" if self._step else f"at reset {self._episode}"
        problem, told = problem_of(error)
        fault = Fault(
            env_index=self._index,
            env=self._name,
            seed=self._seed,
            where=where,
            action=action,
            problem=problem,
            fresh_seed=None if self._seed is None else replacement_seed(self._seed),
            traceback=told,
        )
        self._in_a_row += 1
        if self._in_a_row >= MOST_IN_A_ROW:
            raise BrokenEnvironmentError(
                f"{fault.text()}; it is not made again: {MOST_IN_A_ROW} times in a row it broke without a good step"
            ) from error
        self._broke(fault)
        self._seed, self._episode, self._step = fault.fresh_seed, 0, 0
        return fault.fresh_seed


def _expected(space: Space) -> tuple[tuple[int, ...], np.dtype[Any], range | None]:
    """Return shape, dtype and, of a Discrete space, the values of its observations."""
    values = range(int(space.start), int(space.start + space.n)) if isinstance(space, Discrete) else None
    return tuple(space.shape or ()), np.dtype(space.dtype), values


def _checked_observation(observation: Any, shape: tuple[int, ...], dtype: np.dtype[Any], values: range | None) -> Array:
    """Return the observation as an array of its space. Raises UnusableResultError."""
    array: Array = np.asarray(observation)
    if array.shape != shape:
        raise UnusableResultError(f"it returned an observation of shape {array.shape}, and its space says {shape}")
    if array.dtype != dtype and not np.can_cast(array.dtype, dtype, "same_kind"):
        raise UnusableResultError(f"it returned an observation of {array.dtype}, and its space says {dtype}")
    if array.dtype.kind == "f" and not float(np.vdot(array, array)) <= _SURELY:  # float16 has no such number but inf
        _check_numbers(array)
    if values is not None and int(array) not in values:
        raise UnusableResultError(
            f"it returned the observation {int(array)}, and its space says {values[0]} to {values[-1]}"
        )
    return array


def _checked_reward(reward: Any) -> float:
    """The reward as a number. Raises UnusableResultError."""
    try:
        paid = reward if type(reward) is float else float(_no_text(reward))
    except (TypeError, ValueError):
        shown = shortened(repr(reward), MOST_SHOWN)
        raise UnusableResultError(f"it returned the reward {shown}, which is not one number") from None
    if not abs(paid) <= LARGEST_REWARD:
        raise UnusableResultError(_bad_reward(paid))
    return paid


def _no_text(reward: Any) -> Any:
    """Return the reward. Raises TypeError for a text, since `float` reads the text '1.5' as a number."""
    if isinstance(reward, (str, bytes)):
        raise TypeError
    return reward


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
        raise UnusableResultError(f"it returned {shortened(repr(info), MOST_SHOWN)} as info, which is not a dict")
    return cast("dict[str, Any]", info)


def _check_numbers(array: Array) -> None:
    """Raise UnusableResultError for numbers that are not finite, or too large for float32."""
    if not np.isfinite(array).all():
        raise UnusableResultError("it returned an observation that is not finite")
    if array.dtype.itemsize > 4 and (np.abs(array) > LARGEST_OBSERVATION).any():
        raise UnusableResultError(f"it returned an observation beyond {LARGEST_OBSERVATION:g}, too large to normalise")


def _bad_reward(paid: float) -> str:
    why = f", beyond {LARGEST_REWARD:g}: too large to add up" if np.isfinite(paid) else ""
    return f"it returned the reward {paid:g}{why}"
