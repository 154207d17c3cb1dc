"""A checkpoint file: written atomically, and read as untrusted input with checks."""

from __future__ import annotations

import functools
import hashlib
import io
import pickletools
import platform
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
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
"""Largest number of values, counted once per reference, in addition to the number of operations."""
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
    """Placeholder for a value: holds the values inside it."""

    __slots__ = ("depth", "inside", "unfolded")

    def __init__(self, inside: list[_Value]) -> None:
        self.inside = inside
        self.unfolded = 0
        self.depth = 0


_PLAIN = _Value([])
"""Placeholder for all numbers and text."""
_PLAIN.unfolded = 1


class _Machine:
    """Stack, marks and memo of an unpickler."""

    def __init__(self) -> None:
        self.stack: list[_Value] = []
        self.marks: list[int] = []
        self.memo: dict[int, _Value] = {}
        self.made: list[_Value] = []

    def push(self, inside: list[_Value]) -> None:
        value = _Value(inside)
        self.made.append(value)
        self.stack.append(value)

    def take(self, count: int) -> list[_Value]:
        """Pop values from the stack. Raises ValueError for too few values."""
        if count > len(self.stack) - (self.marks[-1] if self.marks else 0):
            raise ValueError("its pickle pops more values than the stack has")
        taken = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return taken

    def take_to_mark(self) -> list[_Value]:
        if not self.marks:
            raise ValueError("its pickle has no mark where it needs one")
        begin = self.marks.pop()
        taken = self.stack[begin:]
        del self.stack[begin:]
        return taken

    def put_into(self, inside: list[_Value]) -> None:
        """The value on top, a list, a dict or an object, gets more inside."""
        [into] = self.take(1)
        if into is _PLAIN:
            raise ValueError("its pickle puts values into a number")
        into.inside += inside
        self.stack.append(into)


def _do_nothing(machine: _Machine, argument: object) -> None:
    pass


def _push_plain(machine: _Machine, argument: object) -> None:
    machine.stack.append(_PLAIN)


def _push_empty(machine: _Machine, argument: object) -> None:
    machine.push([])


def _named(machine: _Machine, argument: object) -> None:
    name = str(argument)
    if name not in _FUNCTIONS and not _STORAGE.fullmatch(name) and not _DTYPE.fullmatch(name):
        raise ValueError(f"its pickle names {name[:80]!r}, which no checkpoint needs")
    machine.stack.append(_PLAIN)


def _mark(machine: _Machine, argument: object) -> None:
    machine.marks.append(len(machine.stack))


def _remember(machine: _Machine, argument: object) -> None:
    [value] = machine.take(1)
    machine.stack.append(value)
    machine.memo[int(str(argument))] = value


def _recall(machine: _Machine, argument: object) -> None:
    value = machine.memo.get(int(str(argument)))
    if value is None:
        raise ValueError("its pickle reads a memo entry that was not set")
    machine.stack.append(value)


def _packing(count: int) -> Callable[[_Machine, object], None]:
    return lambda machine, argument: machine.push(machine.take(count))


def _filling(count: int | None) -> Callable[[_Machine, object], None]:
    return lambda machine, argument: machine.put_into(machine.take_to_mark() if count is None else machine.take(count))


_OPERATIONS: dict[str, Callable[[_Machine, object], None]] = {
    **dict.fromkeys(("PROTO", "STOP"), _do_nothing),
    **dict.fromkeys(("NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"), _push_plain),
    **dict.fromkeys(("BINUNICODE", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES"), _push_plain),
    **dict.fromkeys(("EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET", "EMPTY_TUPLE"), _push_empty),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), _remember),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), _recall),
    **dict.fromkeys(("APPENDS", "SETITEMS"), _filling(None)),
    **dict.fromkeys(("REDUCE", "NEWOBJ"), _packing(2)),
    "GLOBAL": _named,
    "MARK": _mark,
    "TUPLE": lambda machine, argument: machine.push(machine.take_to_mark()),
    "TUPLE1": _packing(1),
    "TUPLE2": _packing(2),
    "TUPLE3": _packing(3),
    "BINPERSID": _packing(1),
    "APPEND": _filling(1),
    "SETITEM": _filling(2),
    "BUILD": _filling(1),
}
"""Effects of operations, by the names of pickletools. torch's reader knows the same operations."""


def require_plain_pickle(content: bytes) -> None:
    """Raise ValueError if the pickle names a function unknown in checkpoints, or unfolds far beyond its size."""
    machine, operations = _Machine(), 0
    for operation, argument, _ in pickletools.genops(content):
        follow = _OPERATIONS.get(operation.name)
        if follow is None:
            raise ValueError(f"its pickle has the operation {operation.name}, which no checkpoint needs")
        follow(machine, argument)
        operations += 1
    most = MOST_UNFOLDED + operations
    for value in machine.made:
        if not value.unfolded:
            _unfold(value, most)


def _unfold(root: _Value, most: int) -> None:
    """Compute unfolded size and depth of a value, innermost values first."""
    path: list[tuple[_Value, Iterator[_Value]]] = [(root, iter(root.inside))]
    open_now = {id(root)}
    while path:
        value, rest = path[-1]
        following = next((each for each in rest if not each.unfolded), None)
        if following is not None:
            if id(following) in open_now:
                raise ValueError("its pickle contains itself")
            open_now.add(id(following))
            path.append((following, iter(following.inside)))
            continue
        path.pop()
        open_now.discard(id(value))
        value.unfolded = 1 + sum(each.unfolded for each in value.inside)
        value.depth = 1 + max((each.depth for each in value.inside), default=0)
        if value.unfolded > most:
            raise ValueError(f"its pickle unfolds to more than {most} values")
        if value.depth > MOST_DEEP:
            raise ValueError(f"its pickle is nested deeper than {MOST_DEEP} levels")


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
