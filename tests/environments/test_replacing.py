"""An environment that breaks is made again; nobody else in its vector notices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from remuda.config.environment import EnvConfig
from remuda.environments.copies import LocalCopies
from remuda.environments.errors import MOST_IN_A_ROW, BrokenEnvironmentError, EnvironmentBuildError, Fault, RestartLimit
from remuda.environments.lanes import AGENT, Copies, Group
from remuda.environments.make import SingleEnv, make_single
from remuda.environments.processes import ProcessCopies
from remuda.environments.replaceable import ReplaceableEnv
from remuda.environments.seeding import replacement_seed
from remuda.environments.spaces import Array
from remuda.tests.environments.faulty import BAD_STEP, MODULE, SEEDS_SHOWN
from remuda.tests.environments.stepping import begun, copies_of, stepped

STEPS = 40
IN_PROCESS = {
    "raise": "RuntimeError: the simulator broke",
    "exit": "UserExitError: SystemExit(3) was raised in",
    "nan": "it returned an observation that is not finite",
    "infinite": "it returned an observation that is not finite",
    "reward": "it returned the reward inf",
    "large reward": "it returned the reward -2e+30, beyond 1e+30: too large to add up",
    "no reward": "it returned the reward None, which is not one number",
    "list of rewards": "it returned the reward [1.0], which is not one number",
    "text": "it returned the reward '1.5', which is not one number",
    "nan as end": "it returned terminated = nan, which is neither True nor False",
    "text as end": "it returned truncated = 'no', which is neither True nor False",
    "shape": "it returned an observation of shape (3, 1), and its space says (3,)",
    "dtype": "it returned an observation of complex64, and its space says float32",
    "short": "its step returned 4 values, and gymnasium's returns 5: observation, reward, terminated, truncated, info",
    "no tuple": "its step returned one NoneType, and gymnasium's returns 5: ",
    "no info": "it returned None as info, which is not a dict",
    "reset": "RuntimeError: the simulator does not start",
    "bare reset": "its reset returned one ndarray, and gymnasium's returns 2: observation, info",
}
"""What goes wrong, and how the log tells it."""


def config_of(troubles: Mapping[str, str], marker: Path | None = None, **settings: Any) -> EnvConfig:
    kwargs: dict[str, Any] = {"troubles": dict(troubles), "marker": None if marker is None else str(marker)}
    return EnvConfig.model_validate(
        {"make": f"{MODULE}:make_faulty", "kwargs": kwargs, "vectorization": "sync", **settings}
    )


def group_of(config: EnvConfig) -> Group:
    env = make_single(config, source_dir=None)
    return Group((AGENT,), env.observation_space, env.action_space)


class Played(NamedTuple):
    """[time, env, …]"""

    observations: Array
    reward: Array
    terminated: Array
    truncated: Array
    replaced: Array


def play(vector: Copies, seeds: list[int], steps: int = STEPS) -> Played:
    """Each environment gets actions by what it observes, so it depends on no other."""
    seen = begun(vector, seeds)
    assert not vector.any_replaced
    slots: list[tuple[Array, ...]] = []
    for _ in range(steps):
        actions = (seen[:, -1] * 8).astype(np.int64) % 3
        seen, reward, terminated, truncated, _ = stepped(vector, actions)
        slots.append((seen, reward, terminated, truncated, vector.replaced.copy()))
    return Played(*(np.stack(column) for column in zip(*slots, strict=True)))


def healthy(seeds: list[int]) -> Played:
    with closing(copies_of(config_of({}), num_envs=len(seeds), source_dir=None)) as vector:
        played = play(vector, seeds)
    assert not played.replaced.any()
    return played


def assert_replaced_once(played: Played, expected: Played, env: int, seed: int) -> None:
    """As if nothing were wrong until the bad step; then a new environment, from its first observation on."""
    times = np.flatnonzero(played.replaced[:, env])
    assert len(times) == 1, env
    (then,) = times.tolist()
    for got, wanted in zip(played[:4], expected[:4], strict=True):
        np.testing.assert_array_equal(got[:then, env], wanted[:then, env])
    fresh = replacement_seed(seed)
    assert played.observations[then, env, :2].tolist() == [fresh % SEEDS_SHOWN, 0]
    assert (played.reward[then, env], played.terminated[then, env], played.truncated[then, env]) == (0, False, False)
    alone = healthy([fresh])
    np.testing.assert_array_equal(played.observations[then + 1 :, env], alone.observations[: STEPS - then - 1, 0])
    np.testing.assert_array_equal(played.reward[then + 1 :, env], alone.reward[: STEPS - then - 1, 0])


def test_each_kind_of_trouble_costs_its_own_environment_and_no_other() -> None:
    seeds = list(range(100, 101 + len(IN_PROCESS)))
    troubles = {str(seed): trouble for seed, trouble in zip(seeds[1:], IN_PROCESS, strict=True)}
    said: list[str] = []
    with closing(
        copies_of(config_of(troubles), num_envs=len(seeds), source_dir=None, broke=said.append, remark=print)
    ) as vector:
        played = play(vector, seeds)
    expected = healthy(seeds)
    assert np.count_nonzero(played.replaced) == len(said) == len(IN_PROCESS)
    for got, wanted in zip(played, expected, strict=True):
        np.testing.assert_array_equal(got[:, 0], wanted[:, 0])
    for index, (seed, trouble) in enumerate(zip(seeds[1:], IN_PROCESS, strict=True), start=1):
        assert_replaced_once(played, expected, index, seed)
        (text,) = [
            text for text in said if text.startswith(f"environment {index} ({MODULE}:make_faulty, seed {seed}) ")
        ]
        assert f": {IN_PROCESS[trouble]}" in text
        assert f"; it is made again with seed {replacement_seed(seed)} (restart " in text
        at_reset = trouble.endswith("reset")
        assert ("at reset 2" if at_reset else f"in step {_step(text)} of episode ") in text
        assert (", after action " in text) == (not at_reset)
        assert ("Traceback (most recent call last)" in text) == ("Error: " in text.splitlines()[0])
    assert sorted(int(text.split("(restart ")[1].split()[0]) for text in said) == list(range(1, len(said) + 1))


def _step(text: str) -> int:
    step = int(text.split(" in step ")[1].split()[0])
    assert 1 <= step <= BAD_STEP
    return step


@pytest.mark.processes
@pytest.mark.usefixtures("forked")
def test_in_processes_one_that_hangs_or_dies_is_started_again_and_the_others_go_on(tmp_path: Path) -> None:
    """One process for each. The first hangs, so that nobody else is waited for until that is seen."""
    marker = tmp_path / "hangs"
    seeds = [200, 201, 202, 203, 204]
    troubles = {"200": "hang", "201": "die", "202": "raise", "203": "nan"}
    config = config_of(troubles, marker)
    said: list[str] = []

    def hangs(waited_s: float) -> bool:
        found = marker.exists()
        marker.unlink(missing_ok=True)
        return found

    vector = ProcessCopies(
        config,
        {"": group_of(config)},
        num_envs=5,
        processes=5,
        source_dir=None,
        limit=RestartLimit(4, said.append),
        hangs=hangs,
    )
    with closing(vector):
        played = play(vector, seeds)
    expected = healthy(seeds)
    for got, wanted in zip(played, expected, strict=True):
        np.testing.assert_array_equal(got[:, 4], wanted[:, 4])
    for index, seed in enumerate(seeds[:4]):
        assert_replaced_once(played, expected, index, seed)
    texts = sorted(said)
    assert len(texts) == 4
    assert " broke in a step, after action " in texts[0]
    assert "(env.step_timeout_s)" in texts[0]
    assert ": its process ended unexpectedly (exit code 7); it is made again" in texts[1]
    assert ": RuntimeError: the simulator broke; it is made again" in texts[2]
    assert "faulty.py" in texts[2]
    assert ": it returned an observation that is not finite; it is" in texts[3]
    for text, index, seed in zip(texts, range(4), seeds, strict=False):
        assert text.startswith(f"environment {index} ({MODULE}:make_faulty, seed {seed}) ")


@pytest.mark.processes
@pytest.mark.usefixtures("forked")
def test_a_constructor_that_hangs_in_a_process_is_an_error_after_a_deadline(tmp_path: Path) -> None:
    config = config_of({"*": "build"}, tmp_path / "built", vectorization="async", build_timeout_s=3.0)
    with pytest.raises(EnvironmentBuildError) as refused:
        copies_of(config, num_envs=1, source_dir=None)
    assert f"environment 0 ({MODULE}:make_faulty) could not be built: it hung for " in str(refused.value)
    assert "(env.build_timeout_s)" in str(refused.value)


@pytest.mark.processes
@pytest.mark.usefixtures("forked")
def test_all_environments_of_a_lost_process_begin_again_and_the_one_at_fault_is_named() -> None:
    config = config_of({"301": "die"})
    said: list[str] = []
    vector = ProcessCopies(
        config, {"": group_of(config)}, num_envs=3, processes=1, source_dir=None, limit=RestartLimit(1, said.append)
    )
    with closing(vector):
        played = play(vector, [300, 301, 302])
    (then,) = np.flatnonzero(played.replaced.all(axis=1)).tolist()
    assert np.count_nonzero(played.replaced) == 3
    assert played.observations[then, :, 0].tolist() == [
        replacement_seed(seed) % SEEDS_SHOWN for seed in (300, 301, 302)
    ]
    (text,) = said
    assert text.startswith(
        f"environment 1 ({MODULE}:make_faulty, seed 301) broke in a step, with environments 0 to 2 in its process"
    )
    assert ": its process ended unexpectedly (exit code 7);" in text


def test_beyond_the_limit_an_hour_it_fails_with_the_cause() -> None:
    now_s, said = [0.0], list[str]()
    limit = RestartLimit(2, said.append, clock=lambda: now_s[0])
    fault = Fault(3, "Walk-v0", 5, "in step 7 of episode 2", "[1, 2]", "it returned the reward nan", 6)
    limit(fault)
    now_s[0] = 3_000.0
    limit(fault)
    now_s[0] = 3_599.0
    with pytest.raises(BrokenEnvironmentError) as caught:
        limit(fault)
    assert str(caught.value) == (
        "environment 3 (Walk-v0, seed 5) broke in step 7 of episode 2, after action [1, 2]: it returned the reward "
        "nan; all 2 restarts within an hour (env.restarts_per_hour) are used up: 2 x it returned the reward nan"
    )
    now_s[0] = 3_600.0  # the first is an hour ago
    limit(fault)
    assert [text.split("; ")[1] for text in said] == [
        "it is made again with seed 6 (restart 1 of at most 2 an hour)",
        "it is made again with seed 6 (restart 2 of at most 2 an hour)",
        "it is made again with seed 6 (restart 2 of at most 2 an hour)",
    ]


def test_the_end_names_the_commonest_kinds_of_fault_by_an_example() -> None:
    limit = RestartLimit(8, lambda text: None, clock=lambda: 0.0)
    problems = [f"RuntimeError: port {4_000 + number} is taken" for number in range(4)]
    problems += ["TimeoutError: no frame", "TimeoutError: no frame", "it returned the reward nan", "KeyError: 'x'"]
    for problem in problems:
        limit(Fault(0, "Walk-v0", 5, "in step 7 of episode 2", "", problem, 6))
    said = "4 x RuntimeError: port 4000 is taken, 2 x TimeoutError: no frame, 1 x it returned .*, 1 x other problems$"
    with pytest.raises(BrokenEnvironmentError, match=said):
        limit(Fault(0, "Walk-v0", 5, "in step 7 of episode 2", "", "it returned the reward nan", 6))


def test_with_no_restarts_the_first_fault_fails_and_names_what_was_raised() -> None:
    config = config_of({"*": "raise"}, restarts_per_hour=0)
    with (
        closing(copies_of(config, num_envs=2, source_dir=None)) as vector,
        pytest.raises(BrokenEnvironmentError, match=r"RuntimeError: the simulator broke; .* is 0$") as caught,
    ):
        play(vector, [1, 2])
    assert isinstance(caught.value.__context__, RuntimeError)


def guarded(build: Callable[[], SingleEnv], said: list[Fault]) -> ReplaceableEnv:
    return ReplaceableEnv(build, index=0, name="Walk-v0", broke=said.append)


def test_one_that_breaks_again_and_again_without_a_good_step_fails_soon() -> None:
    """Whatever the limit an hour is: it would break again."""
    said: list[Fault] = []
    config = config_of({"*": "reset"})
    env = guarded(lambda: make_single(config, source_dir=None), said)
    env.reset(seed=1)
    seeds = [env.reset()[0][0] for _ in range(MOST_IN_A_ROW - 1)]
    assert len(set(seeds)) == len(said) == MOST_IN_A_ROW - 1
    with pytest.raises(BrokenEnvironmentError, match=f"{MOST_IN_A_ROW} times in a row it broke without a good step"):
        env.reset()
    env.close()


def test_memory_errors_are_not_the_environments_own() -> None:
    """A process without memory is not to be trusted any more."""
    env = guarded(lambda: make_single(config_of({}), source_dir=None), [])
    env.reset(seed=1)

    def step(action: Any) -> Any:
        raise MemoryError

    env.env.step = step
    with pytest.raises(MemoryError):
        env.step(0)


def test_closing_may_fail_and_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Of an environment that broke, and at the end of a run, which has its result already."""
    env = guarded(lambda: make_single(config_of({"5": "raise"}), source_dir=None), [])
    env.reset(seed=5)

    def close() -> None:
        raise OSError("still busy")

    env.env.close = close
    for _ in range(STEPS):
        _, _, terminated, _, _ = env.step(0)
        if env.replaced:
            break
        if terminated:
            env.reset()
    said = "environment 0 (Walk-v0): closing it raised OSError: still busy"
    assert said in capsys.readouterr().err
    env.env.close = close
    LocalCopies.of_one_agent([env]).close()
    assert said in capsys.readouterr().err


