"""The acting side: actions, recorded columns, and random numbers."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from remuda.config.learning import LearnerConfig
from remuda.config.workers import StopConfig
from remuda.policy.algorithms import NoSearchError, declaration, make_policy
from remuda.policy.algorithms.muzero.acting import ILLEGAL, MuZeroPolicy, NetworkMuZeroPolicy, entropies
from remuda.policy.files.model_artifact import traced_policy
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.policy import cases
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


def test_all_chance_comes_from_the_generator() -> None:
    acting, another = policy(), policy()
    draws = [each.act_recording(observations(), EXPLORES, np.random.default_rng(7)) for each in (acting, another)]
    np.testing.assert_array_equal(draws[0][0], draws[1][0])
    for name, column in draws[0][1].items():
        np.testing.assert_array_equal(column, draws[1][1][name])
    other = acting.act_recording(observations(), EXPLORES, np.random.default_rng(8))
    assert any((column != other[1][name]).any() for name, column in draws[0][1].items())


def test_gumbel_muzero_records_the_improved_policy_and_draws_by_its_noise() -> None:
    acting = policy(gumbel=True, simulations=4)
    seen = np.repeat(observations(20), 20, axis=0)
    actions, recorded = acting.act_recording(seen, {}, np.random.default_rng(0))
    assert np.ptp(actions.reshape(20, 20), axis=1).any(), "from one observation, now this action and now that"
    np.testing.assert_allclose(recorded["search_policy"].sum(1), 1.0, rtol=1e-5)
    best = acting.act(seen[:1], {}, np.random.default_rng(0), deterministic=True)
    np.testing.assert_array_equal(best, acting.act(seen[:1], {}, np.random.default_rng(1), deterministic=True))


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


# --- the declaration
@pytest.mark.parametrize(
    ("settings", "env_step", "temperature"),
    [
        ({}, 0, 0.25),
        ({}, 10**9, 0.25),
        ({"temperature_start": 1.0}, 0, 1.0),
        ({"temperature_start": 1.0}, 250, 0.625),
        ({"temperature_start": 1.0}, 500, 0.25),
        ({"temperature_start": 1.0, "temperature_decay_env_steps": 100, "temperature_end": 0.0}, 50, 0.5),
    ],
)
def test_temperature(settings: dict[str, float], env_step: int, temperature: float) -> None:
    experiment = config(changed(**settings)).model_copy(update={"stop": StopConfig(max_env_steps=1000)})
    assert declaration(experiment).exploration_at(env_step) == {"collect_mcts_temperature": pytest.approx(temperature)}


def test_where_nothing_is_learned_it_is_that_of_the_end() -> None:
    experiment = config(changed(temperature_start=1.0), LearnerConfig(inference=True))
    assert declaration(experiment).exploration_at(0) == {"collect_mcts_temperature": 0.25}


@pytest.mark.parametrize(("players", "self_play"), [(1, False), (2, True)])
def test_with_two_players_it_plays_against_itself(players: int, self_play: bool) -> None:
    assert declaration(config(changed(players=players))).self_play is self_play


# --- without a search

THREE = ActionSpec(3, 5, "int32")


@pytest.fixture
def pair() -> tuple[NetworkMuZeroPolicy, np.ndarray]:
    """A policy, and its probabilities [20, 3] for the observations of `seen`."""
    algorithm = muzero(action=THREE)
    rng = np.random.default_rng(3)
    for parameter in algorithm.network.parameters():
        parameter.data.add_(parameter.new_tensor(rng.normal(size=tuple(parameter.shape))))
    acting = make_policy(config(), OBSERVATION, THREE, search=False)
    assert isinstance(acting, NetworkMuZeroPolicy)
    acting.load_state(algorithm.acting_state())
    logits = algorithm.network.eval()(torch.tensor(seen()))
    return acting, logits.softmax(1).detach().numpy()


def seen() -> np.ndarray:
    return np.random.default_rng(3).normal(size=(20, 3)).astype(np.float32)


def test_it_takes_the_likeliest_action(pair: tuple[NetworkMuZeroPolicy, np.ndarray]) -> None:
    acting, probabilities = pair
    actions = acting.act(seen(), {}, np.random.default_rng(0), deterministic=True)
    assert actions.dtype == np.int32
    np.testing.assert_array_equal(actions - 5, probabilities.argmax(1))
    assert len(set(actions.tolist())) > 1


@pytest.mark.parametrize("deterministic", [True, False])
def test_only_legal_actions_are_taken(pair: tuple[NetworkMuZeroPolicy, np.ndarray], deterministic: bool) -> None:
    acting, probabilities = pair
    legal = np.ones((20, 3), np.bool_)
    legal[np.arange(20), probabilities.argmax(1)] = False
    actions = acting.act(seen(), {}, np.random.default_rng(0), deterministic=deterministic, legal=legal) - 5
    assert legal[np.arange(20), actions].all()
    if deterministic:
        np.testing.assert_array_equal(actions, np.where(legal, probabilities, 0).argmax(1))


def test_an_algorithm_that_does_not_search_has_none_to_leave_out() -> None:
    with pytest.raises(NoSearchError, match="dqn acts without a search, so there is none to leave out"):
        make_policy(cases.config(), cases.OBSERVATION, cases.ACTION, search=False)
