"""The checkpoints of a run, as benchmarks read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import CheckpointRecord


def run_with(root: Path, seconds: Sequence[float], returns: Sequence[float | None] = ()) -> RunFolder:
    """A run that saved a checkpoint each 100 updates and 400 steps, at these seconds, evaluated with these returns."""
    folder = RunFolder(root / "run")
    folder.ckpt.mkdir(parents=True)
    index = CheckpointIndex(folder.ckpt)
    for number, wall_s in enumerate(seconds):
        iters, name = 100 * number, f"iteration_{100 * number}.pth.tar"
        (folder.ckpt / name).write_bytes(b"weights")
        index.add(CheckpointRecord(iters, 4 * iters, wall_s, None, name, "0" * 64, "2026-11-22T00:00:00+00:00"))
        found = returns[number] if number < len(returns) else None
        if found is not None:
            index.set_reward(iters, found, best=found == max(known for known in returns if known is not None))
    return folder
