"""A league in one process: it rates, resets and resumes with its pool, and shows itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from remuda.client.plots.league import read_league, table
from remuda.config.load import load_config
from remuda.config.schema import ExperimentConfig
from remuda.runner.serial import Start
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import PolicyFolder
from remuda.tests.runner.killing import Killer, run_to_its_death
from remuda.tests.runner.runs import run_tiny

pytest.importorskip("openskill", reason="a league rates with openskill: pip install 'remuda[league]'")
pytest.importorskip("pettingzoo", reason="tic-tac-toe is of PettingZoo: pip install 'remuda[pettingzoo]'")

EPISODES = 6
LEAGUE: dict[str, Any] = {
    "name": "league",
    "env": {"kind": "pettingzoo", "id": "pettingzoo.classic.tictactoe_v3", "num_envs": 2, "vectorization": "sync"},
    "policy": {"type": "dqn", "hidden": [8], "epsilon_decay_env_steps": 300},
    "policies": {"hunter": {"agents": ["*"]}, "main": {"agents": ["*"]}},
    "self_play": {"share": 0.5, "league": {"pool": 3, "exploiters": {"hunter": {"reset_env_steps": 100}}}},
    "learner": {"batch_size": 8, "publish_interval_iters": 5, "prefetch_batches": 4},
    "collector": {"count": 1, "chunk_env_steps": 12},
    "evaluator": {"episodes": EPISODES, "interval_env_steps": 60},
    "buffer": {"capacity": 500, "min_rows": 20, "samples_per_insert": 1},
    "checkpoint": {"keep": 0},
    "stop": {"max_env_steps": 300},
}


def config_of(folder: Path, *overrides: str) -> ExperimentConfig:
    folder.mkdir(exist_ok=True)
    path = folder / "league.yaml"
    path.write_text(yaml.safe_dump(LEAGUE))
    return load_config(path, overrides=list(overrides)).config


def evaluations(run_dir: Path) -> int:
    """Evaluated checkpoints that had a pool to play against: all but the first of each policy."""
    indices = [CheckpointIndex(PolicyFolder(run_dir, name).ckpt) for name in ("hunter", "main")]
    return sum(record.reward is not None for index in indices for record in index.records) - len(indices)


@pytest.mark.filterwarnings("ignore:The old environment creation API:DeprecationWarning")
def test_a_league_killed_at_any_save_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = tmp_path / "run"
    run_to_its_death(config_of(tmp_path / "user"), run_dir, Killer(at=120), monkeypatch)
    before = json.loads((run_dir / "league.json").read_text())
    assert before["games"] > 0
    status = run_tiny(config_of(tmp_path / "user"), Start(run_dir, on_exists="resume")).status
    assert all(one.rating is not None for one in status.policies)
    after = json.loads((run_dir / "league.json").read_text())
    assert after["resets"][: len(before["resets"])] == before["resets"]
    assert after["games"] == EPISODES * evaluations(run_dir) > before["games"]

    league = read_league(run_dir)
    assert len(league.members) == 3
    assert {one["parent"] for one in league.resets} == {"iteration_0.pth.tar"}
    assert all(sum(weights) == pytest.approx(1.0) for weights in league.matches)
    for member in league.members:
        assert member.rating_low < member.rating < member.rating_high
        assert member.name in table(league)
