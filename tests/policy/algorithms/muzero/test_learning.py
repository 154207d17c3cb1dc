"""MuZero's update: its numbers, independence from padding, its state, and learning in a small world."""

from __future__ import annotations

import copy
import math
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from remuda.config.workers import LogConfig
from remuda.policy.algorithms.muzero.acting import ILLEGAL, MuZeroPolicy
from remuda.policy.algorithms.muzero.learning import ANALYSIS, MuZero, analysis, dormant_ratio
from remuda.policy.algorithms.muzero.networks import MuZeroNetwork, Support
from remuda.policy.algorithms.muzero.targets import Positions
from remuda.policy.networks.batch_norm import BatchNorm
from remuda.policy.spaces import ObservationSpec
from remuda.tests.policy.algorithms.muzero.cases import ACTION, OBSERVATION, SMALL, batch, changed, config, muzero
from remuda.tests.policy.algorithms.muzero.networks import KINDS, Kind
from remuda.tests.policy.algorithms.segments import numbers

K, WINDOW = SMALL.unroll_steps, SMALL.unroll_steps + SMALL.n_step


def weights(algorithm: MuZero) -> dict[str, torch.Tensor]:
    return copy.deepcopy(cast("dict[str, torch.Tensor]", algorithm.state()["model"]))


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def updated(algorithm: MuZero, seeds: range) -> MuZero:
    for seed in seeds:
        algorithm.learn(batch(np.random.default_rng(seed)))
    return algorithm


# --- what it returns
def test_how_much_is_in_use_is_told_with_every_report() -> None:
    often = config().model_copy(update={"log": LogConfig(interval_train_iters=3)})
    algorithm = MuZero(often, OBSERVATION, ACTION, 0)
    analysed = [set(ANALYSIS) <= set(algorithm.learn(batch(np.random.default_rng(0))).metrics) for _ in range(6)]
    assert analysed == [False, False, True] * 2
    kept = MuZero(config(), OBSERVATION, ACTION, 0)
    for _ in range(6):
        kept.learn(batch(np.random.default_rng(0)))
    assert same(weights(algorithm), weights(kept)), "it changes nothing"


def test_a_row_that_terminates_at_once_by_hand() -> None:
    """One step with a reward of 3, then nothing: returns 3, 0, 0, 0; rewards 3, 0, 0. All outputs are 0."""
    row = batch(np.random.default_rng(0), rows=2, steps=np.array([1, 1]), terminated=np.array([True, True]))
    row["reward"][:, 0] = 3.0
    row["search_policy"][:, 0] = [1.0, 0.0]
    told = numbers(muzero().learn(row).metrics)
    assert [told["target_value"], told["target_reward"]] == pytest.approx([3.0, 3.0])
    assert told["transformed_target_reward"] == told["transformed_target_value"] == pytest.approx(1.003)
    assert [told["predicted_values"], told["predicted_rewards"]] == pytest.approx([0.0, 0.0], abs=1e-5)
    assert told["value_priority"] == pytest.approx(3.0)
    assert told["target_policy_entropy"] == pytest.approx(0.0)
    assert told["policy_entropy"] == pytest.approx(np.log(2), rel=1e-6)
    # K + 1 values, K rewards and one policy, all guessed: position 0 weighs 1, the others 1 / K each.
    assert told["value_loss"] == pytest.approx(2 * np.log(11), rel=1e-6)
    assert told["reward_loss"] == pytest.approx(np.log(11), rel=1e-6)
    assert told["policy_loss"] == pytest.approx(np.log(2), rel=1e-6)


def test_priorities_are_those_of_the_rows_in_their_order() -> None:
    """Initial values are 0: the error is the return."""
    rows = batch(np.random.default_rng(0), rows=4, steps=np.array([1, 1, WINDOW, 1]), terminated=np.array([True] * 4))
    rows["reward"][:] = 0.0
    rows["reward"][:, 0] = [1.0, 4.0, 2.0, 3.0]
    priorities = muzero().learn(rows).priorities
    assert priorities is not None
    np.testing.assert_allclose(priorities.numpy(), [1.0, 4.0, 2.0, 3.0], rtol=1e-5)


