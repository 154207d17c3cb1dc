"""Serial runs that learn from unrolls and sequences: every row is a real step, also over a resume."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from remuda.buffer.chunk import read_chunk, read_meta
from remuda.config.load import load_settings
from remuda.runner.serial import RunResult, Start, run
from remuda.storage.run_folder import RunFolder
from remuda.tests.runner.runs import Flag, Ticking

POLICY = {
    "type": "r2d2",
    "recurrent_units": 4,
    "hidden": [4],
    "head_hidden": [4],
    "burn_in_steps": 2,
    "sequence_steps": 6,
    "overlap_steps": 3,
    "n_step": 2,
}
SLOTS, PERIOD, ENVS = 9, 3, 3


def trained_sequences(place: Path, *, env_steps: int, resume: bool = False) -> RunResult:
    settings = {
        "name": "sequences",
        "env": {"id": "CartPole-v1", "num_envs": ENVS, "max_episode_steps": 20},
        "policy": POLICY,
        "learner": {"batch_size": 4},
        "buffer": {"capacity": 500, "min_rows": 20, "samples_per_insert": 1.0},
        "evaluator": {"episodes": 2, "interval_env_steps": 300},
        "stop": {"max_env_steps": env_steps},
    }
    config = load_settings(settings, folder=place).config
    return run(config, Start(place / "run", "resume" if resume else "error"), stop=Flag(), clock=Ticking())


def kept(run_dir: Path) -> dict[str, np.ndarray]:
    """Every row in data/, in order."""
    data = RunFolder(run_dir).data
    metas = sorted(
        (read_meta(path) for path in data.iterdir()), key=lambda meta: (meta.chunk.incarnation, meta.chunk.sequence)
    )
    chunks = [read_chunk(data / meta.file, meta) for meta in metas if meta.rows]
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}


def test_a_run_has_a_row_for_every_period_and_goes_on_with_sequences_when_resumed(tmp_path: Path) -> None:
    first = trained_sequences(tmp_path, env_steps=600)
    assert (first.reason, first.failed) == ("max_env_steps", False), first
    assert first.counters.train_iter > 20
    rows = kept(tmp_path / "run")
    old = len(rows["reward"])
    slots = (first.counters.env_step + first.counters.episode) // ENVS  # of each environment
    assert abs(old - ENVS * (slots - SLOTS) // PERIOD) <= 3 * ENVS
    assert rows["obs"].shape[1:] == (SLOTS + 1, 4)
    second = trained_sequences(tmp_path, env_steps=900, resume=True)
    assert (second.reason, second.failed) == ("max_env_steps", False), second
    assert second.counters.train_iter > first.counters.train_iter
    rows = kept(tmp_path / "run")
    assert len(rows["reward"]) > old
    assert not rows["state"][old : old + ENVS].any(), "episodes under way are over, and what was remembered of them"
