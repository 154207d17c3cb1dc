"""A rollout loses no step, doubles none, and makes the rows that theory says."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.collector.collected import Collected, CorruptExperienceError
from remuda.collector.recorder import Behavior, PolicySetup
from remuda.collector.rollout import Rollout
from remuda.collector.rows import NStepRows, Rows, SegmentRows, UnrollRows
from remuda.environments.copies import LocalCopies
from remuda.environments.spaces import Array, UnusableActionsError
from remuda.environments.vectors import Vector
from remuda.policy.base import Policy
from remuda.tests.collector.rollouts import OneRollout
from remuda.tests.environments.counting import Counting, CountsAlong
from remuda.tests.environments.scripted import FunctionPolicy, ScriptedEnv, Step
from remuda.tests.policy.algorithms.untaught import Still
from remuda.wire.messages import PolicyRef

DISCOUNT = 0.9
Row = tuple[tuple[float, ...], int, float, tuple[float, ...], float]


def _itself(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    return env


def rollout_of(envs: Sequence[gymnasium.Env[Any, Any]], *, n_step: int, seed: int = 0, **options: Any) -> OneRollout:
    vector: Vector = SyncVectorEnv([partial(_itself, env) for env in envs])
    return OneRollout(
        vector,
        options.pop("policy", FunctionPolicy()),
        rows=NStepRows(n_step=n_step, discount=DISCOUNT),
        rng=np.random.default_rng(seed),
        seeds=[seed * 100 + i for i in range(len(envs))],
        **options,
    )


def naive_rows(log: Sequence[Step], cuts: Sequence[int], n_step: int) -> list[Row]:
    """One row per step, written down as the definition says. No window reaches over a cut."""
    rows: list[Row] = []
    for start, step in enumerate(log):
        limit = min(cut for cut in (*cuts, len(log)) if cut > start)
        total, m = 0.0, 0
        for later in log[start : min(start + n_step, limit)]:
            total += DISCOUNT**m * later.reward
            m += 1
            if later.terminated or later.truncated:
                break
        end = log[start + m - 1]
        rows.append((step.obs, step.action, total, end.next_obs, 0.0 if end.terminated else DISCOUNT**m))
    return rows


def rows_of(chunks: Sequence[Collected]) -> list[Row]:
    rows: list[Row] = []
    for chunk in chunks:
        columns = chunk.columns
        for i in range(chunk.rows):
            rows.append(
                (
                    tuple(columns["obs"][i].tolist()),
                    int(columns["action"][i]),
                    float(columns["reward"][i]),
                    tuple(columns["next_obs"][i].tolist()),
                    float(columns["discount"][i]),
                )
            )
    return rows


def assert_same_rows(got: list[Row], expected: list[Row]) -> None:
    got, expected = sorted(got), sorted(expected)
    assert [row[:2] + row[3:4] for row in got] == [row[:2] + row[3:4] for row in expected]
    np.testing.assert_allclose([row[2] for row in got], [row[2] for row in expected], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose([row[4] for row in got], [row[4] for row in expected], rtol=1e-6)


def naive_episodes(log: Sequence[Step], cuts: Sequence[int]) -> list[tuple[float, float, int]]:
    """Return, discounted return and length of each finished episode; one that was under way at a cut never finishes."""
    episodes: list[tuple[float, float, int]] = []
    total, discounted, length = 0.0, 0.0, 0
    for number, step in enumerate(log):
        if number in cuts:
            total, discounted, length = 0.0, 0.0, 0
        total, discounted, length = total + step.reward, discounted + DISCOUNT**length * step.reward, length + 1
        if step.terminated or step.truncated:
            episodes.append((total, discounted, length))
            total, discounted, length = 0.0, 0.0, 0
    return episodes


def episodes_of(chunks: Sequence[Collected]) -> list[tuple[float, float, int]]:
    """What the chunks say of the episodes that ended in them; one that was flushed has none."""
    columns = ((c.episode_returns, c.episode_info.get("discounted_return", []), c.episode_lengths) for c in chunks)
    return [episode for told in columns for episode in zip(*told, strict=True)]


Operation = tuple[str, int]
operations = st.lists(
    st.tuples(st.sampled_from(["collect", "collect", "flush", "raise", "nan"]), st.integers(1, 20)),
    min_size=1,
    max_size=10,
)


@settings(deadline=None)
@given(
    num_envs=st.integers(1, 4),
    n_step=st.integers(1, 5),
    longest=st.integers(1, 8),
    seed=st.integers(0, 1000),
    script=operations,
    epsilon=st.sampled_from([0.0, 0.5]),
)
def test_rows_are_those_of_the_definition_whatever_the_chunks_and_a_chunk_that_fails_never_happened(
    num_envs: int, n_step: int, longest: int, seed: int, script: list[Operation], epsilon: float
) -> None:
    envs = [ScriptedEnv(i, longest=longest) for i in range(num_envs)]
    rollout = rollout_of(envs, n_step=n_step, seed=seed)
    cuts: list[list[int]] = [[] for _ in envs]  # where windows end early: flushes and failures
    broken: list[list[int]] = [[] for _ in envs]  # where episodes were abandoned: failures
    collected: list[Collected] = []
    for kind, number in script:
        known = [len(env.log) for env in envs]
        if kind == "collect":
            collected.append(rollout.collect(number, {"epsilon": epsilon}))
            taken = sum(len(env.log) for env in envs) - sum(known)
            assert collected[-1].env_steps == taken
            assert number <= taken < number + num_envs
            continue
        for cut, length in zip(cuts, known, strict=True):
            cut.append(length)
        if kind == "flush":
            collected.append(rollout.flush())
            continue
        victim = envs[number % num_envs]
        victim.fails_in, victim.bad_reward = number, math.nan if kind == "nan" else None
        with pytest.raises(CorruptExperienceError if kind == "nan" else RuntimeError):
            rollout.collect(number * num_envs * 5, {})
        for env, length, abandoned in zip(envs, known, broken, strict=True):
            del env.log[length:]
            abandoned.append(length)
    collected.append(rollout.flush())
    expected = [row for env, cut in zip(envs, cuts, strict=True) for row in naive_rows(env.log, cut, n_step)]
    assert_same_rows(rows_of(collected), expected)
    assert sum(chunk.env_steps for chunk in collected) == len(expected)
    episodes = [pair for env, cut in zip(envs, broken, strict=True) for pair in naive_episodes(env.log, cut)]
    np.testing.assert_allclose(sorted(episodes_of(collected)), sorted(episodes), rtol=1e-9, atol=1e-9)


class Corridor(gymnasium.Env[Array, Any]):
    """Reward 1, 2, 3 …; ends after three steps, terminated or truncated as told."""

    observation_space = spaces.Box(0, 255, (2, 2), np.uint8)
    action_space = spaces.Discrete(2)

    def __init__(self, *, terminates: bool) -> None:
        self.terminates = terminates

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        self.t = 0
        return np.full((2, 2), self.t, np.uint8), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.t += 1
        ends = self.t == 3
        return (
            np.full((2, 2), self.t, np.uint8),
            float(self.t),
            ends and self.terminates,
            ends and not self.terminates,
            {},
        )


def test_a_termination_and_a_truncation_by_hand() -> None:
    rollout = rollout_of([Corridor(terminates=True), Corridor(terminates=False)], n_step=2, policy=Still())
    chunk = rollout.collect(6, {})
    # Rows in order of time, then of environment. Rewards 1, 2, 3: 1 + 0.9 * 2, 2 + 0.9 * 3, 3.
    np.testing.assert_allclose(chunk.columns["reward"], [2.8, 2.8, 4.7, 4.7, 3.0, 3.0], rtol=1e-6)
    np.testing.assert_allclose(chunk.columns["discount"], [0.81, 0.81, 0.0, 0.81, 0.0, 0.9], rtol=1e-6)
    assert chunk.columns["obs"][:, 0, 0].tolist() == [0, 0, 1, 1, 2, 2]
    assert chunk.columns["next_obs"][:, 0, 0].tolist() == [2, 2, 3, 3, 3, 3]  # the true last observation, not a reset
    assert (chunk.env_steps, chunk.episode_returns, chunk.episode_lengths) == (6, [6.0, 6.0], [3, 3])
    assert chunk.episode_info == {"discounted_return": [pytest.approx(1 + 0.9 * 2 + 0.81 * 3)] * 2}
    assert chunk.columns["obs"].dtype == np.uint8
    assert chunk.columns["obs"].shape == (6, 2, 2)
    assert {name: chunk.columns[name].dtype for name in ("action", "reward", "discount")} == {
        "action": np.int64,
        "reward": np.float32,
        "discount": np.float32,
    }
    # The vector step after it resets both: no step, no row, and the chunk after asks one more of the vector.
    again = rollout.collect(2, {})
    assert (again.env_steps, again.rows) == (2, 0)
    assert rollout.flush().columns["discount"].tolist() == pytest.approx([0.9, 0.9])


@pytest.mark.parametrize(
    ("bad", "said"),
    [(math.nan, "that is not finite"), (-math.inf, "that is not finite"), (1e39, r"beyond 1e\+30"), (-2e30, "beyond")],
)
def test_a_reward_that_cannot_be_added_up_names_environment_and_step(bad: float, said: str) -> None:
    envs = [ScriptedEnv(i, longest=100) for i in range(3)]
    envs[1].bad_reward, envs[1].fails_in = bad, 5
    rollout = rollout_of(envs, n_step=2)
    with pytest.raises(CorruptExperienceError, match=f"environment 1 returned a reward {said}") as caught:
        rollout.collect(30, {})
    assert (caught.value.env_index, caught.value.vector_step) == (1, 5)  # step 0 was the reset
    assert rollout.flush().rows == 0
    assert rollout.collect(30, {}).env_steps == 30


def test_an_observation_that_is_not_finite_is_refused_before_it_is_learned_from() -> None:
    class Drifting(Corridor):
        observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)

        def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
            self.t += 1
            return np.full(4, np.nan if self.t == 2 else 0.0, np.float32), 0.0, False, False, {}

        def reset(self, **_: Any) -> tuple[Array, dict[str, Any]]:
            self.t = 0
            return np.zeros(4, np.float32), {}

    for policy in (Still(), FunctionPolicy()):  # the second chokes on nan, which is not what must be reported
        rollout = rollout_of([Drifting(terminates=True)], n_step=1, policy=policy)
        with pytest.raises(CorruptExperienceError, match="environment 0 returned an observation that is not finite"):
            rollout.collect(30, {})


def test_a_vector_that_ends_episodes_by_its_reset_is_refused() -> None:
    env = SyncVectorEnv([lambda: ScriptedEnv(longest=1)])
    step = env.step

    def always_done(actions: Array) -> Any:
        obs, reward, _, _, info = step(actions)
        return obs, reward, np.ones(1, np.bool_), np.zeros(1, np.bool_), info

    env.step = always_done  # type: ignore[method-assign]
    rollout = OneRollout(
        env, FunctionPolicy(), rows=NStepRows(n_step=1, discount=0.9), rng=np.random.default_rng(0), seeds=[0]
    )
    with pytest.raises(CorruptExperienceError, match="NEXT_STEP"):
        rollout.collect(4, {})


def test_a_chunk_may_end_by_the_clock_and_loses_no_step_by_it() -> None:
    """Each step of the vector takes a second here."""
    now_s, steps = [0.0], list[int]()

    def stepped(env_steps: int) -> None:
        now_s[0] += 1
        steps.append(env_steps)

    envs = [ScriptedEnv(i, longest=5) for i in range(2)]
    rollout = rollout_of(envs, n_step=3, progress=stepped, clock=lambda: now_s[0])
    chunks = [rollout.collect(1_000, {}, longest_s=longest_s) for longest_s in (4.0, 0.5, 7.0)]
    assert [chunk.collect_s for chunk in chunks] == [4.0, 1.0, 7.0], "with at least one step, however slow"
    assert all(0 < chunk.env_steps < 20 for chunk in chunks)
    chunks += [rollout.collect(30, {}), rollout.flush()]
    assert sum(steps) == sum(chunk.env_steps for chunk in chunks), "each step was told"
    assert sum(chunk.env_steps for chunk in chunks) == sum(len(env.log) for env in envs)
    assert_same_rows(rows_of(chunks), [row for env in envs for row in naive_rows(env.log, [], 3)])


def test_a_chunk_names_the_oldest_policy_that_acted_in_it() -> None:
    env = ScriptedEnv(longest=1000)
    rollout = rollout_of([env], n_step=3)
    first, second, third = (PolicyRef(version=version) for version in (1, 2, 3))
    chunks = [rollout.collect(steps, {}, policy_ref=ref) for steps, ref in ((1, first), (1, second), (4, third))]
    assert env.length > 6, "the script must not end here"
    assert [(chunk.rows, chunk.policy) for chunk in chunks] == [(0, first), (0, second), (4, first)]
    assert rollout.flush().policy == third


class Pushed(ScriptedEnv):
    """Has actions of float64, and notes them."""

    action_space: spaces.Space[Any] = spaces.Box(-0.7, 0.7, (1,), np.float64)

    def __init__(self) -> None:
        super().__init__()
        self.pushes: list[float] = []

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.pushes.append(float(action[0]))
        return super().step(action[0])


class Pushing(Still):
    """Pushes as hard as it may, which float32 has not."""

    def act(self, observations: Array, exploration: Any, rng: Any, **options: Any) -> Array:
        return np.full((len(observations), 1), 0.7)


def test_steps_keep_actions_of_float64_as_the_environment_got_them_and_rows_have_float32() -> None:
    env = Pushed()
    setup = PolicySetup(policy=Pushing(), rows=NStepRows(n_step=1, discount=DISCOUNT), keeps_steps=True)
    rollout = Rollout(LocalCopies.of_one_agent([env]), [setup], rng=np.random.default_rng(0), seeds=[0])
    (chunk,) = rollout.collect(20, [Behavior({}, PolicyRef())])
    assert chunk.slots is not None
    assert chunk.slots.actions[chunk.slots.real].ravel().tolist() == env.pushes == [0.7] * chunk.env_steps
    assert chunk.columns["action"].dtype == np.float32


class Answering(Still):
    def __init__(self, actions: Any) -> None:
        self.actions = actions

    def act(self, observations: Array, exploration: Any, rng: Any, **options: Any) -> Array:
        actions: Array = self.actions
        return actions


@pytest.mark.parametrize("actions", [np.zeros((2, 1), np.int64), np.zeros(2), 0])
def test_actions_that_are_not_of_the_space_are_the_policys_fault(actions: Any) -> None:
    """An environment would be called broken, again and again."""
    why = r"Answering gave actions of shape .* shape \(2,\), int64, for 2 observations"
    with pytest.raises(UnusableActionsError, match=why):
        rollout_of([ScriptedEnv(), ScriptedEnv()], n_step=1, policy=Answering(actions)).collect(2, {})


def test_wrong_use_is_refused() -> None:
    vector: Vector = SyncVectorEnv([ScriptedEnv])
    with pytest.raises(ValueError, match="2 seeds for 1 environments"):
        OneRollout(
            vector, FunctionPolicy(), rows=NStepRows(n_step=1, discount=0.9), rng=np.random.default_rng(0), seeds=[1, 2]
        )
    with pytest.raises(ValueError, match="at least one step"):
        rollout_of([ScriptedEnv()], n_step=1).collect(0, {})


KINDS: dict[str, Callable[[], Rows]] = {
    "steps": lambda: NStepRows(n_step=2, discount=0.9),
    "segments": lambda: SegmentRows(discount=0.9),
    "unrolls": lambda: UnrollRows(unroll_steps=2, n_step=1, discount=0.9),
}


def counting(rows: Rows, *lengths: int, policy: Policy | None = None, terminates: bool = True) -> OneRollout:
    envs = [partial(Counting, length, terminates=terminates) for length in lengths]
    vector: Any = SyncVectorEnv(envs, autoreset_mode=AutoresetMode.NEXT_STEP)
    acting = policy or CountsAlong()
    return OneRollout(vector, acting, rows=rows, rng=np.random.default_rng(0), seeds=[1] * len(lengths))


@pytest.mark.parametrize("kind", KINDS)
@given(
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    terminates=st.booleans(),
)
def test_steps_of_every_episode_are_counted(kind: str, lengths: list[int], sizes: list[int], terminates: bool) -> None:
    """The policy itself checks what it is given, in every step of chunks of any size; rows hold what it had then."""
    collecting = counting(KINDS[kind](), *lengths, terminates=terminates)
    for size in sizes:
        columns = collecting.collect(size, {}).columns
        first = columns["obs"] if kind == "steps" else columns["obs"][:, 0]
        assert columns["state"].dtype == np.float32
        np.testing.assert_array_equal(columns["state"], np.repeat(first, 2, axis=1))


def test_after_a_failure_episodes_begin_with_nothing() -> None:
    collecting = counting(SegmentRows(discount=0.9), 9)
    collecting.collect(4, {})
    with pytest.raises(RuntimeError, match="gave way"):
        collecting.collect(4, {"fails": 1.0})
    assert collecting.collect(3, {}).columns["obs"].ravel().tolist() == [3.0, 0.0, 1.0, 2.0]
    assert collecting.collect(3, {}).columns["state"].tolist() == [[2.0, 2.0]]