# --- what it must not depend on
@settings(max_examples=8)
@given(st.integers(0, 2**32 - 1))
def test_what_lies_after_the_end_of_a_row_changes_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = batch(rng)
    other = {name: column.copy() for name, column in rows.items()}
    for row, known in enumerate(rows["steps"]):
        other["obs"][row, known + 1 :] = rng.normal(size=other["obs"][row, known + 1 :].shape)
        other["action"][row, known:] = 1
        for name in ("reward", "search_policy", "root_value"):
            other[name][row, known:] = rng.normal(size=other[name][row, known:].shape)
    one, two = muzero(), muzero()
    first, second = one.learn(rows), two.learn(other)
    assert same(weights(one), weights(two))
    assert first.priorities is not None
    assert second.priorities is not None
    assert torch.equal(first.priorities, second.priorities)


def test_a_batch_of_nothing_but_cut_rows() -> None:
    """After one step each, the rest is unknown: there is no position 2."""
    rows = batch(np.random.default_rng(0), rows=3, steps=np.array([1, 1, 1]), terminated=np.array([False] * 3))
    assert Positions.of(rows["steps"], rows["terminated"], unroll_steps=K).counts == (3, 3, 0, 0)
    assert np.isfinite(list(numbers(muzero().learn(rows).metrics).values())).all()


# --- the target network, and Reanalyse
def test_values_come_from_the_target_network() -> None:
    algorithm = muzero(changed(target_update_iters=1))
    updated(algorithm, range(20))
    rows = batch(np.random.default_rng(0), rows=2, steps=np.array([WINDOW, WINDOW]), terminated=np.array([False] * 2))
    rows["reward"][:] = 0.0
    acting = MuZeroPolicy(SMALL, ObservationSpec((3,), "float32"), ACTION)
    acting.load_state(algorithm.acting_state())
    values = acting.value(rows["obs"][:, SMALL.n_step])
    told = numbers(algorithm.learn(rows).metrics)
    assert told["target_value"] == pytest.approx(SMALL.discount**SMALL.n_step * values.mean(), rel=1e-4)


@pytest.mark.parametrize(("ratio", "searched_again"), [(0.0, 0), (0.5, 3), (1.0, 6)])
def test_a_share_of_the_rows_is_searched_again(ratio: float, searched_again: int) -> None:
    """All recorded policies are 0.123: only rows that were searched again differ."""
    algorithm = muzero(changed(reanalyze_ratio=ratio, simulations=25, target_update_iters=1))
    updated(algorithm, range(5))
    rows = batch(np.random.default_rng(9), steps=np.full(6, WINDOW), terminated=np.array([False] * 6))
    rows["search_policy"][:] = 0.123
    before = rows["search_policy"].copy()
    positions = Positions.of(rows["steps"], rows["terminated"], unroll_steps=K)
    policy, taken_s = algorithm._policies(rows, positions)
    again = (policy != np.float32(0.123)).any(axis=1)
    assert len(set(positions.row[again].tolist())) == searched_again
    assert int(again.sum()) == searched_again * (K + 1)
    np.testing.assert_allclose(policy[again].sum(1), 1.0, rtol=1e-5)
    assert (taken_s > 0) == (searched_again > 0)
    np.testing.assert_array_equal(rows["search_policy"], before)  # batches are read, never written


