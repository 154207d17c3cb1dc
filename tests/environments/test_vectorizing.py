"""Processes are chosen where they pay, by a rule that is the same everywhere, and the reason is given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from remuda.config.environment import EnvConfig
from remuda.environments.copies import LocalCopies
from remuda.environments.errors import UnusableResultError
from remuda.environments.processes import choose_processes, processes_for, time_step, usable_cores
from remuda.environments.spaces import Array
from remuda.environments.vectors import VectorCopies
from remuda.tests.environments.scripted import ScriptedEnv

US = 1e-6


@pytest.mark.parametrize(
    ("step_s", "num_envs", "cores", "processes"),
    [
        (7 * US, 8, 2, 0),  # CartPole: 56 us in turn
        (7 * US, 64, 2, 0),  # 448 us in turn, 424 us shared out: not worth it
        (1_000 * US, 8, 2, 2),
        (1_000 * US, 8, 64, 8),  # never more than environments
        (1_000 * US, 8, 1, 0),
        (400 * US, 3, 2, 0),  # 1.2 ms in turn, 1 ms shared out
    ],
)
def test_processes_are_for_slow_steps_and_free_cores(step_s: float, num_envs: int, cores: int, processes: int) -> None:
    assert processes_for(step_s, num_envs=num_envs, cores=cores) == processes


class TickingEnv(gymnasium.Env[Array, Any]):
    """Its clock goes on by `durations_s` in each step and by a minute in each reset."""

    observation_space = spaces.Box(-1, 1, (1,))
    action_space: spaces.Space[Any] = spaces.Discrete(2)

    def __init__(self, durations_s: Iterator[float]) -> None:
        self.now_s, self.steps, self.resets, self.closed = 0.0, 0, 0, False
        self._durations_s = durations_s

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.now_s += 60
        self.resets += 1
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.now_s += next(self._durations_s)
        self.steps += 1
        return np.zeros(1, np.float32), 0.0, self.steps % 5 == 0, False, {}

    def close(self) -> None:
        self.closed = True


def test_the_median_step_is_timed_without_resets() -> None:
    env = TickingEnv(iter([0.5] + [0.001] * 100))  # the first step imports and compiles
    assert time_step(LocalCopies.of_one_agent([env]), clock=lambda: env.now_s) == pytest.approx(0.001)
    assert (env.steps, env.resets) == (20, 5)


def test_the_choice_and_its_reason_are_one_line_and_the_copy_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    env, said = TickingEnv(iter([])), list[str]()

    def choice(mode: str, *, cores: int, sharers: int, step_s: float) -> int:
        monkeypatch.setattr("remuda.environments.processes.usable_cores", lambda: cores)
        config = EnvConfig.model_validate({"make": "m:f", "vectorization": mode})
        processes, known = choose_processes(
            config,
            lambda: LocalCopies.of_one_agent([env]),
            num_envs=8,
            sharers=sharers,
            chosen=said.append,
            timer=lambda copy: step_s,
        )
        assert not processes or (known[0].observation, known[0].action) == (env.observation_space, env.action_space)
        return processes

    assert choice("auto", cores=4, sharers=1, step_s=0.002) == 4
    assert choice("auto", cores=4, sharers=2, step_s=0.002) == 2
    assert choice("auto", cores=4, sharers=1, step_s=0.000_01) == 0
    assert env.closed
    assert choice("auto", cores=4, sharers=4, step_s=0.002) == 0
    assert choice("sync", cores=4, sharers=1, step_s=0.002) == 0
    assert choice("async", cores=4, sharers=4, step_s=0.000_01) == 4
    assert said == [
        "environments: async, 4 processes, since a step takes 2000 us and 8 may share 4 cores",
        "environments: async, 2 processes, since a step takes 2000 us and 8 may share 2 cores",
        "environments: sync, objects in one process, since a step takes 10 us and 8 may share 4 cores",
        "environments: sync, objects in one process",
        "environments: sync, objects in one process",
        "environments: async, 4 processes, as the config says",
    ]
    assert usable_cores() >= 1


def test_a_copy_that_fails_leaves_the_failure_to_the_environments_themselves() -> None:
    said: list[str] = []
    env = TickingEnv(iter([]))  # its first step raises StopIteration
    chosen = choose_processes(
        EnvConfig(make="m:f"), lambda: LocalCopies.of_one_agent([env]), num_envs=8, sharers=1, chosen=said.append
    )
    assert chosen[0] == 0
    assert env.closed or usable_cores() == 1
    assert said[0].startswith("environments: sync, objects in one process")
    assert "could not be timed: StopIteration" in said[0] or usable_cores() == 1


class Scaling(TickingEnv):
    """Multiplies its action in place."""

    action_space = spaces.Box(-1, 1, (2,))

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        action *= 100.0
        return super().step(action)


def test_an_environment_may_change_its_action_and_the_row_keeps_what_the_policy_chose() -> None:
    copies = LocalCopies.of_one_agent([Scaling(iter([0.0] * 9)), Scaling(iter([0.0] * 9))])
    copies.reset([0, 1])
    actions = np.full((2, 2), 0.5, np.float32)
    copies.step([actions])
    assert (actions == 0.5).all()


class OfOneNumber(TickingEnv):
    """Remembers its last action."""

    action_space = spaces.Box(-1, 1, ())

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.taken = action
        return super().step(action)


def test_an_action_of_one_number_is_an_array_without_axes() -> None:
    """gymnasium warned at each step."""
    env = OfOneNumber(iter([0.0]))
    copies = LocalCopies.of_one_agent([env])
    copies.reset([0])
    copies.step([np.full(1, 0.5, np.float32)])
    assert (type(env.taken), env.taken.shape, float(env.taken)) == (np.ndarray, (), 0.5)
    assert env.taken in env.action_space


class Wrong(SyncVectorEnv):
    """Returns `value` for this part of each step."""

    def __init__(self, part: int, value: object) -> None:
        super().__init__([ScriptedEnv, ScriptedEnv])
        self.part, self.value = part, value

    def step(self, actions: Any) -> Any:
        step: list[Any] = list(super().step(actions))
        step[self.part] = np.full(2, self.value)
        return tuple(step)


@pytest.mark.parametrize(
    ("part", "value", "said"),
    [
        (1, "1.5", "returned rewards = ['1.5', '1.5'], and a number each is expected"),
        (2, np.nan, "returned terminated = [nan, nan], and True or False each is expected"),
        (3, "no", "returned truncated = ['no', 'no'], and True or False each is expected"),
    ],
)
def test_wrong_results_of_a_vectorised_class_are_named(part: int, value: object, said: str) -> None:
    with closing(VectorCopies(Wrong(part, value), "Robot-v0")) as copies:
        copies.reset([0, 1])
        with pytest.raises(UnusableResultError) as refused:
            copies.step([np.zeros(2, np.int64)])
    assert f"the vectorised class of Robot-v0 {said}" in str(refused.value)
