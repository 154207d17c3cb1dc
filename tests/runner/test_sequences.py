"""Serial runs of R2D2: sequences are counted, replayed and resumed as rows of any other kind are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from remuda.buffer.chunk import read_chunk, read_meta
from remuda.config.load import load_settings
from remuda.runner.serial import RunResult, Start, run
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.tests.runner.runs import Flag, Ticking

pytestmark = pytest.mark.xdist_group("a run of R2D2")

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
SLOTS, PERIOD, NUM_ENVS = 9, 3, 3


def trained(place: Path, *, env_steps: int, resume: bool = False) -> RunResult:
    settings = {
        "name": "sequences",
        "env": {"id": "CartPole-v1", "num_envs": NUM_ENVS, "max_episode_steps": 20},
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


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunResult]:
    place = tmp_path_factory.mktemp("sequences")
    return place, trained(place, env_steps=600)


def test_a_run_has_a_row_for_every_period_of_an_environment(first: tuple[Path, RunResult]) -> None:
    place, result = first
    assert (result.reason, result.failed) == ("max_env_steps", False), result
    assert result.counters.env_step >= 600
    assert result.counters.train_iter > 20
    rows = kept(place / "run")
    steps, resets = result.counters.env_step, result.counters.episode
    slots = (steps + resets) // NUM_ENVS  # of each environment
    assert abs(len(rows["reward"]) - NUM_ENVS * (slots - SLOTS) // PERIOD) <= 3 * NUM_ENVS
    assert rows["obs"].shape[1:] == (SLOTS + 1, 4)
    assert rows["state"].shape[1:] == (8,)


def test_states_go_on_through_chunks_and_begin_with_episodes(first: tuple[Path, RunResult]) -> None:
    """A row whose first observation follows a reset has the state of nobody, all others have one."""
    rows = kept(first[0] / "run")
    begins = np.zeros(len(rows["reward"]), np.bool_)
    begins[NUM_ENVS:] = ~rows["valid"][:-NUM_ENVS, PERIOD - 1]  # the slot before, in the row before it
    begins[:NUM_ENVS] = True
    assert begins.any()
    np.testing.assert_array_equal(~rows["state"].any(axis=1), begins)


def test_a_resumed_run_goes_on_with_weights_and_sequences(first: tuple[Path, RunResult]) -> None:
    place, before = first
    old = len(kept(place / "run")["reward"])
    second = trained(place, env_steps=900, resume=True)
    assert (second.reason, second.failed) == ("max_env_steps", False), second
    assert second.counters.env_step >= 900
    assert second.counters.train_iter > before.counters.train_iter
    rows = kept(place / "run")
    assert len(rows["reward"]) > old
    assert not rows["state"][old : old + NUM_ENVS].any(), "episodes under way are over, and what was remembered of them"
    last = CheckpointIndex(RunFolder(place / "run").ckpt).last
    assert last is not None
    assert last.train_iter == second.counters.train_iter
