"""Serial runs that learn from unrolls and sequences: every row is a real step, also over a resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from remuda.buffer.chunk import read_chunk, read_meta
from remuda.config.load import load_settings
from remuda.runner.serial import RunResult, Start, run
from remuda.storage.run_folder import RunFolder
from remuda.tests.policy.unrolled.configs import MAX_ENV_STEPS, unrolled
from remuda.tests.policy.unrolled.trails import noted
from remuda.tests.runner.runs import Flag, Ticking
from remuda.tests.runner.test_run_folder import rows


def trained(place: Path, *, resume: bool = False, looks: int = 10**9, **options: Any) -> RunResult:
    notes = place / "notes"
    notes.mkdir(exist_ok=True)
    config = load_settings(unrolled(notes, **options), folder=place).config
    start = Start(place / "run", "resume" if resume else "error")
    return run(config, start, stop=Flag(looks), clock=Ticking())


def shown(result: RunResult, column: str) -> np.ndarray:
    """What progress.txt says, where there were updates."""
    values = np.array([row[column] for row in rows(RunFolder(result.run_dir).progress)])
    return np.asarray(values[np.isfinite(values)])


def steps_in(notes: Path, kind: str) -> set[tuple[int, ...]]:
    return set(map(tuple, noted(notes, kind).tolist()))


def test_a_resumed_run_learns_from_rows_of_before_and_of_after(tmp_path: Path) -> None:
    """And the windows under way when it was interrupted were lost as a whole: none goes on in another episode."""
    first = trained(tmp_path, looks=60, prioritized=True)
    assert (first.reason, first.failed) == ("stopped", False), first
    notes = tmp_path / "notes"
    before = steps_in(notes, "taken")
    for file in notes.glob("learned-*"):
        file.unlink()
    second = trained(tmp_path, resume=True, prioritized=True)
    assert second.reason == "max_env_steps", second
    assert MAX_ENV_STEPS - 100 > first.counters.env_step > 100
    learned = steps_in(notes, "learned")
    assert learned <= steps_in(notes, "taken")
    assert len(learned & before) > 50
    assert len(learned - before) > 50
    assert len(steps_in(notes, "taken")) == second.counters.env_step
    assert not shown(second, "cut").any(), "nothing is cut off while a run goes on"
    assert (shown(second, "terminated") > 0).any()
    assert (shown(second, "truncated") > 0).any()
    assert shown(second, "odd").min() > 0.6, "rows of odd steps have the higher priority"


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
