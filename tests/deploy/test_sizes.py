"""The sizes that are chosen from costs: bounds, what is given, and cases by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.deploy.sizes import (
    GOOD_ENOUGH,
    MOST_COLLECTORS,
    MOST_ENVS,
    Costs,
    Sizes,
    SizingTask,
    choose,
    env_steps_per_s,
    log_lines,
    monotone,
)
from remuda.environments.processes import ROUND_TRIP_S

US = 1e-6
ALL = SizingTask(collectors=None, num_envs=None)
seconds = st.floats(1e-6, 1e-1)
costs_of_any_kind = st.builds(
    Costs,
    cores=st.integers(1, 12),
    vector_s=st.fixed_dictionaries({1: seconds}, optional={32: seconds}),
    act_s=st.fixed_dictionaries({1: seconds, 8: seconds, 64: seconds}),
    learn_s=st.fixed_dictionaries({1: seconds}, optional={2: seconds}),
).map(monotone)
number = st.none() | st.integers(1, 20)
asked_of_any_kind = st.builds(
    SizingTask,
    collectors=number,
    num_envs=number,
    least_collectors=st.integers(1, 3),
    segments=st.none() | st.integers(1, 70),
    serial=st.booleans(),
    takes_turns=st.booleans(),
    coupled=st.booleans(),
    in_processes=st.booleans(),
)


def test_a_larger_size_that_took_less_time_was_disturbed_less() -> None:
    noisy = Costs(2, {1: 5.0, 32: 4.0}, {1: 3.0, 8: 2.0, 64: 6.0}, {1: 1.0, 2: 2.0})
    assert monotone(noisy) == Costs(2, {1: 4.0, 32: 4.0}, {1: 2.0, 8: 2.0, 64: 6.0}, {1: 1.0, 2: 2.0})
    assert choose(noisy, ALL) == choose(monotone(noisy), ALL)


@given(costs=costs_of_any_kind, asked=asked_of_any_kind)
def test_what_is_given_stays_and_the_rest_is_within_its_bounds(costs: Costs, asked: SizingTask) -> None:
    sizes = choose(costs, asked)
    assert sizes.num_envs == (asked.num_envs or sizes.num_envs)
    assert sizes.collectors == (1 if asked.serial else asked.collectors or sizes.collectors)
    if asked.num_envs is None:
        assert 1 <= sizes.num_envs <= MOST_ENVS
    if asked.collectors is None and not asked.serial:
        assert asked.least_collectors <= sizes.collectors <= max(costs.cores, asked.least_collectors)
        assert sizes.collectors <= MOST_COLLECTORS
    assert sizes.threads in costs.learn_s


@given(costs=costs_of_any_kind, asked=asked_of_any_kind, segments=st.integers(1, 70))
def test_a_round_of_environments_is_a_whole_part_of_an_update(costs: Costs, asked: SizingTask, segments: int) -> None:
    sizes = choose(costs, replace(asked, num_envs=None, collectors=None, least_collectors=1, segments=segments))
    assert segments % (sizes.collectors * sizes.num_envs) == 0


@given(costs=costs_of_any_kind, asked=asked_of_any_kind.filter(lambda asked: asked.coupled))
def test_it_is_nearly_as_fast_as_whatever_else_the_cores_allow(costs: Costs, asked: SizingTask) -> None:
    asked = replace(asked, segments=None, in_processes=False)
    rate = env_steps_per_s(costs, asked, choose(costs, asked))
    collectors = [asked.collectors] if asked.collectors else range(asked.least_collectors, costs.cores + 1)
    for count in [1] if asked.serial else collectors:
        for num_envs in [asked.num_envs] if asked.num_envs else [1, 2, 4, 8, 16, 32, 64]:
            for threads in costs.learn_s:
                busy = max(count, threads) if asked.serial or asked.takes_turns else count + threads
                if busy <= costs.cores:
                    assert rate >= GOOD_ENOUGH * env_steps_per_s(costs, asked, Sizes(count, num_envs, threads)) * 0.999


def test_a_fast_learner_gets_as_many_collectors_as_keep_up() -> None:
    """Collectors of 8 environments: 8 steps in 8 x 90 + 80 us, 10,000 a second. The learner takes 29,000 a second."""
    costs = Costs(8, {1: 90 * US}, {1: 80 * US, 64: 80 * US}, {1: 1e6 / 29_000 * US})
    assert choose(costs, replace(ALL, num_envs=8)) == Sizes(3, 8, 1), "29,000 of 30,000: three do"


def test_an_update_of_16_segments_is_brought_by_16_environments_or_parts_of_them() -> None:
    """16 steps at once take 16 + 99 us, the next smaller part, 8, takes 2 x 107 for as many."""
    costs = Costs(2, {1: 1 * US}, {1: 99 * US, 64: 99 * US}, {1: 0.0})
    on_policy = replace(ALL, segments=16, takes_turns=True)
    assert choose(costs, replace(on_policy, serial=True)) == Sizes(1, 16, 1)
    slow = replace(costs, learn_s={1: 1_000 * US})
    assert choose(slow, replace(on_policy, serial=True)) == Sizes(1, 16, 1), "one is as fast: experience is more varied"
    assert choose(costs, on_policy) == Sizes(1, 16, 1), "115 us are 0.93 of the pace of two that take 107"
    assert choose(costs, replace(on_policy, collectors=3)) == Sizes(3, 4, 1), "parts leave a remainder"
    assert choose(costs, replace(on_policy, num_envs=20, serial=True)) == Sizes(1, 20, 1), "as it is given"


def test_environments_in_processes_share_the_cores_that_collectors_leave() -> None:
    costs = Costs(4, {1: 2_000 * US}, {1: 100 * US, 64: 100 * US}, {1: 1 * US})
    asked = replace(ALL, num_envs=8, serial=True, in_processes=True)
    expected = 8 / (2 * 2_000 * US + ROUND_TRIP_S + 100 * US)
    assert env_steps_per_s(costs, asked, Sizes(1, 8, 1)) == pytest.approx(1 / (1 / expected + 1 * US))
    together = replace(costs, vector_s={1: 2_000 * US, 32: 64_000 * US})
    in_turn = 8 / (8 * 2_000 * US + 100 * US)
    assert env_steps_per_s(together, asked, Sizes(1, 8, 1)) == pytest.approx(1 / (1 / in_turn + 1 * US))


def test_where_neither_waits_cores_are_worth_as_much_here_as_there() -> None:
    """Four cores, and two threads that learn 1.9 times as fast: 2 x 1.9 is more than 3 x 1."""
    costs = Costs(4, {1: 100 * US}, {1: 100 * US, 64: 100 * US}, {1: 1_900 * US, 2: 1_000 * US})
    assert choose(costs, replace(ALL, num_envs=8, coupled=False)) == Sizes(2, 8, 2)
    barely = replace(costs, learn_s={1: 1_100 * US, 2: 1_000 * US})
    assert choose(barely, replace(ALL, num_envs=8, coupled=False)) == Sizes(3, 8, 1)


def test_the_decision_and_its_figures_are_two_lines() -> None:
    costs = Costs(4, {1: 50 * US}, {1: 80 * US, 64: 300 * US}, {1: 8_000 * US, 2: 4_500 * US})
    asked = replace(ALL, num_envs=1)
    decision, figures = log_lines(costs, asked, Sizes(1, 1, 2), {"collector.count", "learner.threads"})
    assert decision == "auto: collector.count 1, learner.threads 2, where about 220 env steps/s are expected"
    assert figures == (
        "auto: measured on 4 cores: a step of 1 environment 50 us; acting and recording for 1 observation 80 us, "
        "64 300 us; learning from one env step with 1 thread 8 ms, 2 4.5 ms"
    )
