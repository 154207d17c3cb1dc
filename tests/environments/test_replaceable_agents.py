"""A copy of an environment with several agents that breaks is named and made again; the other copies go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from remuda.environments.copies import LocalCopies
from remuda.environments.errors import Fault
from remuda.environments.lanes import Group
from remuda.environments.replaceable import ReplaceableEnv
from remuda.tests.environments.leaving import Leaving, Stepped

AGENTS = ("a0", "a1")


class Faulty(Leaving):
    """In its third step it does something wrong; `made` counts those that were made."""

    def __init__(self, wrong: Callable[[Stepped], Any]) -> None:
        super().__init__([9, 9])
        self.wrong = wrong

    def step(self, actions: dict[str, Any]) -> Any:
        stepped = super().step(actions)
        return self.wrong(stepped) if self.steps == 3 else stepped


def raised(stepped: Stepped) -> Stepped:
    raise RuntimeError("the rope tore")


def exited(stepped: Stepped) -> Stepped:
    raise SystemExit(0)


def observed(value: Any) -> Callable[[Stepped], Stepped]:
    return lambda stepped: ({**stepped[0], "a1": value}, *stepped[1:])


def informed(value: Any) -> Callable[[Stepped], Stepped]:
    return lambda stepped: (*stepped[:4], {**stepped[4], "a1": value})


def paid(value: Any) -> Callable[[Stepped], Stepped]:
    return lambda stepped: (stepped[0], {**stepped[1], "a1": value}, *stepped[2:])


def without(part: int) -> Callable[[Stepped], Any]:
    return lambda stepped: (*stepped[:part], None, *stepped[part + 1 :])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (raised, "RuntimeError: the rope tore"),
        (exited, "SystemExit(0) was raised"),
        (observed(np.full(3, np.nan, np.float32)), "it returned an observation that is not finite (agent a1)"),
        (observed(np.zeros(1, np.float32)), "an observation of shape (1,), and its space says (3,) (agent a1)"),
        (paid(np.inf), "it returned the reward inf (agent a1)"),
        *((without(part), "'NoneType'") for part in range(4)),
        (informed(None), "it returned None as info, which is not a dict (agent a1)"),
        (
            lambda stepped: stepped[:4],
            "its step returned 4 values, and PettingZoo's returns 5: observations, rewards, ",
        ),
    ],
)
def test_whatever_is_wrong_is_named_and_costs_its_own_copy_alone(wrong: Callable[[Stepped], Any], said: str) -> None:
    faults: list[Fault] = []
    made: list[Leaving] = []

    def build() -> Leaving:
        made.append(Faulty(wrong) if len(made) == 1 else Leaving([9, 9]))
        return made[-1]

    copies: list[Any] = [ReplaceableEnv(build, index=at, name="walk", broke=faults.append) for at in range(2)]
    vector = LocalCopies(copies, [Group.of(copies[0], AGENTS)])
    vector.reset([5, 6])
    (lanes,) = vector.lanes
    actions = [np.ones(len(lanes), np.int64)]
    assert [vector.step(actions) for _ in range(2)] == [2, 2]
    assert not vector.replaced.any()
    assert vector.step(actions) == 1, "the step that broke counts for nothing"
    assert vector.replaced.tolist() == vector.begun.tolist() == [False, True]
    assert lanes.observations[:, 1].tolist() == [3, 3, 0, 0], "the other has stepped, this one begins"
    assert lanes.reward.tolist() == [3.0, 103.0, 0.0, 0.0]
    assert not lanes.over.any()
    assert made[1].closed
    (fault,) = faults
    assert fault.text().startswith("environment 1 (walk, seed 6) broke in step 3 of episode 1, after action [1, 1]: ")
    assert said in fault.text()
    assert made[2].seeds == [fault.fresh_seed] != [6]
    assert vector.step(actions) == 2
    assert not vector.replaced.any()


@pytest.mark.parametrize(("agents", "other"), [(1, "a1"), (3, "a2")])
def test_one_that_is_made_again_has_the_agents_of_the_first(agents: int, other: str) -> None:
    faults: list[Fault] = []
    made = iter([Faulty(raised), Leaving([9] * agents), Leaving([9, 9])])
    copy = ReplaceableEnv(lambda: next(made), index=0, name="walk", broke=faults.append)
    copy.reset(seed=4)
    for _ in range(3):
        copy.step(dict.fromkeys(AGENTS, 0))
    assert copy.agents == list(AGENTS)
    assert f"made again, only one of the two has an agent {other}" in faults[1].problem
