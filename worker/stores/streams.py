"""The ports of a worker without the runs folder: files travel by stream, to and from a folder of its own."""

from __future__ import annotations

import errno
import hashlib
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

from remuda.buffer.chunk import AnyPayload, ChunkError, ChunkFault, Columns, Payload, encode_chunk, read_chunk
from remuda.policy.files.policy_file import LoadedPolicy, PolicyFileError, load
from remuda.storage.run_folder import PolicyFolder, RunFolder, target_file
from remuda.wire.codec import Frame
from remuda.wire.messages import ChunkMeta, Grant, PolicyRef
from remuda.wire.streams import FromServer, GetKind, LogAppend, LogHas, PutKind, Refused
from remuda.worker.stores.client import StreamClient
from remuda.worker.stores.ports import CheckpointGoneError, NotNowError, RunStores
from remuda.worker.stores.transfers import LONGEST_PAUSE_S, Download, OneFile, Outgoing, Transfer, Upload

WAIT_S = 0.1
"""Seconds that the main thread waits for a file before checking for messages."""
CHECKPOINTS_KEPT = 2
"""Checkpoints in the worker's folder: the shares of an evaluation play the same file."""

LOG_PIECE_BYTES = 128 << 10
LOG_INTERVAL_S, LOG_LONGEST_S = 1.0, 4.0
"""Between two looks at a log; doubled while it does not grow."""


def stream_stores(
    client: StreamClient, grant: Grant, folder: RunFolder, policies: Mapping[str, str], close: Callable[[], None]
) -> RunStores:
    """Return the stores under a lease. `folder` is this worker's own, with the layout of the run folder; `policies` has
    the policy file of each of several policies, by name; `close` is called at the end of the lease."""
    (folder.log / grant.role).mkdir(parents=True, exist_ok=True)
    files = _Files(client, grant)
    each = {
        name: _stores(_Files(client, grant, name), PolicyFolder(folder.root, name), file)
        for name, file in sorted(policies.items())
    }

    def describe() -> None:
        if folder.env_spec.exists():
            client.start(Upload(grant, "description", folder.env_spec.name, [folder.env_spec.read_bytes()]))

    def end() -> None:
        for one in (stores, *each.values()):
            one.close()
        close()

    stores = _stores(files, folder, grant.policy_file)
    return replace(stores, describe=describe, close=end, policies_apart=each)


def _stores(files: _Files, folder: RunFolder, policy_file: str) -> RunStores:
    for each in (folder.data, folder.policy, folder.ckpt):
        each.mkdir(parents=True, exist_ok=True)
    return RunStores(
        folder,
        StreamPayloads(files, folder.data),
        StreamPolicy(files, "policy", folder.policy / policy_file),
        StreamPolicy(files, "target", folder.policy / target_file(policy_file)),
        StreamCheckpoints(files, folder.ckpt),
        close=files.close,
    )


class _Files:
    """All files of a policy on their way under a lease."""

    def __init__(self, client: StreamClient, grant: Grant, policy: str = "") -> None:
        """`policy`: the name of one of several policies."""
        self._client, self._grant, self._policy = client, grant, policy
        self._fetched: dict[tuple[GetKind, Path], Download] = {}
        self._brought: set[Upload] = set()

    def bring(self, kind: PutKind, file: str, buffers: Sequence[bytes | memoryview]) -> Upload:
        """Begin an upload."""
        upload = Upload(self._grant, kind, file, buffers, policy=self._policy)
        self._brought.add(upload)
        self._client.start(upload)
        return upload

    def brought(self, upload: Upload) -> None:
        """Return once an upload has ended. Raises NotNowError at once, and OSError."""
        if not upload.finished:
            raise self._not_now(upload)
        self._brought.discard(upload)
        if upload.refused is not None:
            raise OSError(errno.EIO, f"{upload.file} was refused: {upload.refused.reason}")

    def fetch(self, kind: GetKind, file: str, path: Path, *, newer_than: PolicyRef | None = None) -> Download:
        """Begin a download to `path` with the first call; return it once it has ended. Raises NotNowError after a
        moment."""
        key = kind, path
        if key not in self._fetched:
            self._fetched[key] = Download(self._grant, kind, file, path, policy=self._policy, newer_than=newer_than)
            self._client.start(self._fetched[key])
        if not self._fetched[key].wait(WAIT_S):
            raise self._not_now(self._fetched[key])
        return self._fetched.pop(key)

    def close(self) -> None:
        """Give up running transfers."""
        for transfer in (*self._brought, *self._fetched.values()):
            self._client.cancel(transfer)

    def _not_now(self, transfer: OneFile) -> NotNowError:
        problem = self._client.trouble or transfer.problem
        return NotNowError("the stream server", problem, lacks_bytes=transfer.lacks_bytes)


