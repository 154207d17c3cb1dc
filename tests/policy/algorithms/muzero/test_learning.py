"""MuZero's update: its numbers, independence from padding, its state, and learning in a small world."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.config.learning import LearnerConfig
from remuda.config.workers import LogConfig
from remuda.policy.algorithms.muzero.acting import ILLEGAL, MuZeroPolicy
from remuda.policy.algorithms.muzero.learning import ANALYSIS, MuZero
from remuda.policy.algorithms.muzero.networks import MuZeroNetwork, Support
from remuda.policy.algorithms.muzero.targets import Positions
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.policy.algorithms.muzero.cases import (
    ACTION,
    OBSERVATION,
    SMALL,
    Batch,
    batch,
    changed,
    config,
    muzero,
)
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


def test_importance_weights_weigh_rows() -> None:
    rows = batch(np.random.default_rng(0))
    rows["weights"] = np.full(6, 0.5, np.float32)
    told = numbers(muzero().learn(rows).metrics)
    assert told["weighted_total_loss"] == pytest.approx(0.5 * told["total_loss"], rel=1e-5)


def test_two_players_see_the_next_value_from_the_other_side() -> None:
    rows = batch(np.random.default_rng(0), rows=2, steps=np.array([2, 2]), terminated=np.array([True, True]))
    rows["reward"][:, :2] = [1.0, 1.0]
    one, two = (muzero(changed(players=players, discount=0.5)).learn(rows).priorities for players in (1, 2))
    assert one is not None
    assert two is not None
    np.testing.assert_allclose(one.numpy(), 1.5, rtol=1e-5)
    np.testing.assert_allclose(two.numpy(), 0.5, rtol=1e-5)


# --- what it must not depend on


@settings(max_examples=25)
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


def test_the_order_of_the_rows_changes_only_digits() -> None:
    rows = batch(np.random.default_rng(0))
    other = {name: column[::-1].copy() for name, column in rows.items()}
    told = [numbers(muzero().learn(each).metrics) for each in (rows, other)]
    for name, value in told[0].items():
        assert told[1][name] == pytest.approx(value, rel=1e-4, abs=1e-5), name


def test_actions_that_do_not_start_at_zero() -> None:
    rows = batch(np.random.default_rng(0))
    shifted = {**rows, "action": (rows["action"] + 5).astype(np.uint8)}
    one, two = muzero(), muzero(action=ActionSpec(2, 5))
    one.learn(rows)
    two.learn(shifted)
    assert same(weights(one), weights(two))


def test_a_batch_of_one_row() -> None:
    told = numbers(muzero().learn(batch(np.random.default_rng(0), rows=1)).metrics)
    assert np.isfinite(list(told.values())).all()


def test_a_batch_of_nothing_but_cut_rows() -> None:
    """After one step each, the rest is unknown: there is no position 2."""
    rows = batch(np.random.default_rng(0), rows=3, steps=np.array([1, 1, 1]), terminated=np.array([False] * 3))
    assert Positions.of(rows["steps"], rows["terminated"], unroll_steps=K).counts == (3, 3, 0, 0)
    assert np.isfinite(list(numbers(muzero().learn(rows).metrics).values())).all()


# --- the target network, and Reanalyse


def test_the_target_network_is_a_copy_from_the_last_multiple_of_the_interval() -> None:
    algorithm = muzero()
    copies: list[bool] = []
    for seed in range(9):
        updated(algorithm, range(seed, seed + 1))
        state = cast("dict[str, dict[str, torch.Tensor]]", algorithm.state())
        copies.append(all(torch.equal(state["model"][key], tensor) for key, tensor in state["target_model"].items()))
    assert copies == [False, False, False, True, False, False, False, True, False]


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
    policy = changed(channels=6)
    algorithm = muzero(policy, observation=ObservationSpec(pictured(0).shape, "uint8", 0.0, 255.0))
    before = algorithm.acting_state()
    algorithm.learn(corridor(np.random.default_rng(0), 6, policy, pictured))
    after = algorithm.acting_state()
    moments = [name for name in after if name.endswith(("running_mean", "running_var"))]
    assert moments
    assert all((before[name] != after[name]).any() for name in moments)


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


# --- it learns


CORRIDOR = 4
"""States 0 … 3; action 1 goes right, action 0 left. Going right from the last gives 1 and ends the episode."""


def corridor(rng: np.random.Generator, rows: int, policy: MuZeroConfig, see: Callable[[int], np.ndarray]) -> Batch:
    """Rows of episodes with random actions; `see` gives the observation of a state."""
    made = batch(rng, policy, rows=rows, steps=np.full(rows, 1), terminated=np.zeros(rows, np.bool_))
    window = policy.unroll_steps + policy.n_step
    view = see(0)
    made["obs"] = np.zeros((rows, window + 1, *view.shape), view.dtype)
    for row in range(rows):
        at, step, over = int(rng.integers(CORRIDOR)), 0, False
        place = made["obs"][row]
        made["action"][row], made["reward"][row] = 0, 0.0
        place[0] = see(at)
        while step < window and not over:
            action = int(rng.integers(2))
            if step < policy.unroll_steps:
                made["action"][row, step] = action
            over = at == CORRIDOR - 1 and action == 1
            made["reward"][row, step] = float(over)
            at = min(max(at + (1 if action else -1), 0), CORRIDOR - 1)
            step += 1
            place[step] = see(at)
        place[step:] = place[step]
        made["steps"][row], made["terminated"][row] = step, over
        made["search_policy"][row] = 0.5  # whoever walks at random has no preference
    return made


def seen(place: int) -> np.ndarray:
    return np.array([place / CORRIDOR, (place / CORRIDOR) ** 2, 1.0], np.float32)


def pictured(place: int) -> np.ndarray:
    """An image with one bright pixel."""
    image = np.zeros((1, 3, CORRIDOR), np.uint8)
    image[0, 1, place] = 255
    return image


@pytest.mark.parametrize("see", [seen, pictured])
def test_it_finds_the_way_out_of_a_corridor(see: Callable[[int], np.ndarray]) -> None:
    """After learning only from random walks, the search in the learned model goes straight to the reward."""
    policy = changed(
        simulations=30,
        discount=0.8,
        n_step=3,
        unroll_steps=3,
        latent=24,
        hidden=(24,),
        channels=6,
        head_hidden=16,
        root_noise_fraction=0.0,
        target_update_iters=20,
    )
    pixels = see is pictured
    observation = ObservationSpec(see(0).shape, "uint8" if pixels else "float32", 0.0 if pixels else None, 255.0)
    algorithm = muzero(policy, LearnerConfig(learning_rate=5e-3), observation=observation)
    rng, updates = np.random.default_rng(0), 120 if pixels else 250
    losses = [numbers(algorithm.learn(corridor(rng, 64, policy, see)).metrics)["reward_loss"] for _ in range(updates)]
    assert np.mean(losses[-20:]) < 0.2 * losses[0]
    acting = MuZeroPolicy(policy, observation, ACTION)
    acting.load_state(algorithm.acting_state())
    places = np.stack([see(place) for place in range(CORRIDOR)])
    assert acting.act(places, {}, rng, deterministic=True).tolist() == [1] * CORRIDOR
    _, recorded = acting.act_recording(places, {"collect_mcts_temperature": 0.0}, rng)
    assert recorded["root_value"][0] < recorded["root_value"][-1]  # the nearer the better
    assert 0.5 < recorded["root_value"][-1] < 1.5  # a mean over what the search tried, after the end, too