class Rooms(gymnasium.Env[Any, Any]):
    """Observes a room from 0 to 3, and one that does not exist in its second step."""

    observation_space, action_space = spaces.Discrete(4), spaces.Discrete(2)

    def __init__(self, missing: int) -> None:
        self.missing = missing

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        self.steps = 0
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return (3 if self.steps == 1 else self.missing), 0.0, False, False, {}


@pytest.mark.parametrize("missing", [-1, 4])
def test_an_integer_outside_its_space_is_a_fault_and_no_other_state(missing: int) -> None:
    """Networks read -1 as the last value, and have no entry for 4."""
    said: list[Fault] = []
    env = guarded(lambda: Rooms(missing), said)
    env.reset(seed=1)
    assert env.step(0)[0] == 3
    assert env.step(0)[0] == 0  # of a new environment
    assert f"it returned the observation {missing}, and its space says 0 to 3" in said[0].text()


class Falling(gymnasium.Env[Any, Any]):
    """Falls faster and faster, observed as float16, and infinitely fast in its second step."""

    observation_space, action_space = spaces.Box(-np.inf, np.inf, (1,), np.float16), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        self.speed = 60_000.0
        return np.array([self.speed], np.float16), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.speed = self.speed + 3_000.0 if self.speed < 63_000.0 else np.inf
        return np.array([self.speed], np.float16), 0.0, False, False, {}


def test_infinity_of_float16_is_a_fault() -> None:
    said: list[Fault] = []
    env = guarded(Falling, said)
    env.reset(seed=1)
    assert env.step(0)[0] == np.float16(63_000.0)
    assert env.step(0)[0] == 60_000.0  # of a new environment
    assert "it returned an observation that is not finite" in said[0].text()
