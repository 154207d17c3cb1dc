"""Lineage of a population: the first checkpoint of each run, and checksums of these files."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from remuda.storage.atomic import link, write_bytes
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.existing_folder import make_private
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import CheckpointRecord

ORIGINS = "origins"
"""Folder of the sweep with hard links to the checkpoints of the present interval's origins, named by their SHA-256: no
run removes or replaces them."""
ORIGIN = "origin.json"
"""File in the folder of a run that began from another run's checkpoint: its origin."""


_REMEDY = "put the file back, or start over with --force"


class LineageError(Exception):
    """A file is not what the lineage says; nothing was started from it. The message names the file."""


class Origin(Struct, frozen=True, kw_only=True):
    """The beginning of a member's interval."""

    member: int
    generation: int
    """How often the member has been replaced."""
    run: str
    """Run of the member, in the folder `<variant>/<run>`; a replaced member has a new run."""
    settings: dict[str, Any]
    """By dotted key."""
    parent: str | None = None
    """Run of the checkpoint to begin from; the run itself, if the member goes on; None for new weights."""
    checkpoint: CheckpointRecord | None = None
    """Record of that checkpoint in the index of the parent; None for new weights."""


class Interval(Struct, frozen=True, kw_only=True):
    """All members between two comparisons."""

    until_env_step: int
    origins: tuple[Origin, ...]
    """By member."""
    ends: tuple[CheckpointRecord | None, ...] = ()
    """The last checkpoint of each member, with its return; None for a failed run. Empty until all have come to the
    end."""


class Lineage(Struct, frozen=True):
    """All intervals of a population. Each is on disk before a run of it begins."""

    space: dict[str, str]
    """Space of the settings, as text."""
    intervals: tuple[Interval, ...]


def pinned(folder: Path, checkpoint: CheckpointRecord) -> Path:
    """Return the path by which the sweep in `folder` keeps a checkpoint."""
    return folder / ORIGINS / f"{checkpoint.sha256}.pth.tar"


def pin(folder: Path, run_dir: Path, checkpoint: CheckpointRecord) -> None:
    """Keep a checkpoint of a run. Raises LineageError if the file is not the recorded one."""
    source = RunFolder(run_dir).ckpt / checkpoint.file
    _require(source, checkpoint)
    make_private(folder / ORIGINS)
    link(source, pinned(folder, checkpoint), durable=True)


def unpin(folder: Path, kept: Collection[CheckpointRecord]) -> None:
    """Remove all kept checkpoints but these."""
    names = {pinned(folder, checkpoint).name for checkpoint in kept}
    for path in (folder / ORIGINS).glob("*"):
        if path.name not in names:
            path.unlink(missing_ok=True)


def place(folder: Path, origin: Origin, run_dir: Path, parent_dir: Path, *, with_replay: bool) -> None:
    """Make the folder of a run that begins from a parent's checkpoint: to be resumed like any run. The folder appears
    at once, complete.

    The parent must be at rest. Raises LineageError if a file is not the recorded one, or the replay has changed.
    """
    checkpoint, parent = origin.checkpoint, RunFolder(parent_dir)
    if checkpoint is None or run_dir == parent_dir or not parent.root.exists():
        raise LineageError(f"{run_dir if run_dir == parent_dir else parent.root} is missing: {_REMEDY}")
    _require(pinned(folder, checkpoint), checkpoint)
    if with_replay and CheckpointIndex(parent.ckpt).last != checkpoint:
        raise LineageError(f"{parent.root} has trained on: its replay at {checkpoint.file} is gone: {_REMEDY}")
    made = RunFolder(run_dir.with_name(f".{run_dir.name}.tmp"))
    if made.root.exists():  # a killed sweep has left it
        shutil.rmtree(made.root)
    make_private(made.root)
    made.ckpt.mkdir()
    link(pinned(folder, checkpoint), made.ckpt / checkpoint.file, durable=True)
    index = CheckpointIndex(made.ckpt)
    index.add(checkpoint)
    if checkpoint.reward is not None:
        tasks = {task.task: task.kwargs_json for task in CheckpointIndex(parent.ckpt).tasks}
        kwargs_json = tasks.get(checkpoint.task)
        index.set_reward(
            checkpoint.train_iter, checkpoint.reward, task=checkpoint.task, kwargs_json=kwargs_json, best=True
        )
    for path in (parent.config_json, parent.formatted_total_config):
        shutil.copy(path, made.root)
    if with_replay:
        for path in parent.root.glob(f"{parent.journal.name}*"):
            shutil.copy(path, made.root)
        made.data.mkdir()
        for path in parent.data.glob("*.safetensors"):
            link(path, made.data / path.name, durable=False)
    write_bytes(made.root / ORIGIN, _text(origin), durable=True)
    os.rename(made.root, run_dir)


def verify(folder: Path, origin: Origin, run_dir: Path) -> None:
    """Check that a run which is about to be resumed continues with the weights that the lineage says, or with later
    weights of its own. Raises LineageError.

    A run killed while it saved its first checkpoint again, without an update, gets the recorded one back.
    """
    run, checkpoint = RunFolder(run_dir), origin.checkpoint
    index = CheckpointIndex(run.ckpt)
    last = index.last
    if checkpoint is not None:
        _require(pinned(folder, checkpoint), checkpoint)
        if origin.parent != origin.run and not _is_of(run_dir / ORIGIN, origin):
            raise LineageError(f"{run_dir / ORIGIN} is not the origin in sweep.json: {_REMEDY}")
        if last is None or last.train_iter < checkpoint.train_iter:
            raise LineageError(f"{run.ckpt} ends before {checkpoint.file}, where it began: {_REMEDY}")
        there = {last.sha256, _sha256(run.ckpt / last.file)}
        if last.train_iter == checkpoint.train_iter and there != {checkpoint.sha256}:
            link(pinned(folder, checkpoint), run.ckpt / checkpoint.file, durable=True)
            index.add(checkpoint)
            last = checkpoint
    if last is not None:
        _require(run.ckpt / last.file, last)


def _is_of(path: Path, origin: Origin) -> bool:
    try:
        return path.read_bytes() == _text(origin)
    except FileNotFoundError:
        return False


def _text(origin: Origin) -> bytes:
    return msgspec.json.format(msgspec.json.encode(origin), indent=2) + b"\n"


def _require(path: Path, checkpoint: CheckpointRecord) -> None:
    found = _sha256(path)
    if found != checkpoint.sha256:
        what = "is missing" if found is None else f"has the SHA-256 {found}"
        raise LineageError(
            f"{path} {what}, and the lineage says {checkpoint.sha256} ({checkpoint.file}, env_step "
            f"{checkpoint.env_step}): {_REMEDY}"
        )


def _sha256(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None
