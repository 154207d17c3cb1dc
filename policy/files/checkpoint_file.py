"""A checkpoint file: written atomically, and read as untrusted input with checks."""

from __future__ import annotations

import functools
import hashlib
import io
import platform
import zipfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import IO, TypeVar, cast

import msgspec
import torch

from remuda.config.errors import Error
from remuda.policy.files.plain_pickle import require_plain_pickle
from remuda.storage.atomic import Replacing, replacing, write_bytes
from remuda.storage.untrusted import open_regular
from remuda.wire.messages import CheckpointRecord, Counters, PolicyRef

FORMAT = 1
"""Version of the format. Increase it if older code could not read a new checkpoint."""
OURS = ("format", "last_iter", "last_step", "counters", "versions")
"""Keys that `encode` adds to the given parts."""

_LOCAL_HEADER_BYTES = 30
"""Least number of bytes before a member's content in a zip archive."""

_T = TypeVar("_T")


class _Versioned(msgspec.Struct):
    format: int


class CheckpointError(Error):
    """The checkpoint is missing, damaged, from a newer Remuda, or does not fit; the message names the file."""


def encode(parts: Mapping[str, object], counters: Counters) -> memoryview:
    """Return a checkpoint's content: these parts, the progress of the run, and package versions."""
    content: dict[str, object] = {
        **parts,
        "format": FORMAT,
        "last_iter": counters.train_iter,
        "last_step": counters.env_step,
        "counters": msgspec.to_builtins(counters),
        "versions": dict(versions()),
    }
    buffer = io.BytesIO()  # straight to a file it takes longer than this and the writing together
    torch.save(content, buffer)
    return buffer.getbuffer()


def write(
    path: Path,
    content: memoryview,
    counters: Counters,
    *,
    policy: PolicyRef = PolicyRef(),  # noqa: B008  (immutable)
    now: datetime | None = None,
    replace: Replacing = replacing,
) -> CheckpointRecord:
    """Write the result of `encode`, atomically and synced to the disk, and return its record for index.json.

    Raises OSError (disk full); an older file of this name is then unchanged.
    """
    write_bytes(path, content, durable=True, replace=replace)
    return CheckpointRecord(
        train_iter=counters.train_iter,
        env_step=counters.env_step,
        wall_s=counters.wall_s,
        reward=None,
        file=path.name,
        sha256=hashlib.sha256(content).hexdigest(),
        created=(now or datetime.now()).astimezone().isoformat(timespec="seconds"),
        episode=counters.episode,
        policy=policy,
    )


@functools.cache
def versions() -> Mapping[str, str]:
    """Versions in this process, looked up once: reading the packages' metadata takes longer than writing a small
    checkpoint."""
    packages = {name: metadata.version(name) for name in ("remuda", "torch", "numpy")}
    return {**packages, "python": platform.python_version()}


def read(path: Path) -> Mapping[str, object]:
    """Open a checkpoint on the CPU. Raises CheckpointError; a hostile file is refused, never executed or unpacked."""
    try:
        with open_regular(path) as file:
            require_plain(file)
        content: object = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such checkpoint") from None
    except Exception as error:  # torch has a dozen unrelated types for a damaged or forbidden file
        raise CheckpointError(f"{path}: not a checkpoint, or a damaged one: {first_line(error)}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: not a checkpoint: it holds a {type(content).__name__}, not a dict")
    data = cast("dict[str, object]", content)
    found = typed(path, data, _Versioned).format
    if found > FORMAT:
        raise CheckpointError(f"{path}: format {found} is newer than this Remuda reads ({FORMAT}); update Remuda")
    return data


def typed(path: Path, data: Mapping[str, object], of_type: type[_T]) -> _T:
    """Return the parts of a checkpoint that are fields of `of_type`, checked. Raises CheckpointError with the name of
    the part."""
    try:
        return msgspec.convert(data, of_type)
    except msgspec.ValidationError as error:
        # What every checkpoint has and no policy: a custom loop wrote it, and only that can tell its parts.
        own = "; it is of a loop of its own (run_context), which reads it with run.load()"
        raise CheckpointError(f"{path}: {error}{own if 'format' in data and 'config' not in data else ''}") from error


def require_plain(file: IO[bytes]) -> None:
    """Raise ValueError for a file that is not a zip archive (a bare pickle), that unpacks to more bytes than it has
    (compressed or overlapping members), or whose pickle could take more memory than its size: see plain_pickle."""
    file_bytes = file.seek(0, io.SEEK_END)
    with zipfile.ZipFile(file) as archive:
        members = sorted(archive.infolist(), key=lambda member: member.header_offset)
        _require_apart(members, file_bytes)
        for member in members:
            if member.filename.endswith(".pkl"):
                require_plain_pickle(archive.read(member))


def _require_apart(members: Sequence[zipfile.ZipInfo], file_bytes: int) -> None:
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise ValueError("its archive is compressed, which no checkpoint is")
    ends = [
        member.header_offset + _LOCAL_HEADER_BYTES + max(member.file_size, member.compress_size) for member in members
    ]
    begins = [*(member.header_offset for member in members), file_bytes]
    if any(end > next_begin for end, next_begin in zip(ends, begins[1:], strict=True)):
        raise ValueError("members of its archive overlap, so it would take more memory than its size")


def first_line(error: Exception) -> str:
    """First line of torch's message, without pages of advice and stack."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