def test_what_was_illegal_has_no_share_and_is_not_searched_again() -> None:
    rows = batch(np.random.default_rng(9), steps=np.full(6, WINDOW), terminated=np.array([False] * 6))
    legal = np.random.default_rng(1).random(rows["search_policy"].shape) < 0.6
    legal[..., 0] |= ~legal[..., 1]
    shares = np.where(legal, 1.0, 0.0)
    shares /= shares.sum(axis=-1, keepdims=True)
    rows["search_policy"] = np.where(legal, shares, ILLEGAL).astype(np.float32)
    positions = Positions.of(rows["steps"], rows["terminated"], unroll_steps=K)
    for ratio, same_as_recorded in ((0.0, True), (1.0, False)):
        algorithm = updated(muzero(changed(reanalyze_ratio=ratio, simulations=25, target_update_iters=1)), range(5))
        policy, _ = algorithm._policies(rows, positions)
        assert not policy[~positions.of_columns(legal)].any()
        np.testing.assert_allclose(policy.sum(1), 1.0, rtol=1e-5)
        assert np.allclose(policy, positions.of_columns(shares)) == same_as_recorded


# --- state
def test_images_are_searched_with_the_running_moments() -> None:
    rng, frames = np.random.default_rng(0), ObservationSpec((1, 3, 4), "uint8", 0.0, 255.0)
    algorithm, rows = muzero(changed(channels=6), observation=frames), batch(rng)
    rows["obs"] = rng.integers(0, 256, (*rows["obs"].shape[:2], *frames.shape), np.uint8)
    before = algorithm.acting_state()
    algorithm.learn(rows)
    after = algorithm.acting_state()
    moments = [name for name in after if name.endswith(("running_mean", "running_var"))]
    assert moments
    assert all((before[name] != after[name]).any() for name in moments)


# --- analysis
def test_dormant_units_by_hand() -> None:
    layer = torch.tensor([[4.0, 0.0, -0.06], [4.0, 0.0, 0.04]])  # sizes 4, 0 and 0.05; 0.025 of their mean is 0.034
    assert float(dormant_ratio([layer])) == pytest.approx(1 / 3)
    assert float(dormant_ratio([0.001 * layer])) == pytest.approx(1 / 3), "it is relative to the layer"
    images = torch.zeros(2, 2, 5, 5)
    images[0, 0, 3, 2], images[1, 1] = 1.0, 0.5  # means 0.02 and 0.25
    assert float(dormant_ratio([images])) == 0.0
    images[0, 0, 3, 2] = 0.15  # a mean of 0.003, where 0.025 of the layer's is 0.0032
    assert float(dormant_ratio([images])) == 0.5
    assert float(dormant_ratio([layer, images])) == pytest.approx(2 / 5)
    assert float(dormant_ratio([torch.zeros(3, 4)])) == 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_units_that_are_switched_off_are_found(kind: Kind) -> None:
    network, actions = kind.trained().train(), torch.tensor([0, 1, 2, 3, 1])
    before = analysis(network, kind.seen(5), actions)
    assert tuple(before) == ANALYSIS
    assert float(before[ANALYSIS[2]]) == pytest.approx(math.sqrt(math.prod(kind.latent)), rel=1e-3)
    with_bias = [module for module in network.representation.modules() if isinstance(module, BatchNorm | nn.Linear)]
    bias = with_bias[0].bias
    assert bias is not None
    bias.data[0] = -1e6  # the unit is far below what relu lets through, whatever comes in
    after = analysis(network, kind.seen(5), actions)
    assert float(after[ANALYSIS[0]]) > float(before[ANALYSIS[0]])


def test_the_value_of_a_vector_is_the_same_in_training_and_in_a_search() -> None:
    """Also for a row unlike all others of its batch, such as an observation shortly before the end of an episode."""
    algorithm = updated(muzero(), range(3))
    seen = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    seen[0] *= 40.0
    network, support = algorithm.network.train(), Support(SMALL.support_size)
    assert isinstance(network, MuZeroNetwork)
    trained = support.expectation(network.predict(network.represent(torch.tensor(seen))).value)
    acting = MuZeroPolicy(SMALL, OBSERVATION, ACTION)
    acting.load_state(algorithm.acting_state())
    np.testing.assert_allclose(trained.detach().numpy(), acting.value(seen), rtol=1e-4, atol=1e-5)
