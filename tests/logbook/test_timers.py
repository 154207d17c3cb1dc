"""Timers: blocks inside blocks, seconds by an injected clock, and the tree that timers.json holds."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.logbook.timers import Flat, Timers, add, tree


class Clock:
    """Moves when told."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_blocks_count_and_add_up() -> None:
    clock = Clock()
    timers = Timers(clock)
    for _ in range(3):
        with timers("collect"):
            clock.now_s += 1.0
            with timers("act"):
                clock.now_s += 0.25
        with timers("wait"):
            clock.now_s += 2.0
    assert timers.flat() == {"collect": (3, 3.75), "collect/act": (3, 0.75), "wait": (3, 6.0)}
    assert timers.elapsed_s == 9.75


def fail_inside(timers: Timers, clock: Clock) -> None:
    with timers("collect"), timers("step"):
        clock.now_s += 1.0
        raise ZeroDivisionError


def test_an_exception_leaves_the_block() -> None:
    clock = Clock()
    timers = Timers(clock)
    with pytest.raises(ZeroDivisionError):
        fail_inside(timers, clock)
    with timers("after"):
        clock.now_s += 1.0
    assert timers.flat() == {"collect": (1, 1.0), "collect/step": (1, 1.0), "after": (1, 1.0)}


def test_a_name_cannot_pass_for_a_path() -> None:
    timers = Timers(Clock())
    with timers("a/b"):
        pass
    assert list(timers.flat()) == ["a|b"]


def test_tree_gives_shares_and_own_time() -> None:
    flat: Flat = {"collect": (2, 6.0), "collect/act": (8, 1.5), "waiting for credit": (1, 2.0)}
    assert tree(flat, 10.0) == {
        "total_s": 10.0,
        "self_s": 2.0,
        "blocks": {
            "collect": {
                "count": 2,
                "share": 0.6,
                "total_s": 6.0,
                "self_s": 4.5,
                "blocks": {"act": {"count": 8, "share": 0.25, "total_s": 1.5, "self_s": 1.5}},
            },
            "waiting for credit": {"count": 1, "share": 0.2, "total_s": 2.0, "self_s": 2.0},
        },
    }


names = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3)


@given(st.lists(st.tuples(names, st.floats(0, 10)), max_size=20))
def test_own_times_of_all_blocks_add_up_to_the_whole(calls: list[tuple[list[str], float]]) -> None:
    clock = Clock()
    timers = Timers(clock)

    def enter(path: list[str], seconds: float) -> None:
        if not path:
            clock.now_s += seconds
            return
        with timers(path[0]):
            enter(path[1:], seconds)

    for path, seconds in calls:
        enter(path, seconds)

    def own(node: dict[str, object]) -> float:
        blocks = cast("dict[str, dict[str, object]]", node.get("blocks", {}))
        return cast("float", node["self_s"]) + sum(own(block) for block in blocks.values())

    assert own(tree(timers.flat(), timers.elapsed_s)) == pytest.approx(timers.elapsed_s, abs=1e-3)


def test_two_processes_add_up() -> None:
    left: Flat = {"collect": (1, 1.0), "collect/act": (2, 0.5)}
    right: Flat = {"collect": (3, 2.0), "wait": (1, 1.0)}
    assert add(left, right) == {"collect": (4, 3.0), "collect/act": (2, 0.5), "wait": (1, 1.0)}
    assert left == {"collect": (1, 1.0), "collect/act": (2, 0.5)}
