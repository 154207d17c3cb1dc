"""The ports of a worker without the runs folder: files travel by stream, to and from a folder of its own."""

from __future__ import annotations

import errno
import hashlib
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from remuda.buffer.chunk import ChunkError, ChunkFault, Columns, encode_chunk, read_chunk
from remuda.buffer.reanalysis_file import encode_reanalysis, read_reanalysis
from remuda.policy.files.policy_file import LoadedPolicy, PolicyFileError, load
from remuda.storage.run_folder import RunFolder, target_file
from remuda.wire.codec import Frame
from remuda.wire.messages import ChunkMeta, Grant, PolicyRef, Reanalysis
from remuda.wire.streams.messages import FromServer, GetKind, LogAppend, LogHas, PutKind, Refused
from remuda.worker.stores.client import StreamClient
from remuda.worker.stores.ports import CheckpointGoneError, NotNowError, RunStores
from remuda.worker.stores.transfers import LONGEST_PAUSE_S, Download, OneFile, Outgoing, Upload

WAIT_S = 0.1
"""Seconds that the main thread waits for a file before checking for messages."""
CHECKPOINTS_KEPT = 2
"""Checkpoints in the worker's folder: the shares of one evaluation play the same file."""

_M = TypeVar("_M", ChunkMeta, Reanalysis)
LOG_PIECE_BYTES = 128 << 10
LOG_INTERVAL_S, LOG_LONGEST_S = 1.0, 4.0
"""Between two looks at a log; doubled while it does not grow."""


def stream_stores(client: StreamClient, grant: Grant, folder: RunFolder, close: Callable[[], None]) -> RunStores:
    """Return the stores under one lease. `folder` is this worker's own, with the layout of the run folder."""
    for each in (folder.data, folder.policy, folder.ckpt, folder.log / grant.role):
        each.mkdir(parents=True, exist_ok=True)
    payloads = StreamPayloads(client, grant, folder.data)
    policies = StreamPolicy(client, grant, "policy", folder.policy / grant.policy_file)
    targets = StreamPolicy(client, grant, "target", folder.policy / target_file(grant.policy_file))
    checkpoints = StreamCheckpoints(client, grant, folder.ckpt)

    def describe() -> None:
        if folder.env_spec.exists():
            content = folder.env_spec.read_bytes()
            client.start(Upload(grant, "description", folder.env_spec.name, [content]))

    def end() -> None:
        for store in (payloads, policies, targets, checkpoints):
            store.close()
        close()

    return RunStores(folder, payloads, policies, targets, checkpoints, describe, end)


