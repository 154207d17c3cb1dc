"""MuZero beside LightZero: when a run counts as solved, and that all ways train for the same value."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from remuda.benchmarks import muzero_cartpole
from remuda.benchmarks.muzero_cartpole import STOP_VALUE, WAYS, Way, figures, solved
from remuda.benchmarks.rounds import Run
from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.config.load import load_config
from remuda.tests.benchmarks.saved_run import run_with


def test_the_last_checkpoint_says_when_it_was_solved(tmp_path: Path) -> None:
    assert solved(run_with(tmp_path, [0.0, 5.0, 10.0], [9.0, 120.0, 195.0])) == Run(seconds=10.0, env_steps=800)


def test_a_checkpoint_after_the_good_evaluation_counts(tmp_path: Path) -> None:
    """As a herd's: it goes on while the evaluator plays."""
    assert solved(run_with(tmp_path, [0.0, 5.0, 10.0], [9.0, 200.0, None])) == Run(seconds=10.0, env_steps=800)


@pytest.mark.parametrize("rewards", [(), (None,), (9.0, 194.9)])
def test_a_run_that_never_gets_there_took_forever(tmp_path: Path, rewards: tuple[float | None, ...]) -> None:
    assert solved(run_with(tmp_path, [0.0, 5.0][: len(rewards)], rewards)) == Run(math.inf, math.inf)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_every_way_plays_ten_episodes_of_cartpole_v0_for_the_same_value(way: Way) -> None:
    config = load_config(way.config, overrides=way.settings).config
    assert (config.env.id, config.evaluator.episodes, config.stop.stop_value) == ("CartPole-v0", 10, STOP_VALUE)
    assert config.env.num_envs == 8


def test_the_settings_are_those_that_the_peers_script_gives_it() -> None:
    config = load_config(WAYS["train"].config).config
    policy = config.policy
    assert isinstance(policy, MuZeroConfig)
    script = Path(muzero_cartpole.__file__).parent / "peers" / "lightzero" / "cartpole_muzero.py"
    text = script.read_text(encoding="utf-8")
    for key, value in {
        "latent_state_dim": policy.latent,
        "num_simulations": policy.simulations,
        "reanalyze_ratio": int(policy.reanalyze_ratio),
        "ssl_loss_weight": int(policy.consistency_coefficient),
        "batch_size": config.learner.batch_size,
        "learning_rate": config.learner.learning_rate,
    }.items():
        assert f'"{key}": {value},' in text


def test_without_peers_nothing_runs() -> None:
    assert figures(peers=False) == []
