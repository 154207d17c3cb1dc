"""MuZero's entry in the registry of algorithms."""

from __future__ import annotations

import pytest

from remuda.config.declaration import Unrolls
from remuda.config.learning import LearnerConfig
from remuda.config.workers import StopConfig
from remuda.policy.algorithms import declaration
from remuda.tests.policy.algorithms.muzero.cases import changed, config


def test_rows_hold_what_is_unrolled_and_what_returns_need() -> None:
    declared = declaration(config(changed(unroll_steps=4, n_step=7, discount=0.9)))
    assert (declared.rows, declared.reuse) == (Unrolls(unroll_steps=4, n_step=7, discount=0.9), "replay")


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


def test_gumbel_muzero_has_no_temperature() -> None:
    assert declaration(config(changed(gumbel=True))).exploration == {}


def test_where_nothing_is_learned_it_is_that_of_the_end() -> None:
    experiment = config(changed(temperature_start=1.0), LearnerConfig(inference=True))
    assert declaration(experiment).exploration_at(0) == {"collect_mcts_temperature": 0.25}


@pytest.mark.parametrize(("players", "self_play"), [(1, False), (2, True)])
def test_with_two_players_it_plays_against_itself(players: int, self_play: bool) -> None:
    assert declaration(config(changed(players=players))).self_play is self_play
