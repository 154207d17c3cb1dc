"""The acting side: actions, recorded columns, and random numbers."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from remuda.environments.errors import UnsupportedSpaceError
from remuda.policy.algorithms import declaration
from remuda.policy.algorithms.muzero.acting import ILLEGAL, MuZeroPolicy, entropies
from remuda.policy.files.model_artifact import traced_policy
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.policy.algorithms.muzero.cases import ACTION, OBSERVATION, SMALL, batch, changed, config, muzero

EXPLORES = {"collect_mcts_temperature": 1.0}


def observations(n: int = 5) -> np.ndarray:
    return np.random.default_rng(3).normal(size=(n, 3)).astype(np.float32)


def policy(action: ActionSpec = ACTION, **settings: object) -> MuZeroPolicy:
    made = changed(**settings)
    acting = MuZeroPolicy(made, OBSERVATION, action)
    algorithm = muzero(made, action=action)
    for seed in range(5):
        algorithm.learn(batch(np.random.default_rng(seed), start=action.start))
    acting.load_state(algorithm.acting_state())
    return acting


def test_what_is_recorded_is_what_the_search_found() -> None:
    acting = policy()
    actions, recorded = acting.act_recording(observations(), EXPLORES, np.random.default_rng(0))
    assert acting.recorded() == {"search_policy": ((2,), "float32"), "root_value": ((), "float32")}
    assert {name: (column.shape[1:], str(column.dtype)) for name, column in recorded.items()} == acting.recorded()
    np.testing.assert_allclose(recorded["search_policy"].sum(1), 1.0, rtol=1e-6)
    visits = recorded["search_policy"] * SMALL.simulations
    np.testing.assert_allclose(visits, visits.round(), atol=1e-5)
    assert (recorded["search_policy"][np.arange(5), actions] > 0).all()


def test_acting_without_chance_is_the_same_every_time_and_reads_no_generator() -> None:
    acting = policy()
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    first = acting.act(observations(), {}, rng, deterministic=True)
    assert rng.bit_generator.state == before
    np.testing.assert_array_equal(first, acting.act(observations(), {}, rng, deterministic=True))


def test_all_chance_comes_from_the_generator() -> None:
    acting, another = policy(), policy()
    draws = [each.act_recording(observations(), EXPLORES, np.random.default_rng(7)) for each in (acting, another)]
    np.testing.assert_array_equal(draws[0][0], draws[1][0])
    for name, column in draws[0][1].items():
        np.testing.assert_array_equal(column, draws[1][1][name])
    other = acting.act_recording(observations(), EXPLORES, np.random.default_rng(8))
    assert any((column != other[1][name]).any() for name, column in draws[0][1].items())


def test_without_temperature_and_noise_collectors_act_as_evaluators_do() -> None:
    acting = policy(root_noise_fraction=0.0)
    rng = np.random.default_rng(0)
    drawn = acting.act(observations(), {"collect_mcts_temperature": 0.0}, rng, deterministic=False)
    np.testing.assert_array_equal(drawn, acting.act(observations(), {}, rng, deterministic=True))


def test_gumbel_muzero_records_the_improved_policy_and_draws_by_its_noise() -> None:
    acting = policy(gumbel=True, simulations=4)
    seen = np.repeat(observations(20), 20, axis=0)
    actions, recorded = acting.act_recording(seen, {}, np.random.default_rng(0))
    assert np.ptp(actions.reshape(20, 20), axis=1).any(), "from one observation, now this action and now that"
    np.testing.assert_allclose(recorded["search_policy"].sum(1), 1.0, rtol=1e-5)
    best = acting.act(seen[:1], {}, np.random.default_rng(0), deterministic=True)
    np.testing.assert_array_equal(best, acting.act(seen[:1], {}, np.random.default_rng(1), deterministic=True))


def test_actions_that_do_not_start_at_zero() -> None:
    actions = policy(ActionSpec(2, 5, "int32")).act(
        observations(50), EXPLORES, np.random.default_rng(0), deterministic=False
    )
    assert set(actions.tolist()) == {5, 6}
    assert actions.dtype == np.int32


def test_one_search_more_or_fewer_roots_later() -> None:
    acting = policy()
    for n in (1, 4, 2):
        assert acting.act(observations(n), EXPLORES, np.random.default_rng(0), deterministic=False).shape == (n,)


LEGAL = np.array([[1, 1], [1, 0], [0, 1], [1, 0], [0, 1]], np.bool_)


@pytest.mark.parametrize("gumbel", [True, False])
@pytest.mark.parametrize("deterministic", [True, False])
def test_an_illegal_action_is_never_chosen(deterministic: bool, gumbel: bool) -> None:
    acting, rng = policy(ActionSpec(2, 5), gumbel=gumbel), np.random.default_rng(0)
    for _ in range(20):
        chosen = acting.act(observations(), EXPLORES, rng, deterministic=deterministic, legal=LEGAL) - 5
        assert LEGAL[np.arange(5), chosen].all()


def test_what_was_illegal_is_recorded_as_no_share() -> None:
    actions, recorded = policy().act_recording(observations(), EXPLORES, np.random.default_rng(0), legal=LEGAL)
    assert LEGAL[np.arange(5), actions].all()
    share = recorded["search_policy"]
    assert share.dtype == np.float32
    np.testing.assert_array_equal(share == ILLEGAL, ~LEGAL)
    np.testing.assert_allclose(share.sum(axis=1, where=LEGAL), 1.0, rtol=1e-6)


def test_the_entropy_of_visits_by_hand() -> None:
    shares = np.array([[0.5, 0.5], [1.0, 0.0], [0.25, 0.75]], np.float32)
    expected = [np.log(2), 0.0, 0.25 * np.log(4) + 0.75 * np.log(4 / 3)]
    np.testing.assert_allclose(entropies(shares), expected, rtol=1e-12)
    np.testing.assert_allclose(entropies(np.array([[4, 4], [8, 0], [2, 6]], np.int32)), expected, rtol=1e-12)
    assert not np.signbit(entropies(shares)).any()
    illegal = np.array([[0.5, ILLEGAL, 0.5], [ILLEGAL, 1.0, ILLEGAL]], np.float32)
    np.testing.assert_allclose(entropies(illegal), [np.log(2), 0.0], rtol=1e-12)


@pytest.mark.parametrize("gumbel", [False, True])
def test_collectors_report_what_the_declaration_says_of_the_visits_and_of_the_values(gumbel: bool) -> None:
    acting = policy(gumbel=gumbel)
    _, noted = acting.act_recording(observations(), EXPLORES, np.random.default_rng(0))
    assert set(noted) == {*acting.recorded(), *acting.measured()}
    metrics = acting.collected_metrics(noted)
    assert tuple(metrics) == declaration(config(changed(gumbel=gumbel))).collected
    visits = noted["visits"] if gumbel else noted["search_policy"] * SMALL.simulations
    assert visits.sum(axis=1) == pytest.approx(SMALL.simulations), "the visits, and no improved policy"
    np.testing.assert_allclose(metrics["visit_entropy_mean"], entropies(visits), rtol=1e-6)
    if gumbel:
        np.testing.assert_array_equal(metrics["completed_value_mean"], noted["root_value"])
        assert np.abs(metrics["visit_entropy_mean"] - entropies(noted["search_policy"])).max() > 0.01


def test_it_takes_the_whole_of_a_checkpoints_model() -> None:
    algorithm = muzero()
    acting = MuZeroPolicy(SMALL, OBSERVATION, ACTION)
    acting.load_state({name: tensor.numpy() for name, tensor in algorithm.network.state_dict().items()})
    assert any(name.startswith("consistency.") for name in algorithm.network.state_dict())
    assert not any(name.startswith("consistency.") for name in algorithm.acting_state())
    np.testing.assert_allclose(acting.value(observations()), 0.0, atol=1e-5)


def test_actions_that_cannot_be_counted_are_refused() -> None:
    box = ActionSpec(None, 0, "float32", (2,), (-1.0, -1.0), (1.0, 1.0))
    with pytest.raises(UnsupportedSpaceError, match="not supported by muzero"):
        MuZeroPolicy(SMALL, OBSERVATION, box)


def test_images_are_searched_as_well() -> None:
    observation = ObservationSpec((10, 10, 4), "bool")
    acting, algorithm = MuZeroPolicy(SMALL, observation, ACTION), muzero(observation=observation)
    acting.load_state(algorithm.acting_state())
    images = np.random.default_rng(0).random((3, 10, 10, 4)) < 0.5
    assert acting.act(images, EXPLORES, np.random.default_rng(0), deterministic=False).shape == (3,)


@pytest.mark.parametrize("observation", [OBSERVATION, ObservationSpec((10, 10, 4), "bool")])
def test_the_portable_form_is_the_network_without_a_search(observation: ObservationSpec) -> None:
    algorithm = muzero(observation=observation, action=ActionSpec(2, 3))
    rng = np.random.default_rng(0)
    for tensor in algorithm.network.state_dict().values():
        tensor.uniform_(0.1, 0.9)
    seen = rng.normal(size=(7, *observation.shape)) > 0 if observation.is_image else observations(7)
    traced = traced_policy(copy.deepcopy(algorithm.portable()).eval(), (torch.from_numpy(seen[:2]),))
    acting = MuZeroPolicy(SMALL, observation, ActionSpec(2, 3))
    acting.load_state(algorithm.acting_state())
    np.testing.assert_allclose(traced.value(torch.from_numpy(seen)).detach().numpy(), acting.value(seen), rtol=1e-3)
    logits = traced(torch.from_numpy(seen)).detach()
    assert traced.act(torch.from_numpy(seen)).tolist() == (3 + logits.argmax(1)).tolist()
    assert set(traced.sample(torch.from_numpy(seen)).tolist()) <= {3, 4}
    assert not any("consistency" in name for name, _ in traced.named_parameters())
