"""Cores and threads: what each process of a run is given, on machines of all sizes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.config.schema import ExperimentConfig
from remuda.tests.patience import HANG_S
from remuda.wire.messages import Role
from remuda.worker.affinity import MOST_THREADS, choose_cores, most_update_threads

ROLES: tuple[Role, ...] = ("learner", "collector", "evaluator")


def config(affinity: object, *, collectors: int = 2, evaluators: int = 1, ranks: int = 1) -> ExperimentConfig:
    return ExperimentConfig.model_validate(
        {
            "name": "x",
            "env": {"id": "CartPole-v1"},
            "collector": {"count": collectors},
            "evaluator": {"count": evaluators},
            "learner": {"ranks": ranks},
            "affinity": affinity,
        }
    )


def test_auto_binds_nobody_where_there_are_fewer_cores_than_processes() -> None:
    """Two cores, four processes: exactly what `none` does."""
    for role in ROLES:
        auto, none = (choose_cores(config(word), role, 0, [1, 0]) for word in ("auto", "none"))
        assert (auto.cores, auto.threads) == (none.cores, none.threads) == ((0, 1), 1)
    assert choose_cores(config("auto"), "learner", 0, [0, 1]).reason == (
        "auto: 4 processes are more than 2 cores, so none is bound"
    )
    assert len(choose_cores(config("auto", ranks=2), "learner", 0, range(4)).cores) == 4, "two ranks on one core"
    assert choose_cores(config("auto", ranks=2), "learner", 0, range(5)).cores == (0, 1)


@given(st.integers(1, 6), st.integers(1, 3), st.sets(st.integers(0, 63), min_size=1))
def test_auto_never_shares_a_core_when_it_binds(collectors: int, evaluators: int, allowed: set[int]) -> None:
    asked = config("auto", collectors=collectors, evaluators=evaluators)
    places = [choose_cores(asked, "learner", 0, sorted(allowed))]
    places += [choose_cores(asked, "collector", index, sorted(allowed)) for index in range(collectors)]
    places += [choose_cores(asked, "evaluator", index, sorted(allowed)) for index in range(evaluators)]
    cores = [core for place in places for core in place.cores]
    assert set(cores) <= allowed
    if 1 + collectors + evaluators <= len(allowed):
        assert sorted(cores) == sorted(allowed)
    else:
        assert all(place.cores == tuple(sorted(allowed)) for place in places)


def test_named_cores_are_kept_to() -> None:
    for ranks, threads in ((1, 4), (2, 2), (8, 1)):
        of_ranks = choose_cores(config({"learner": [0, 1, 2, 3]}, ranks=ranks), "learner", 0, range(4))
        assert of_ranks.threads == threads, "they share them"
    elsewhere = config({"learner": [0, 5], "collector": [1, 2]})  # a batch system has given us others than were named
    assert choose_cores(elsewhere, "learner", 0, [5, 6]).cores == (5,)
    assert choose_cores(elsewhere, "collector", 0, [5, 6]).reason == "none of the cores 1-2 may be used here"
    told = config({"learner": [0, 1], "collector": [2, 3]}, collectors=3)
    learner = choose_cores(told, "learner", 0, range(8))
    assert (learner.cores, learner.threads) == ((0, 1), 2)
    assert [choose_cores(told, "collector", index, range(8)).cores for index in range(3)] == [(2,), (3,), (2,)]
    assert choose_cores(told, "evaluator", 0, range(8)).cores == tuple(range(8))


def update_threads(
    affinity: object, cores: int, *, alone: bool = False, lag: int | None = None, follow: bool = True
) -> int:
    """Of DQN, or with a `lag` of PPO; with two collectors and an evaluator where it is not `alone`."""
    asked = config(affinity)
    if lag is not None:
        asked = ExperimentConfig.model_validate(
            asked.model_dump(exclude={"policy"}) | {"policy": {"type": "ppo"}, "buffer": {"max_policy_lag": lag}}
        )
    return most_update_threads(asked, alone=alone, allowed=range(cores), follow=follow)


@pytest.mark.parametrize("affinity", ["none", "auto"])
def test_an_update_has_the_machine_to_itself_where_nobody_else_works(affinity: str) -> None:
    assert update_threads(affinity, 2, alone=True) == 2
    assert update_threads(affinity, 2, lag=0) == 2, "strictly on-policy: collectors wait"
    assert update_threads("none", 64, alone=True) == MOST_THREADS


def test_otherwise_it_has_what_collectors_leave() -> None:
    assert update_threads("none", 8) == update_threads("auto", 3) == 1
    assert update_threads("none", 8, lag=1) == 1
    assert update_threads("auto", 5) == 2, "two collectors and an evaluator have a core of their own"
    assert update_threads({"learner": [0, 1, 2]}, 8) == 3
    assert update_threads({"learner": [0]}, 8, lag=0) == 1


@pytest.mark.parametrize("wrong", [{"learner": []}, {"colector": [1]}, "all"])
def test_what_cannot_be_meant_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="affinity"):
        config(wrong)


SETTLE = """
import os, threading
import numpy, torch
from remuda.config.schema import ExperimentConfig
from remuda.worker.affinity import bind_cores
def config(affinity):
    return ExperimentConfig.model_validate({"name": "x", "env": {"id": "CartPole-v1"}, "affinity": affinity})
before = os.sched_getaffinity(0)
one = min(before)
print(bind_cores(config({"learner": [one]}), "learner", 0))
assert os.sched_getaffinity(0) == {one} and torch.get_num_threads() == 1
bind_cores(config("none"), "learner", 0)
assert os.sched_getaffinity(0) == before, "the next lease is not bound by the one before"
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds no process to cores")
def test_a_process_is_bound_and_let_loose_again() -> None:
    done = subprocess.run([sys.executable, "-c", SETTLE], capture_output=True, text=True, timeout=HANG_S, check=True)
    core = min(os.sched_getaffinity(0))
    assert done.stdout.strip() == f"affinity: this learner runs on core {core} with 1 torch thread (as the config says)"
