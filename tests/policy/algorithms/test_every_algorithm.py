"""Promises of every algorithm: reproducible, exact after a resume, and safe against states that do not fit."""

from __future__ import annotations

import copy
import itertools
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remuda.policy.algorithms import declaration, make_policy
from remuda.policy.base import Algorithm, Policy
from remuda.policy.network_learner import shuffled
from remuda.policy.saved_state import StateMismatchError
from remuda.tests.learner.ranks.test_equality import flat
from remuda.tests.policy.algorithms import segments
from remuda.tests.policy.algorithms.every import CASES, Case
from remuda.tests.policy.algorithms.reads import Reads

every = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
LATER = {"analysis/dormant_ratio_encoder", "analysis/dormant_ratio_dynamics", "analysis/latent_state_l2_norms"}
"""Metrics of only some updates."""
VALUES, MOMENTS, GRADIENT_STEPS, SEARCHES, SIMULATIONS = 1, 1, 6, 1, 6
READS = {
    "ppo": VALUES + GRADIENT_STEPS,  # of target_kl, which may end the update before each step
    "ppo, continuous": VALUES + MOMENTS,
    "pqn": VALUES,
    "pqn, recurrent": VALUES,
    "impala": VALUES + 2,  # log probabilities for V-trace, and once what its metrics need
    "muzero": VALUES,
    "muzero, searched again": VALUES + SEARCHES * (2 + 3 * SIMULATIONS),
}
"""Reads per batch where returns, moments or searches are computed on the host; 0 for all other algorithms."""


def numbers(algorithm: Algorithm) -> dict[str, np.ndarray]:
    return dict(flat(copy.deepcopy(algorithm.state())))


def equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(values, other[name]) for name, values in one.items())


def after(algorithm: Algorithm, case: Case, updates: range) -> Algorithm:
    for update in updates:
        algorithm.learn(case.draw(np.random.default_rng(update)))
    return algorithm


def acting(case: Case, algorithm: Algorithm | None = None) -> Policy:
    policy = make_policy(case.config, case.observation, case.action)
    if algorithm is not None:
        policy.load_state(algorithm.acting_state())
    return policy


def values_of(policy: Policy, case: Case) -> np.ndarray:
    state = np.zeros((2, policy.state_size), np.float32) if policy.state_size else None
    return policy.value(case.observation.example(2), state=state)


@every
def test_seed_and_batches_decide_every_bit_and_no_other_random_numbers_change(case: Case) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = case.made(seed=7)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    second = case.made(seed=7)
    assert equal(numbers(after(first, case, range(4))), numbers(after(second, case, range(4))))
    assert not equal(numbers(case.made(seed=8)), numbers(case.made(seed=7)))


@pytest.mark.parametrize(
    "name", ["dqn", "pqn", "impala", "crossq", "sac, hyperspherical", "td3, hyperspherical", "iql, hyperspherical"]
)
@pytest.mark.parametrize("unit", [2.0**-5, 2.0**10])
def test_normalised_rewards_of_any_size_teach_the_same(name: str, unit: float) -> None:
    case, learned, metrics = CASES[name], [], []
    for size in (1.0, unit):
        algorithm = case.made()
        for update in range(4):
            rows = case.draw(np.random.default_rng(update))
            sized = {
                column: rows[column] * np.float32(size) for column in ("reward", "return_so_far") if column in rows
            }
            result = algorithm.learn({**rows, **sized})
        learned.append((algorithm.acting_state(), values_of(acting(case, algorithm), case)))
        metrics.append(segments.numbers(result.metrics)["value" if name == "impala" else "q_value"])
    (weights, values), (others, larger) = learned
    for part in (part for part, array in weights.items() if array.dtype == np.float32):
        np.testing.assert_allclose(others[part], weights[part], atol=1e-4)
    np.testing.assert_allclose(larger, values * unit, rtol=1e-3)
    assert metrics[1] == pytest.approx(metrics[0] * unit, rel=1e-3)


@every
def test_a_loaded_state_continues_to_the_last_bit(case: Case) -> None:
    straight, first, second = case.made(seed=1), case.made(seed=1), case.made(seed=1)
    after(straight, case, range(7))
    after(second, case, range(20, 22))
    second.load_state(copy.deepcopy(after(first, case, range(4)).state()))
    assert equal(numbers(after(second, case, range(4, 7))), numbers(straight))
    np.testing.assert_equal(second.acting_state(), straight.acting_state())


@every
def test_a_state_without_a_part_is_refused_by_its_name_and_changes_nothing(case: Case) -> None:
    algorithm, state = case.made(), after(case.made(seed=3), case, range(2)).state()
    before = numbers(algorithm)
    for part in state:
        with pytest.raises(StateMismatchError, match=part if part != "optimizer" else "missing"):
            algorithm.load_state({name: value for name, value in state.items() if name != part})
        assert equal(numbers(algorithm), before)


