"""The published policy: one learner rewrites the file, many collectors and evaluators read it.

Readers need no lock. `os.replace` changes the name at once, so an open file is one whole publication. A checksum over
the whole content detects disk errors. A replaced learner cannot publish over its successor: the successor has removed
the file that the old learner would rename (see storage/fence.py), and the old learner finds a higher epoch in the file
when it checks. One fsync before the replace is enough against power failures: readers find a whole policy, new or old,
and the next learner publishes under a higher epoch anyway.

The lock only orders writers. Readers take none: an open() before the replace and one after it are both safe, and a
stopped reader cannot block the learner.
"""

from __future__ import annotations

import errno
import os
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Struct, field

from remuda.policy.saved_state import require_finite
from remuda.storage.atomic import Replacing, replacing, write_all
from remuda.storage.lock import LockTimeout, holding
from remuda.storage.tensor_file import TensorFileError, encode_header, fingerprint, in_file_order, memory_of, views
from remuda.storage.untrusted import open_regular
from remuda.wire.messages import Count, PolicyRef

_FORMAT = "remuda-policy-1"
_MAX_HEADER_BYTES = 1 << 20
_MAX_FILE_BYTES = 2 << 30
_RETRY_PAUSE_S = 0.005
_GONE = (errno.ENOENT, errno.ESTALE)
"""Errors of readers on a network file system during a replacement: the file is opened again."""

_T = TypeVar("_T")


class PolicyFileError(Exception):
    """The file is missing, damaged, or not a policy file; the message names the file. A reader keeps the old policy."""


class StaleEpoch(Exception):  # noqa: N818  (it says what happened)
    """A newer policy is already published, by another learner: stop publishing."""


@dataclass(frozen=True)
class LoadedPolicy:
    """A published policy: tensors by name."""

    ref: PolicyRef
    state: dict[str, np.ndarray]


class _Metadata(Struct, frozen=True):
    format: Literal["remuda-policy-1"]
    epoch: Count
    version: Count
    train_iter: Count
    checksum: Count
    """The checksum over the fields above and all tensors; see tensor_file.fingerprint."""

    @property
    def ref(self) -> PolicyRef:
        return PolicyRef(epoch=self.epoch, version=self.version, train_iter=self.train_iter)


class _Header(Struct, frozen=True):
    """A safetensors header without its tensors."""

    metadata: _Metadata = field(name="__metadata__")


def lock_path(path: Path) -> Path:
    """The path of a policy file's lock."""
    return path.with_name(f"{path.name}.lock")


def publish(
    path: Path,
    state: Mapping[str, np.ndarray],
    policy: PolicyRef,
    *,
    warn: Callable[[str], None],
    replace: Replacing = replacing,
    lock_deadline_s: float = 5.0,
) -> None:
    """Publish `state`.

    Raises NotFinite, StaleEpoch if the file already holds this policy or a newer one, and OSError (for instance a full
    disk); the old file is then unchanged. If the lock is not available, calls `warn` and publishes without it. A
    learner passes the `replace` of its Fence, which raises SupersededError.
    """
    require_finite(state)
    content = _content(state, policy)
    with ExitStack() as lock, replace(path, durable=False) as temporary:
        with open(temporary, "wb", buffering=0) as file:
            write_all(file.fileno(), content)
            os.fsync(file.fileno())  # before the lock, so it is held for the check and the replace alone
        try:
            lock.enter_context(holding(lock_path(path), deadline_s=lock_deadline_s))
        except (LockTimeout, OSError) as error:
            warn(f"publishing {path.name} without its lock: {error}")
        _refuse_to_go_back(path, policy, warn)


def load(path: Path, *, newer_than: PolicyRef | None = None, deadline_s: float = 2.0) -> LoadedPolicy | None:
    """Read the published policy; None if it is not newer (by epoch, then version) than `newer_than`.

    Opens a missing or just replaced file again until `deadline_s`. Raises PolicyFileError.
    """
    return _reading(path, lambda file: _load(path, file, newer_than), deadline_s=deadline_s)


