"""MuZero plays both sides of a game, in which an illegal move is an error: trained, evaluated and as a function."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remuda.config.load import load_settings
from remuda.runner.serial import Start, run
from remuda.tests.cli.terminal import Terminal
from remuda.tests.runner.runs import Flag, Ticking

pytestmark = pytest.mark.xdist_group("a game that MuZero was trained on")

SETTINGS: dict[str, Any] = {
    "name": "self_play",
    "env": {"make": "remuda.tests.policy.algorithms.muzero.games:strict", "num_envs": 4, "vectorization": "sync"},
    "policy": {
        "type": "muzero",
        "players": 2,
        "discount": 1.0,
        "simulations": 8,
        "unroll_steps": 2,
        "n_step": 3,
        "hidden": [8],
        "latent": 8,
        "head_hidden": 8,
        "support_size": 1,
        "consistency_coefficient": 0,
        "reanalyze_ratio": 0.5,
        "temperature_start": 1.0,
    },
    "learner": {"batch_size": 8},
    "collector": {"chunk_env_steps": 20},
    "evaluator": {"episodes": 3, "interval_env_steps": 100},
    "buffer": {"min_rows": 40, "samples_per_insert": 2, "prioritized": False},
    "stop": {"max_env_steps": 200},
}


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("self_play")
    result = run(load_settings(SETTINGS, folder=folder).config, Start(folder / "run"), stop=Flag(), clock=Ticking())
    assert (result.reason, result.failed) == ("max_env_steps", False), result
    return result.run_dir


@pytest.mark.parametrize("options", [("-d",), ("--no-search", "--follow")])
def test_it_is_played_by_legal_moves(terminal: Terminal, run_dir: Path, options: tuple[str, ...]) -> None:
    ended = terminal.remuda("evaluate", run_dir, "-n", 10, "-nr", "--json", *options)
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["episodes"] == 10
