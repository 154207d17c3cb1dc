"""Corridors that become longer are solved up to the longest, which is not solved without the shorter ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.tests.learning.test_cartpole import DEADLINE_S, solve

EXAMPLE = Path(__file__).parents[2] / "examples" / "corridor_ppo.yaml"
SOLVED = 0.9
SEEDS = range(3)

pytestmark = [pytest.mark.learning, pytest.mark.processes, pytest.mark.timeout(2 * len(SEEDS) * DEADLINE_S)]


def test_every_seed(tmp_path: Path) -> None:
    for seed in SEEDS:
        assert solve("train", seed, tmp_path / f"{seed}", EXAMPLE, SOLVED)
        assert len(CheckpointIndex(RunFolder(tmp_path / f"{seed}").ckpt).tasks) == 8


def test_the_longest_alone_is_not_solved(tmp_path: Path) -> None:
    text = EXAMPLE.read_text()
    head, _, rest = text.partition("  schedule:\n")
    config = tmp_path / "alone.yaml"
    config.write_text(head.replace("length: 4", "length: 25") + rest[rest.index("policy:") :])
    (tmp_path / "corridor.py").write_text(EXAMPLE.with_name("corridor.py").read_text())
    assert solve("train", 0, tmp_path / "run", config, SOLVED, deadline_s=2 * DEADLINE_S) is None