def open_newer(path: Path, *, newer_than: PolicyRef | None) -> FileIO | None:
    """Open the published policy to copy it; None if it is not newer (by epoch, then version) than `newer_than`.

    The open file is one whole publication. Raises PolicyFileError.
    """
    try:
        file = open(path, "rb", buffering=0)  # noqa: SIM115  (its caller closes it)
    except OSError as error:
        raise PolicyFileError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        ref = _metadata(path, file).ref
    except BaseException:
        file.close()
        raise
    if newer_than is None or _age(ref) > _age(newer_than):
        return file
    file.close()
    return None


def read_ref(path: Path) -> PolicyRef | None:
    """Read the version of the published policy from the header; None without a file. Raises PolicyFileError."""
    try:
        return _reading(path, lambda file: _metadata(path, file).ref, deadline_s=0.0)
    except PolicyFileError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def _refuse_to_go_back(path: Path, policy: PolicyRef, warn: Callable[[str], None]) -> None:
    try:
        there = read_ref(path)
    except PolicyFileError as error:
        warn(f"replacing a damaged policy file: {error}")
        return
    if there is not None and _age(there) >= _age(policy):
        raise StaleEpoch(
            f"{path} holds epoch {there.epoch} version {there.version}; "
            f"epoch {policy.epoch} version {policy.version} may not replace it"
        )


def _age(policy: PolicyRef) -> tuple[int, int]:
    return policy.epoch, policy.version


def _content(state: Mapping[str, np.ndarray], policy: PolicyRef) -> list[bytes | memoryview]:
    tensors = in_file_order(state)
    metadata = {
        "format": _FORMAT,
        "epoch": str(policy.epoch),
        "version": str(policy.version),
        "train_iter": str(policy.train_iter),
        "checksum": str(_checksum(tensors, policy)),
    }
    return [encode_header(tensors, metadata), *memory_of(tensors)]


def _checksum(tensors: Mapping[str, np.ndarray], policy: PolicyRef) -> int:
    return fingerprint(tensors, zlib.crc32(f"{_FORMAT} {policy.epoch} {policy.version} {policy.train_iter}".encode()))


def _reading(path: Path, read: Callable[[FileIO], _T], *, deadline_s: float) -> _T:
    give_up_s = time.monotonic() + deadline_s
    while True:
        try:
            with open_regular(path) as file:
                return read(file)
        except OSError as error:
            if error.errno not in _GONE or time.monotonic() >= give_up_s:
                raise PolicyFileError(f"{path}: cannot be read: {error.strerror}") from error
        time.sleep(_RETRY_PAUSE_S)


def _load(path: Path, file: FileIO, newer_than: PolicyRef | None) -> LoadedPolicy | None:
    metadata = _metadata(path, file)
    if newer_than is not None and _age(metadata.ref) <= _age(newer_than):
        return None
    size = os.fstat(file.fileno()).st_size
    if size > _MAX_FILE_BYTES:
        raise PolicyFileError(f"{path}: {size} bytes are more than a policy file may have ({_MAX_FILE_BYTES})")
    header_bytes = file.tell()
    content = np.empty(size - header_bytes, np.uint8)  # the only copy: fresh memory costs more than reading into it
    rest = content.data
    while rest and (count := file.readinto(rest)):
        rest = rest[count:]
    try:
        file.seek(8)
        state = views(file.read(header_bytes - 8), content)
    except TensorFileError as error:
        raise PolicyFileError(f"{path}: damaged: {error}") from error
    if rest or _checksum(state, metadata.ref) != metadata.checksum:
        raise PolicyFileError(f"{path}: damaged: the checksum does not match the content")
    return LoadedPolicy(metadata.ref, state)


def _metadata(path: Path, file: FileIO) -> _Metadata:
    """Read the header, at most _MAX_HEADER_BYTES, whatever length the file claims."""
    length = int.from_bytes(file.read(8), "little")
    if not 2 <= length <= _MAX_HEADER_BYTES:
        raise PolicyFileError(f"{path}: not a policy file (or an empty one): it claims a header of {length} bytes")
    try:
        return msgspec.json.decode(file.read(length), type=_Header, strict=False).metadata
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PolicyFileError(f"{path}: not a policy file, or a damaged one: {error}") from error
