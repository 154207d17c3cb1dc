"""What agents do goes into the chunks of their policies: every step of every agent once, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.collector.collected import Collected
from remuda.collector.opponents import LeagueLanes, OpponentLanes
from remuda.collector.recorder import Behavior, PolicySetup
from remuda.collector.rollout import Rollout
from remuda.collector.rows import NStepRows, SegmentRows, SequenceRows
from remuda.config.environment import EnvConfig
from remuda.config.learning import SelfPlayConfig
from remuda.config.schema import ExperimentConfig
from remuda.environments.copies import LocalCopies
from remuda.environments.lanes import Group
from remuda.environments.replaceable import ReplaceableEnv
from remuda.environments.spaces import Array
from remuda.policy.opponent_pool import Opponent
from remuda.tests.environments.leaving import Done, Leaving
from remuda.tests.policy.algorithms.untaught import Untaught
from remuda.wire.messages import PolicyRef

DISCOUNT = 0.9


class Fixed(Untaught):
    """Takes one action, always; records it, too."""

    def __init__(self, action: int) -> None:
        self.action = action

    def recorded(self) -> Mapping[str, tuple[tuple[int, ...], str]]:
        return {"twice": ((), "float32")}

    def act(self, observations: Array, exploration: Any, rng: Any, **options: Any) -> Array:
        return np.full(len(observations), self.action, np.int64)

    def act_recording(
        self, observations: Array, exploration: Any, rng: Any, **options: Any
    ) -> tuple[Array, dict[str, Array]]:
        actions = self.act(observations, exploration, rng)
        return actions, {"twice": 2.0 * actions}


def rollout_of(
    envs: Sequence[Leaving],
    seats: Sequence[PolicySetup],
    groups: Sequence[Sequence[str]],
    *,
    share: float = 0.0,
    older: Sequence[Sequence[Opponent]] = (),
    league: bool = False,
) -> Rollout:
    """In a `league` each policy plays against itself, and in `share` of its episodes against the first checkpoint."""
    vector = LocalCopies(envs, [Group.of(envs[0], agents) for agents in groups])
    opponents = None
    if older:
        game = EnvConfig(kind="pettingzoo", make="game:make")
        config = ExperimentConfig(name="past", env=game, self_play=SelfPlayConfig(share=share))
        kind = LeagueLanes if league else OpponentLanes
        opponents = kind(vector, {str(index): config for index in range(len(groups))})
        opponents.play_against(older, [[1.0 - share, share]])
    return Rollout(vector, seats, rng=np.random.default_rng(0), seeds=list(range(len(envs))), opponents=opponents)


def behaviors(*versions: int) -> list[Behavior]:
    return [Behavior({}, PolicyRef(0, version, version)) for version in versions]


def steps_of(chunks: Sequence[Collected]) -> list[tuple[Any, ...]]:
    """Of rows of single steps: what was seen, the action, the reward, and whether anything follows."""
    return sorted(
        (*row["obs"].tolist(), int(row["action"]), float(row["reward"]), float(row["discount"]) > 0)
        for chunk in chunks
        for row in ({name: column[i] for name, column in chunk.columns.items()} for i in range(chunk.rows))
    )


def slots_of(chunks: Sequence[Collected]) -> list[tuple[Any, ...]]:
    """The same of the valid slots of segments."""
    told: list[tuple[Any, ...]] = []
    for chunk in chunks:
        c = chunk.columns
        for row, slot in np.argwhere(c["valid"]):
            assert c["twice"][row, slot] == 2 * c["action"][row, slot]
            over = bool(c["terminated"][row, slot])
            told.append(
                (*c["obs"][row, slot].tolist(), int(c["action"][row, slot]), float(c["reward"][row, slot]), not over)
            )
    return sorted(told)


def done_by(envs: Sequence[Leaving], agents: Sequence[str]) -> list[tuple[Any, ...]]:
    """What these agents really did."""
    return sorted(
        (*done.seen, done.action, done.reward, not done.terminated)
        for env in envs
        for done in env.log
        if done.agent in agents
    )


def test_by_hand() -> None:
    """One copy; a0 leaves after 1 step, a1 after 3, which then is an episode: 3 environment steps, a reset in between.
    Chunks of 4 steps: steps 1 to 3 of the first episode, the reset, step 1 of the second."""
    envs = [Leaving([1, 3])]
    seats = [PolicySetup(policy=Fixed(1), rows=NStepRows(n_step=1, discount=DISCOUNT)),
             PolicySetup(policy=Fixed(2), rows=NStepRows(n_step=1, discount=DISCOUNT))]  # fmt: skip
    rollout = rollout_of(envs, seats, [["a0"], ["a1"]])
    short, long = rollout.collect(4, behaviors(5, 6))
    assert envs[0].steps == short.env_steps == long.env_steps == 4
    assert steps_of([short]) == [(0, 0, 0, 1, 1.0, False), (0, 0, 1, 1, 1.0, False)]
    assert steps_of([long]) == [
        (1, 0, 0, 2, 101.0, True), (1, 0, 1, 2, 101.0, True), (1, 1, 0, 2, 102.0, True), (1, 2, 0, 2, 103.0, True)
    ]  # fmt: skip
    assert (short.policy.version, long.policy.version) == (5, 6)
    assert (short.episode_returns, short.episode_lengths) == ([1.0, 1.0], [1, 1])
    assert (long.episode_returns, long.episode_lengths) == ([306.0], [3])
    assert long.episode_info["discounted_return"] == pytest.approx([101 + 0.9 * 102 + 0.81 * 103])
    second, _ = rollout.collect(2, behaviors(6, 6))
    assert second.rows == 0, "a0 has left, and its copy has not been reset"


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("groups", [[["a0"], ["a1"]], [["a0", "a1"]]], ids=["two policies", "one policy"])
def test_a_copy_that_breaks_costs_only_the_step_in_which_it_broke(segments: bool, groups: list[list[str]]) -> None:
    """Each good step is a row once, before and after; an episode that was cut has no return, and counts nowhere."""
    made: list[Leaving] = []

    def build() -> Leaving:
        made.append(Leaving([2, 4], fails_at={0: 2, 1: 7}.get(len(made))))  # with both agents there, and with one
        return made[-1]

    def seat() -> PolicySetup:
        rows = SegmentRows(discount=DISCOUNT) if segments else NStepRows(n_step=1, discount=DISCOUNT)
        return PolicySetup(policy=Fixed(0), rows=rows, episode_info=("return_a0", "return_a1"))

    copies: list[Any] = [ReplaceableEnv(build, index=at, name="x", broke=lambda fault: None) for at in range(2)]
    vector = LocalCopies(copies, [Group.of(copies[0], agents) for agents in groups])
    rollout = Rollout(vector, [seat() for _ in groups], rng=np.random.default_rng(0), seeds=[0, 1])
    told = [0 for _ in groups]
    chunks = [rollout.collect(env_steps, behaviors(*told)) for env_steps in (2, 8, 6, 10)]
    rest = rollout.flush()
    good = sum(len({(done.episode, done.step) for done in env.log}) for env in made)
    assert sum(chunk.env_steps for chunk, *_ in chunks) == good
    for place, agents in enumerate(groups):
        own = [chunk[place] for chunk in chunks]
        rows = slots_of(own) if segments else steps_of([*own, rest[place]])
        assert rows == done_by(made, agents)
        assert sum(chunk.counts["env_restart_count"] for chunk in own) == 2
        returns = {value for chunk in own for value in chunk.episode_returns}
        assert returns == {{"a0": 3.0, "a1": 410.0}[agent] for agent in agents}, "of whole episodes only"
        if len(agents) > 1:
            for chunk in own:
                of_a0, of_a1 = chunk.episode_info["return_a0"], chunk.episode_info["return_a1"]
                assert set(of_a0) <= {3.0}
                assert set(of_a1) <= {410.0}
                assert len(of_a0) + len(of_a1) == len(chunk.episode_returns)


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=2, max_size=4),
    late=st.booleans(),
    copies=st.integers(1, 3),
    n_step=st.integers(1, 3),
    chunks=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    first=st.integers(1, 3),
)
def test_each_step_of_each_agent_is_one_row_of_its_policy(
    lengths: list[int], late: bool, copies: int, n_step: int, chunks: list[int], first: int
) -> None:
    """With rows of one step: each once, with its reward. With n steps: as many rows as steps, each seen once."""
    comes = 1 if late and max(lengths[:-1]) > 1 else 0
    if comes:
        lengths[-1] += comes
    envs = [Leaving(lengths, late=comes) for _ in range(copies)]
    names = envs[0].possible_agents
    groups = [names[:first], names[first:]] if first < len(names) else [names]
    seats = [
        PolicySetup(policy=Fixed(number), rows=NStepRows(n_step=n_step, discount=DISCOUNT))
        for number in range(len(groups))
    ]
    rollout = rollout_of(envs, seats, groups)
    collected: list[list[Collected]] = []
    for asked in chunks:
        before = sum(env.steps for env in envs)
        collected.append(rollout.collect(asked, behaviors(*[0] * len(groups))))
        taken = sum(env.steps for env in envs) - before
        assert {chunk.env_steps for chunk in collected[-1]} == {taken}
        assert asked <= taken < asked + copies
    for number, agents in enumerate(groups):
        given_out = [chunk[number] for chunk in collected]
        done = [step for env in envs for step in env.log if step.agent in agents]
        seen = [obs for *obs, _, _, _ in steps_of(given_out)]
        ends = [step for step in done if step.terminated or step.truncated]
        assert sum(len(chunk.episode_returns) for chunk in given_out) == len(ends)
        assert sorted(length for chunk in given_out for length in chunk.episode_lengths) == sorted(
            step.step + 1 - (comes if step.agent == names[-1] else 0) for step in ends
        )
        if n_step == 1:
            assert steps_of(given_out) == done_by(envs, agents)
        else:
            told = sorted(step.seen for step in done)
            assert len(seen) <= len(told)
            remaining = list(told)
            for obs in seen:
                remaining.remove(tuple(obs))  # each step at most once
            assert len(remaining) <= (n_step - 1) * copies * len(agents), "only those that wait for later steps"


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=3),
    copies=st.integers(1, 3),
    horizon=st.integers(1, 6),
    chunks=st.integers(1, 5),
)
def test_each_step_of_each_agent_is_one_valid_slot(lengths: list[int], copies: int, horizon: int, chunks: int) -> None:
    envs = [Leaving(lengths) for _ in range(copies)]
    seat = PolicySetup(policy=Fixed(1), rows=SegmentRows(discount=DISCOUNT))
    rollout = rollout_of(envs, [seat], [envs[0].possible_agents])
    collected = [rollout.collect(horizon * copies, behaviors(3))[0] for _ in range(chunks)]
    assert slots_of(collected) == done_by(envs, envs[0].possible_agents)
    assert sum(chunk.env_steps for chunk in collected) == sum(env.steps for env in envs)
    for chunk in collected:
        columns = chunk.columns
        assert columns["obs"].shape[1:] == (horizon + 1, 3)
        assert chunk.rows in (0, copies * len(lengths)), "also of agents that are away"
        assert columns["valid"].any() == (chunk.rows > 0), "a chunk without any step has no rows"
        assert {len(column) for column in columns.values()} == {chunk.rows}
        assert (columns["version"] == 3).all()
        assert not (columns["done"] & ~columns["valid"]).any()


def test_sequences_go_on_through_the_time_in_which_an_agent_is_away() -> None:
    """a0 leaves after 1 of 4 steps: its slots are a step, 3 away, the reset; in sequences of 3 slots, every 3."""
    envs = [Leaving([1, 4])]
    seat = PolicySetup(policy=Fixed(0), rows=SequenceRows(slots=3, period_slots=3, discount=DISCOUNT))
    away = PolicySetup(policy=Fixed(0), rows=SequenceRows(slots=3, period_slots=3, discount=DISCOUNT))
    short, _ = rollout_of(envs, [seat, away], [["a0"], ["a1"]]).collect(12, behaviors(0, 0))
    assert short.columns["valid"].tolist() == [[True, False, False], [False, False, True], [False, True, False]]
    assert short.columns["done"].tolist() == short.columns["valid"].tolist()


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 4), min_size=2, max_size=3),
    copies=st.integers(1, 3),
    share=st.sampled_from([0.5, 1.0]),
    league=st.booleans(),
    chunks=st.lists(st.integers(1, 15), min_size=1, max_size=4),
)
def test_what_older_policies_play_is_not_learned_from(
    lengths: list[int], copies: int, share: float, league: bool, chunks: list[int]
) -> None:
    """The newest takes action 1, older ones take 2: rows are exactly the steps with action 1."""
    envs = [Leaving(lengths) for _ in range(copies)]
    seat = PolicySetup(policy=Fixed(1), rows=NStepRows(n_step=1, discount=DISCOUNT), episode_info=("against_past",))
    rollout = rollout_of(
        envs, [seat], [envs[0].possible_agents], share=share, older=[[Opponent(Fixed(2))]], league=league
    )
    collected = [rollout.collect(asked, behaviors(0))[0] for asked in chunks]
    done = [step for env in envs for step in env.log]
    by_newest = sorted((*step.seen, step.action, step.reward, not step.terminated) for step in done if step.action == 1)
    assert {step.action for step in done} <= {1, 2}
    assert steps_of(collected) == by_newest
    for env in envs:
        _one_learns_or_all(env.log)
    if share == 1.0:
        against = [value for chunk in collected for value in chunk.episode_info["against_past"]]
        assert against == [value for chunk in collected for value in chunk.episode_returns]


class Remembers(Untaught):
    """Takes as action how many observations of the episode it has seen before."""

    state_size = 1

    def act_recording(
        self, observations: Array, exploration: Any, rng: Any, *, legal: Any = None, state: Array | None = None
    ) -> tuple[Array, dict[str, Array]]:
        assert state is not None
        actions: Array = state[:, 0].astype(np.int64)
        state += 1.0
        return actions, {}

    def act(self, observations: Array, exploration: Any, rng: Any, **options: Any) -> Array:
        raise NotImplementedError


def test_a_newest_policy_that_plays_without_learning_remembers_the_episode() -> None:
    """In a league: one of the two policies learns, against the newest version of the other."""
    envs = [Leaving([3, 3]), Leaving([2, 3])]
    vector = LocalCopies(envs, [Group.of(envs[0], ["a0", "a1"]) for _ in range(2)])
    game = EnvConfig(kind="pettingzoo", make="game:make")
    config = ExperimentConfig(name="league", env=game, self_play=SelfPlayConfig(share=0.5))
    league = LeagueLanes(vector, {"first": config, "second": config})
    league.play_against([[], []], [[0.0, 1.0], [1.0, 0.0]])
    seats = [PolicySetup(policy=Remembers(), rows=NStepRows(n_step=1, discount=DISCOUNT)) for _ in range(2)]
    rollout = Rollout(vector, seats, rng=np.random.default_rng(0), seeds=[0, 1], opponents=league)
    rows = sum(chunk.rows for _ in range(3) for chunk in rollout.collect(10, behaviors(0, 0)))
    log = [step for env in envs for step in env.log]
    assert 0 < rows < len(log), "half of them learn"
    assert [step.action for step in log] == [step.step for step in log]


def _one_learns_or_all(log: Sequence[Done]) -> None:
    episodes: dict[int, dict[str, set[int]]] = {}
    for step in log:
        episodes.setdefault(step.episode, {}).setdefault(step.agent, set()).add(step.action)
    for agents in episodes.values():
        assert all(len(actions) == 1 for actions in agents.values()), "players stay to the end"
        assert sum(1 in actions for actions in agents.values()) in (0, 1, len(agents)), "0: not yet seen to act"


def test_a_group_without_older_policies_is_played_by_its_newest_and_learns() -> None:
    envs = [Leaving([2, 2])]
    seats = [PolicySetup(policy=Fixed(1), rows=NStepRows(n_step=1, discount=DISCOUNT)) for _ in range(2)]
    rollout = rollout_of(envs, seats, [["a0"], ["a1"]], share=1.0, older=[[Opponent(Fixed(2))], []])
    for _ in range(10):
        first, second = rollout.collect(2, behaviors(0, 0))
        assert second.rows == 2
        assert first.rows in (0, 2)


def test_the_rows_that_wait_come_at_the_end_each_once() -> None:
    envs = [Leaving([3, 7]), Leaving([3, 7])]
    seats = [PolicySetup(policy=Fixed(1), rows=NStepRows(n_step=3, discount=DISCOUNT)),
             PolicySetup(policy=Fixed(2), rows=SequenceRows(slots=4, period_slots=2, discount=DISCOUNT))]  # fmt: skip
    rollout = rollout_of(envs, seats, [["a0"], ["a1"]])
    chunks = [rollout.collect(11, behaviors(1, 1)), rollout.collect(5, behaviors(2, 2))]
    rest = rollout.flush()
    rows = sum(chunk.rows for chunk, _ in chunks) + rest[0].rows
    assert rows == len(done_by(envs, ["a0"]))
    assert [chunk.env_steps for chunk in rest] == [0, 0]
    assert all(bool(valid.any()) for valid in rest[1].columns["valid"]), "nothing without a step in it"