@every
def test_every_tensor_that_does_not_fit_is_named_and_changes_nothing(case: Case) -> None:
    algorithm = case.made()
    before, state = numbers(algorithm), copy.deepcopy(after(case.made(seed=3), case, range(2)).state())
    model = dict(cast("dict[str, torch.Tensor]", state["model"]))
    gone, wrong = [name for name, tensor in model.items() if tensor.dim() > 1][:2]
    del model[gone]
    model |= {wrong: torch.zeros(3, 1, 1), "extra": torch.zeros(1)}
    with pytest.raises(StateMismatchError) as caught:
        algorithm.load_state({**state, "model": model})
    for problem in (f"model: missing {gone}", "model: unexpected extra", f"model: {wrong} has shape (3, 1, 1), needed"):
        assert problem in str(caught.value)
    with pytest.raises(StateMismatchError, match="model: missing"):
        algorithm.load_weights({})
    assert equal(numbers(algorithm), before)


@every
def test_weights_alone_bring_no_counters_and_reach_the_target_network(case: Case) -> None:
    trained, fresh = after(case.made(seed=1), case, range(3)), case.made(seed=2)
    fresh.load_weights(trained.state())
    state = cast("dict[str, dict[str, torch.Tensor]]", fresh.state())
    np.testing.assert_equal(fresh.acting_state(), trained.acting_state())
    assert state["schedules"]["updates"] == 0
    for name, tensor in state.get("target_model", {}).items():
        model = state["model"]
        assert torch.equal(model[name] if name in model else model[f"critics.{name}"], tensor)


@every
def test_metrics_are_those_declared_and_read_only_columns_are_taken(case: Case) -> None:
    rows = case.draw(np.random.default_rng(0))
    for column in rows.values():
        column.flags.writeable = False  # as the frames of a message are
    algorithm = case.made()
    reported = {name for _ in range(2) for name in algorithm.learn(rows).metrics}
    declared = declaration(case.config)
    assert reported | (LATER & {*declared.monitored}) == {*declared.monitored}


@pytest.mark.parametrize("name", CASES)
def test_an_update_waits_for_its_device_only_where_the_host_computes_a_part_of_it(name: str) -> None:
    """Metrics, priorities and norms of gradients stay on the device."""
    case = CASES[name]
    algorithm = after(case.made(), case, range(2))
    with Reads() as reads:
        algorithm.learn(case.draw(np.random.default_rng(2)))
    assert reads.found.total() == READS.get(name, 0), reads.found


@every
def test_the_acting_state_is_a_copy(case: Case) -> None:
    algorithm = case.made()
    before = algorithm.acting_state()
    kept = {name: array.copy() for name, array in before.items()}
    after(algorithm, case, range(2))
    np.testing.assert_equal(before, kept)


@every
def test_a_policy_acts_by_the_learners_weights_and_keeps_them_if_others_do_not_fit(case: Case) -> None:
    with pytest.raises(RuntimeError, match="no weights yet"):
        values_of(acting(case), case)
    algorithm = after(case.made(), case, range(2))
    policy = acting(case, algorithm)
    before = values_of(policy, case)
    other = after(case.made(seed=5), case, range(1)).acting_state()
    for name in [name for name, array in other.items() if array.ndim > 1][:2]:
        with pytest.raises(StateMismatchError):
            policy.load_state({key: array for key, array in other.items() if key != name})
        with pytest.raises(StateMismatchError):
            policy.load_state({**other, name: np.zeros((3, 1), np.float32)})
    np.testing.assert_array_equal(values_of(policy, case), before)
    policy.load_state(other)
    assert not np.array_equal(values_of(policy, case), before)


# --- minibatches
@given(parts=st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any), data=st.data())
def test_every_row_is_in_one_minibatch(parts: list[int], data: st.DataObject) -> None:
    whole = sum(parts)
    shares = data.draw(st.integers(1, whole))
    firsts = [0, *itertools.accumulate(parts)]
    dealt = [
        shuffled(np.random.default_rng(5), whole=whole, first=first, own=own, shares=shares)
        for first, own in zip(firsts, parts, strict=False)
    ]
    for own, (order, sizes) in zip(parts, dealt, strict=True):
        assert sorted(order.tolist()) == list(range(own))
        assert (len(sizes), sum(sizes)) == (shares, own)
    whole_sizes = np.sum([sizes for _, sizes in dealt], axis=0)
    assert whole_sizes.tolist() == [len(share) for share in np.array_split(np.arange(whole), shares)]
