"""Requests of collectors that are computed together: whose turn it is, and that everybody gets what is theirs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from remuda.collector.gathering import KNOWN_S, MOST_ROWS, WAIT_S, Gathering, Request, compute
from remuda.policy.acting.network import Function
from remuda.policy.algorithms import declaration, make_policy
from remuda.policy.base import Arrays, Policy
from remuda.tests.policy.algorithms.every import CASES, Case
from remuda.wire.codec import CodecError, Frame
from remuda.wire.inference import Answer, Ask, decode_answer, decode_ask, encode, forms
from remuda.wire.messages import PolicyRef

FIRST, SECOND = PolicyRef(1, 0, 0), PolicyRef(1, 1, 10)


def observations(rows: int, start: int = 0) -> Arrays:
    return {"inputs": np.arange(start, start + rows, dtype=np.float32)[:, None]}


def ask(number: int, arrays: Arrays, policy: PolicyRef = FIRST, place: int = 0) -> Ask:
    return Ask(number, 0, place, "values", policy, forms(arrays))


class Asking:
    """Requests of several collectors, by the clock of the test."""

    def __init__(self) -> None:
        self.gathering = Gathering()

    def asks(self, peer: str, number: int, now_s: float, *, rows: int = 2, policy: PolicyRef = FIRST) -> None:
        arrays = observations(rows)
        self.gathering.add(peer.encode(), ask(number, arrays, policy), arrays, now_s)

    def taken(self, now_s: float) -> list[set[tuple[str, int]]]:
        return [{(each.peer.decode(), each.ask.number) for each in batch} for batch in self.gathering.take(now_s)]


def test_it_waits_for_all_known_collectors_but_not_for_long() -> None:
    """A collector that has gone is not waited for."""
    asking = Asking()
    asking.asks("a", 1, 0.0)
    assert asking.taken(0.0) == [{("a", 1)}], "no other is known"
    asking.asks("b", 1, 0.0)
    assert asking.taken(0.0) == []
    asking.asks("a", 2, WAIT_S / 2)
    assert asking.taken(WAIT_S / 2) == [{("b", 1), ("a", 2)}]
    asking.asks("a", 3, 0.1)
    assert asking.taken(0.1 + 0.9 * WAIT_S) == []
    assert asking.taken(0.1 + WAIT_S) == [{("a", 3)}]
    late_s = 0.1 + KNOWN_S
    asking.asks("a", 4, late_s)
    assert asking.taken(late_s) == [{("a", 4)}]


def test_a_collector_has_one_request_and_no_other_keeps_it_from_its_turn() -> None:
    """A repeated request keeps its place, a new one replaces it, and what could not be computed comes again."""
    asking = Asking()
    for peer in ("a", "b", "c"):
        asking.asks(peer, 1, 0.0)
    [batch] = asking.gathering.take(0.0)
    asking.asks("b", 2, 1e-4)
    asking.gathering.put_back(batch)
    asking.asks("a", 1, WAIT_S)
    assert asking.taken(WAIT_S) == [{("a", 1), ("b", 2), ("c", 1)}]
    assert asking.taken(9.0) == []


def test_only_what_one_computation_can_answer_is_put_together() -> None:
    asking = Asking()
    asking.asks("a", 1, 0.0)
    asking.asks("b", 1, 0.0, policy=SECOND)
    asking.asks("c", 1, 0.0, rows=MOST_ROWS - 1)
    asking.asks("d", 1, 0.0)
    assert sorted(map(sorted, asking.taken(WAIT_S))) == [[("a", 1)], [("b", 1)], [("c", 1)], [("d", 1)]]


class Here:
    """Shared inference of the process that computes."""

    elsewhere = False

    def __init__(self) -> None:
        self.functions: list[Function] = []

    def place(self, compute: Function | None) -> Function:
        assert compute is not None
        self.functions.append(compute)
        return compute


class There:
    """Shared inference of a collector, with another whose observations are computed in the same batch."""

    elsewhere = True

    def __init__(self, here: Here) -> None:
        self.here, self.places, self.asked = here, 0, 0

    def place(self, compute: Function | None) -> Function:
        place, self.places = self.places, self.places + 1
        return lambda output, arrays: self.ask(place, output, arrays)

    def ask(self, place: int, output: str, arrays: Arrays) -> Arrays:
        self.asked += 1
        gathering = Gathering()
        for peer, own in ((b"other", {name: array[::-1] for name, array in arrays.items()}), (b"this", arrays)):
            question = Ask(self.asked, 0, place, output, FIRST, forms(own))
            gathering.add(peer, *decode_ask(sent(encode(question, own))), now_s=0.0)
        [batch] = gathering.take(0.0)
        own = dict(zip([each.peer for each in batch], compute(batch, self.here.functions[place]), strict=True))[b"this"]
        answer, found = decode_answer(sent(encode(Answer(self.asked, FIRST, forms(own)), own)))
        assert (answer.number, answer.policy) == (self.asked, FIRST)
        return {name: array.copy() for name, array in found.items()}


def sent(frames: list[Frame]) -> list[Frame]:
    return [bytes(frame) for frame in frames]


def acted(policy: Policy, case: Case) -> list[np.ndarray]:
    """Actions and records of some steps of three environments."""
    rng, steps = np.random.default_rng(3), []
    exploration = {name: float(schedule[0][1]) for name, schedule in declaration(case.config).exploration.items()}
    state = np.zeros((3, policy.state_size), np.float32) if policy.state_size else None
    for step in range(4):
        seen = case.observation.example(3)
        seen = seen + np.arange(3).reshape(-1, *(1 for _ in seen.shape[1:])).astype(seen.dtype) * (step + 1)
        actions, recorded = policy.act_recording(seen, exploration, rng, state=state)
        steps += [actions, *(recorded[name] for name in sorted(recorded))]
    return steps if state is None else [*steps, state]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_actions_are_those_of_a_collector_with_a_network_of_its_own(case: Case) -> None:
    """With the same random numbers, and with everything that rows record; the collector has no network."""
    state = case.made().published_state()
    here = Here()
    make: Callable[..., Policy] = make_policy
    own = make(case.config, case.observation, case.action)
    serving = make(case.config, case.observation, case.action, shared=here)
    there = There(here)
    asking = make(case.config, case.observation, case.action, shared=there)
    for policy in (own, serving, asking):
        policy.load_state(state)
    assert there.places == len(here.functions) > 0
    for mine, shared in zip(acted(own, case), acted(asking, case), strict=True):
        assert mine.dtype == shared.dtype
        np.testing.assert_allclose(shared, mine, rtol=1e-4, atol=1e-5)
    assert there.asked == 4


def test_a_function_that_loses_rows_is_an_error() -> None:
    arrays = observations(2)
    with pytest.raises(ValueError, match="1 rows of outputs for 2 observations"):
        compute([Request(b"a", ask(1, arrays), arrays, 0.0)], lambda output, given: {"outputs": given["inputs"][:1]})


def test_a_question_about_more_observations_than_it_has_bytes_is_refused() -> None:
    """The answer, and perhaps the network's layers, would be as large as the number that it claims."""
    arrays = {"inputs": np.zeros((1 << 30, 0), np.float32)}
    with pytest.raises(CodecError, match="1073741824 observations in 0 bytes"):
        decode_ask(sent(encode(ask(1, arrays), arrays)))
