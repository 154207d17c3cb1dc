"""A checkpoint file: written atomically, and read as untrusted input with checks."""

from __future__ import annotations

import functools
import hashlib
import io
import pickletools
import platform
import re
import zipfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import IO, TypeVar, cast

import msgspec
import torch

from remuda.config.errors import Error
from remuda.storage.atomic import Replacing, replacing, write_bytes
from remuda.storage.untrusted import open_regular
from remuda.wire.messages import CheckpointRecord, Counters, PolicyRef

MOST_UNFOLDED = 1_000_000
"""Largest number of values, counted once per reference, in addition to the bytes of the pickle."""
MOST_DEEP = 200
"""Lists in lists."""

_STORAGE = re.compile(r"torch(\.storage)? [A-Z][A-Za-z0-9]*Storage")
_DTYPE = re.compile(r"torch (float|bfloat|int|uint|complex|bool)[a-z0-9_]*")
_FUNCTIONS = frozenset(
    {
        "collections OrderedDict",
        "collections Counter",
        "torch._utils _rebuild_tensor_v2",
        "torch._utils _rebuild_parameter",
        "torch Size",
        "torch device",
        "torch.serialization _get_layout",
        "_codecs encode",
        "builtins set",
        "builtins complex",
        "__builtin__ set",
        "__builtin__ complex",
    }
)
"""Functions that `torch.save` names for tensors, numbers, text, bytes, sets, lists and dicts."""


class _Value:
    """A value of a pickle, by the size of its content."""

    __slots__ = ("depth", "held", "unfolded")

    def __init__(self) -> None:
        self.unfolded = 1
        self.depth = 1
        self.held = False
        """True once another value contains this value and counts its size."""


_PLAIN = _Value()
"""Placeholder for all numbers and text."""
_PLAIN.depth, _PLAIN.held = 0, True

_PLAINS = {
    *("NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES"),
}
_PACKS: Mapping[str, int | None] = {
    **dict.fromkeys(("EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET", "EMPTY_TUPLE"), 0),
    **dict.fromkeys(("TUPLE1", "BINPERSID"), 1),
    **dict.fromkeys(("TUPLE2", "REDUCE", "NEWOBJ"), 2),
    **{"TUPLE3": 3, "TUPLE": None},
}
"""Operations that make a value, and the number of values inside; None: to the last mark."""
_FILLS: Mapping[str, int | None] = {"APPEND": 1, "SETITEM": 2, "BUILD": 1, "APPENDS": None, "SETITEMS": None}
"""Operations that put values into the value below them. torch's reader knows the same operations."""


class _Machine:
    """Stack, marks and memo of an unpickler."""

    def __init__(self, most_unfolded: int) -> None:
        self._most_unfolded = most_unfolded
        self._stack: list[_Value] = []
        self._marks: list[int] = []
        self._memo: dict[object, _Value] = {}

    def follow(self, operation: str, argument: object) -> None:
        """Run an operation, by the name in pickletools. Raises ValueError."""
        if operation in _FILLS:
            inside = self._take(_FILLS[operation])
            self._put(self._take(1)[0], inside)
        elif operation in _PACKS:
            self._put(_Value(), self._take(_PACKS[operation]))
        elif operation in _PLAINS:
            self._stack.append(_PLAIN)
        elif operation == "GLOBAL":
            self._stack.append(_named(str(argument)))
        elif operation == "MARK":
            self._marks.append(len(self._stack))
        elif operation in ("BINPUT", "LONG_BINPUT"):
            self._stack += self._take(1)  # refuses an empty stack
            self._memo[argument] = self._stack[-1]
        elif operation in ("BINGET", "LONG_BINGET"):
            if argument not in self._memo:
                raise ValueError("its pickle reads a memo entry that was not set")
            self._stack.append(self._memo[argument])
        elif operation not in ("PROTO", "STOP"):
            raise ValueError(f"its pickle has the operation {operation}, which no checkpoint needs")

    def _take(self, count: int | None) -> list[_Value]:
        """Pop values from the stack; None: down to the last mark."""
        begin = len(self._stack) - count if count is not None else self._marks.pop() if self._marks else -1
        if begin < (self._marks[-1] if self._marks else 0):
            raise ValueError("its pickle pops more values than the stack has")
        taken = self._stack[begin:]
        del self._stack[begin:]
        return taken

    def _put(self, into: _Value, inside: list[_Value]) -> None:
        """Push a value with these values inside, in addition to its former content."""
        for value in inside:
            value.held = True
        if into.held and inside:
            raise ValueError("its pickle puts values into a number, or into a value inside another or itself")
        into.unfolded += sum(value.unfolded for value in inside)
        into.depth = max([into.depth, *(1 + value.depth for value in inside)])
        if into.unfolded > self._most_unfolded:
            raise ValueError(f"its pickle unfolds to more than {self._most_unfolded} values")
        if into.depth > MOST_DEEP:
            raise ValueError(f"its pickle is nested deeper than {MOST_DEEP} levels")
        self._stack.append(into)


def _named(name: str) -> _Value:
    if name not in _FUNCTIONS and not _STORAGE.fullmatch(name) and not _DTYPE.fullmatch(name):
        raise ValueError(f"its pickle names {name[:80]!r}, which no checkpoint needs")
    return _PLAIN


def require_plain_pickle(content: bytes) -> None:
    """Raise ValueError if the pickle names a function unknown in checkpoints, or unfolds far beyond its size."""
    machine = _Machine(MOST_UNFOLDED + len(content))
    for operation, argument, _ in pickletools.genops(content):
        machine.follow(operation.name, argument)


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
    (compressed or overlapping members), or whose pickle could take more memory: see require_plain_pickle."""
    file_bytes = file.seek(0, io.SEEK_END)
    with zipfile.ZipFile(file) as archive:
        members = sorted(archive.infolist(), key=lambda member: member.header_offset)
        _require_apart(members, file_bytes)
        for member in members:
            if member.filename.endswith(".pkl"):
                require_plain_pickle(archive.read(member))


def require_loadable(content: memoryview) -> None:
    """Raise ValueError unless `read` can open this content of a checkpoint."""
    try:
        require_plain(io.BytesIO(content))
        torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # torch has several unrelated types for this
        raise ValueError(
            "the state holds something besides tensors, numbers, text, and lists and dicts of them: "
            f"{first_line(error)}"
        ) from error


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
