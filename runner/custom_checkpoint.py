"""Checkpoints of a custom training loop: any plain state, in a file as trustworthy as Remuda's."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

from remuda.wire.messages import CheckpointRecord, Counters


def write_state(path: Path, state: Mapping[str, object], counters: Counters) -> CheckpointRecord:
    """Write `state` and the counters, atomically and synced to the disk, and describe the file for index.json.

    Raises ValueError for what `torch.load(weights_only=True)` would not open, or keys that are not the state's to
    have; OSError leaves an older file of this name as it was.
    """
    import torch  # a second that a loop without checkpoints need not wait

    from remuda.policy.files.checkpoint_file import OURS, encode, first_line, require_plain, write

    if taken := sorted(state.keys() & set(OURS)):
        raise ValueError(f"the state's {', '.join(taken)} would hide what Remuda writes there: choose other names")
    content = encode(state, counters)
    try:
        require_plain(io.BytesIO(content))
        torch.load(io.BytesIO(content), weights_only=True)
    except Exception as error:  # torch has several unrelated types for this
        raise ValueError(
            "the state holds something besides tensors, numbers, text, and lists and dicts of them: "
            f"{first_line(error)}"
        ) from error
    return write(path, content, counters)


def read_state(folder: Path, record: CheckpointRecord | None) -> Mapping[str, object]:
    """The state that was written, without what was added to it. Raises CheckpointError."""
    from remuda.policy.files.checkpoint_file import OURS, CheckpointError, read

    if record is None:
        raise CheckpointError("nothing is resumed: open the run with on_exists='resume'")
    content = read(folder / record.file)
    return {name: value for name, value in content.items() if name not in OURS}
