"""Checkpoints of a loop of somebody's own: any plain state, in a file as trustworthy as Remuda's."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from datetime import datetime
from importlib import metadata
from pathlib import Path

import msgspec

from remuda.storage.atomic import write_bytes
from remuda.wire.messages import CheckpointRecord, Counters

_OURS = ("format", "last_iter", "last_step", "counters", "versions")


def write_state(path: Path, state: Mapping[str, object], counters: Counters) -> CheckpointRecord:
    """Write `state` and the counters, atomically and synced to the disk, and describe the file for index.json.

    Raises ValueError for what `torch.load(weights_only=True)` would not open, or keys that are not the state's to
    have; OSError leaves an older file of this name as it was.
    """
    import torch  # a second that a loop without checkpoints need not wait

    from remuda.policy.checkpoint_file import FORMAT

    if taken := sorted(state.keys() & set(_OURS)):
        raise ValueError(f"the state's {', '.join(taken)} would hide what Remuda writes there: choose other names")
    content = {
        **state,
        "format": FORMAT,
        "last_iter": counters.train_iter,
        "last_step": counters.env_step,
        "counters": msgspec.to_builtins(counters),
        "versions": {name: metadata.version(name) for name in ("remuda", "torch")},
    }
    buffer = io.BytesIO()
    torch.save(content, buffer)
    data = buffer.getvalue()
    try:
        torch.load(io.BytesIO(data), weights_only=True)
    except Exception as error:  # torch has several unrelated types for this
        raise ValueError(
            "the state holds something besides tensors, numbers, text, and lists and dicts of them: "
            f"{str(error).strip().splitlines()[0]}"
        ) from error
    write_bytes(path, data, durable=True)
    return CheckpointRecord(
        train_iter=counters.train_iter,
        env_step=counters.env_step,
        wall_s=counters.wall_s,
        reward=None,
        file=path.name,
        sha256=hashlib.sha256(data).hexdigest(),
        created=datetime.now().astimezone().isoformat(timespec="seconds"),
        episode=counters.episode,
    )


def read_state(folder: Path, record: CheckpointRecord | None) -> Mapping[str, object]:
    """The state that was written, without what was added to it. Raises CheckpointError."""
    from remuda.policy.checkpoint_file import CheckpointError, read

    if record is None:
        raise CheckpointError("nothing is resumed: open the run with on_exists='resume'")
    content = read(folder / record.file)
    return {name: value for name, value in content.items() if name not in _OURS}