class StreamPayloads:
    """A PayloadStore."""

    ahead = 1

    def __init__(self, files: _Files, folder: Path) -> None:
        self._files, self._folder = files, folder
        self._brought: dict[str, tuple[Payload, Upload]] = {}
        """Running uploads by name, with the metadata to announce."""

    def write(self, meta: AnyPayload, columns: Columns) -> AnyPayload:
        """See PayloadStore. The first call begins the upload, and later calls check it."""
        if meta.file not in self._brought:
            announced, buffers = encode_chunk(meta, columns)
            self._brought[meta.file] = announced, self._files.bring(_kind(meta), meta.file, buffers)
        begun, upload = self._brought[meta.file]
        try:
            self._files.brought(upload)
        finally:
            if upload.finished:
                del self._brought[meta.file]
        return cast("AnyPayload", begun)

    def read(self, meta: Payload) -> Columns:
        """See PayloadStore."""
        path = self._folder / meta.file
        refused = self._files.fetch(_kind(meta), meta.file, path).refused
        if refused is not None:
            fault: ChunkFault = "missing" if refused.missing else "unreadable"
            raise ChunkError(fault, path, refused.reason)
        try:
            return read_chunk(path, meta)
        finally:
            path.unlink(missing_ok=True)


def _kind(meta: Payload) -> Literal["chunk", "reanalysis"]:
    return "chunk" if isinstance(meta, ChunkMeta) else "reanalysis"


class StreamPolicy:
    """A PolicyStore: keeps the newest fetched policy."""

    def __init__(self, files: _Files, kind: GetKind, path: Path) -> None:
        self._files, self._path = files, path
        self._kind: GetKind = kind

    def load(self, *, newer_than: PolicyRef | None = None) -> LoadedPolicy | None:
        """See PolicyStore."""
        download = self._files.fetch(self._kind, self._path.name, self._path, newer_than=newer_than)
        if download.refused is not None:
            raise PolicyFileError(f"{self._path.name}: {download.refused.reason}")
        return None if download.nothing_newer else load(self._path, newer_than=newer_than, deadline_s=0.0)


class StreamCheckpoints:
    """A CheckpointStore with the newest fetched checkpoints, in folders named by checksum."""

    def __init__(self, files: _Files, folder: Path) -> None:
        self._files, self._folder = files, folder

    def fetch(self, file: str, sha256: str) -> Path:
        """See CheckpointStore. The checksum is part of the path: a name may be saved more than once."""
        path = self._folder / sha256 / file
        if path.exists():
            return path
        arriving = self._folder / f"{sha256}.arriving"
        refused = self._files.fetch("checkpoint", file, arriving).refused
        if refused is not None:
            raise CheckpointGoneError(f"{file}: {refused.reason}")
        with open(arriving, "rb") as content:
            path = self._folder / hashlib.file_digest(content, "sha256").hexdigest() / file
        if not path.parent.exists():
            self._make_room()
            path.parent.mkdir()
        arriving.replace(path)
        return path

    def _make_room(self) -> None:
        there = [each for each in self._folder.iterdir() if each.is_dir()]
        there.sort(key=lambda each: each.stat().st_mtime_ns)
        for old in there[: max(0, len(there) - CHECKPOINTS_KEPT + 1)]:
            shutil.rmtree(old)


class LogStream(Transfer):
    """Copies a local log to the run folder as it grows, without an end of its own."""

    def __init__(self, grant: Grant, path: Path) -> None:
        super().__init__()
        self._grant, self._path = grant, path
        self._there = 0
        """Bytes in the run folder."""
        self._asked = False
        """True while a piece is in flight."""
        self._due_s = 0.0
        self._pause_s = LOG_INTERVAL_S

    @property
    def expects(self) -> bool:
        """True while a piece is in flight."""
        return self._asked and not self.finished

    @property
    def due_s(self) -> float:
        """Time of the next look at the log."""
        return math.inf if self._asked or self.finished else self._due_s

    @property
    def is_complete(self) -> bool:
        """True if the run folder has the whole log so far."""
        return self._there >= self._size()

    def open(self, number: int, now_s: float) -> None:
        """See Transfer."""
        self._number, self._asked, self._due_s = number, False, now_s

    def hurry(self) -> None:
        """Send the rest without a pause; for the end of the work."""
        self._due_s = 0.0

    def say(self, now_s: float) -> Iterator[Outgoing]:
        """See Transfer."""
        if self._asked or self.finished or now_s < self._due_s:
            return
        data = self._read()
        if not data:
            self._due_s, self._pause_s = now_s + self._pause_s, min(2 * self._pause_s, LOG_LONGEST_S)
            return
        self._pause_s = LOG_INTERVAL_S
        yield LogAppend(self._number, self._grant, self._there), [data]
        self._asked = True

    def on_message(self, message: FromServer, data: Frame, now_s: float) -> None:
        """See Transfer."""
        match message:
            case LogHas():
                self._asked, self.problem = False, ""
                self._there = message.size_bytes
                self._due_s = now_s if not self.is_complete else now_s + LOG_INTERVAL_S
            case Refused():
                self._asked, self.problem = False, message.reason
                self._due_s = now_s + LONGEST_PAUSE_S
                if not message.again:
                    self._over.set()
            case _:
                pass

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def _read(self) -> bytes:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._there)
                return file.read(LOG_PIECE_BYTES)
        except OSError:
            return b""