class StreamPayloads:
    """A PayloadStore."""

    ahead = 1

    def __init__(self, client: StreamClient, grant: Grant, folder: Path) -> None:
        self._client, self._grant, self._folder = client, grant, folder
        self._chunks: dict[str, tuple[ChunkMeta, Upload]] = {}
        """Running uploads by name, with the metadata to announce."""
        self._reanalyses: dict[str, tuple[Reanalysis, Upload]] = {}
        self._fetched: dict[str, Download] = {}

    def write_chunk(self, meta: ChunkMeta, columns: Columns) -> ChunkMeta:
        """See PayloadStore. The first call begins the upload, and later calls check it."""
        return self._write(self._chunks, meta, "chunk", lambda: encode_chunk(meta, columns))

    def write_reanalysis(self, meta: Reanalysis, columns: Columns) -> Reanalysis:
        """See PayloadStore. The first call begins the upload, and later calls check it."""
        return self._write(self._reanalyses, meta, "reanalysis", lambda: encode_reanalysis(meta, columns))

    def read_chunk(self, meta: ChunkMeta) -> Columns:
        """See PayloadStore."""
        path = self._fetch(meta.file, "chunk")
        try:
            return read_chunk(path, meta)
        finally:
            path.unlink(missing_ok=True)

    def read_reanalysis(self, meta: Reanalysis) -> Columns:
        """See PayloadStore."""
        path = self._fetch(meta.file, "reanalysis")
        try:
            return read_reanalysis(path, meta)
        finally:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Give up running transfers."""
        uploads = [upload for _, upload in [*self._chunks.values(), *self._reanalyses.values()]]
        for transfer in (*uploads, *self._fetched.values()):
            self._client.cancel(transfer)

    def _write(
        self,
        all_of_them: dict[str, tuple[_M, Upload]],
        meta: _M,
        kind: PutKind,
        encode: Callable[[], tuple[_M, list[bytes | memoryview]]],
    ) -> _M:
        if meta.file not in all_of_them:
            announced, buffers = encode()
            begun = Upload(self._grant, kind, meta.file, buffers)
            all_of_them[meta.file] = announced, begun
            self._client.start(begun)
        announced, upload = all_of_them[meta.file]
        if not upload.finished:
            raise _not_now(self._client, upload)
        del all_of_them[meta.file]
        if upload.refused is not None:
            raise OSError(errno.EIO, f"{meta.file} was refused: {upload.refused.reason}")
        return announced

    def _fetch(self, file: str, kind: GetKind) -> Path:
        path = self._folder / file
        if file not in self._fetched:
            self._fetched[file] = Download(self._grant, kind, file, path)
            self._client.start(self._fetched[file])
        download = _awaited(self._client, self._fetched[file])
        del self._fetched[file]
        if download.refused is not None:
            fault: ChunkFault = "missing" if download.refused.missing else "unreadable"
            raise ChunkError(fault, path, download.refused.reason)
        return path


class StreamPolicy:
    """A PolicyStore: keeps the newest fetched policy."""

    def __init__(self, client: StreamClient, grant: Grant, kind: GetKind, path: Path) -> None:
        self._client, self._grant, self._path = client, grant, path
        self._kind: GetKind = kind
        self._fetched: Download | None = None

    def load(self, *, newer_than: PolicyRef | None = None) -> LoadedPolicy | None:
        """See PolicyStore."""
        if self._fetched is None:
            self._fetched = Download(self._grant, self._kind, self._path.name, self._path, newer_than=newer_than)
            self._client.start(self._fetched)
        download = _awaited(self._client, self._fetched)
        self._fetched = None
        if download.refused is not None:
            raise PolicyFileError(f"{self._path.name}: {download.refused.reason}")
        return None if download.nothing_newer else load(self._path, newer_than=newer_than, deadline_s=0.0)

    def close(self) -> None:
        """Give up running transfers."""
        if self._fetched is not None:
            self._client.cancel(self._fetched)


class StreamCheckpoints:
    """A CheckpointStore with the newest fetched checkpoints, in folders named by checksum."""

    def __init__(self, client: StreamClient, grant: Grant, folder: Path) -> None:
        self._client, self._grant, self._folder = client, grant, folder
        self._fetched: dict[str, Download] = {}

    def fetch(self, file: str, sha256: str) -> Path:
        """See CheckpointStore. The file is compared with `sha256` on arrival."""
        place = self._folder / sha256
        path = place / file
        if path.exists():
            return path
        arriving = self._folder / f"{sha256}.arriving"
        if sha256 not in self._fetched:
            self._fetched[sha256] = Download(self._grant, "checkpoint", file, arriving)
            self._client.start(self._fetched[sha256])
        download = _awaited(self._client, self._fetched[sha256])
        del self._fetched[sha256]
        if download.refused is not None:
            raise CheckpointGoneError(f"{file}: {download.refused.reason}")
        _check(arriving, file, sha256)
        self._make_room()
        place.mkdir()
        arriving.replace(path)
        return path

    def close(self) -> None:
        """Give up running transfers."""
        for download in self._fetched.values():
            self._client.cancel(download)

    def _make_room(self) -> None:
        there = [each for each in self._folder.iterdir() if each.is_dir()]
        there.sort(key=lambda each: each.stat().st_mtime_ns)
        for old in there[: max(0, len(there) - CHECKPOINTS_KEPT + 1)]:
            shutil.rmtree(old)


def _check(path: Path, file: str, sha256: str) -> None:
    with open(path, "rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != sha256:
        path.unlink()
        raise CheckpointGoneError(f"{file} is not the checkpoint that was asked for: its sha256 is {found}")


_F = TypeVar("_F", bound=OneFile)


def _awaited(client: StreamClient, transfer: _F) -> _F:
    """Return the transfer, if it is finished within a moment. Raises NotNowError."""
    if not transfer.wait(WAIT_S):
        raise _not_now(client, transfer)
    return transfer


def _not_now(client: StreamClient, transfer: OneFile) -> NotNowError:
    lacks_bytes = transfer.lacks_bytes if isinstance(transfer, Upload) else 0
    return NotNowError("the stream server", client.trouble or transfer.problem, lacks_bytes=lacks_bytes)


class LogStream:
    """Copies a local log to the run folder as it grows, without an end of its own."""

    def __init__(self, grant: Grant, path: Path) -> None:
        self._grant, self._path = grant, path
        self._number = 0
        self._there = 0
        """Bytes in the run folder."""
        self._asked = False
        """True while a piece is in flight."""
        self._due_s = 0.0
        self._pause_s = LOG_INTERVAL_S
        self.finished = False
        self.problem = ""

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
                self.finished = not message.again
            case _:
                pass

    def give_up(self, reason: str) -> None:
        """See Transfer."""
        self.finished = True

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
