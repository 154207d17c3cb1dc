"""The ports of a worker that sees the runs folder: plain files."""

from __future__ import annotations

from pathlib import Path

from remuda.buffer.chunk import AnyPayload, Columns, Payload, read_chunk, write_chunk
from remuda.policy.files.policy_file import LoadedPolicy, load
from remuda.storage.atomic import DISK_IS_FULL
from remuda.storage.run_folder import RunFolder, target_file
from remuda.wire.messages import PolicyRef
from remuda.worker.stores.ports import NotNowError, RunStores


def file_stores(folder: RunFolder, policy_file: str) -> RunStores:
    """Return the stores of a run; `policy_file` is a name in its policy/."""
    return RunStores(
        folder,
        FilePayloads(folder.data),
        FilePolicy(folder.policy / policy_file),
        FilePolicy(folder.policy / target_file(policy_file)),
        FileCheckpoints(folder.ckpt),
        folder.steps,
    )


class FilePayloads:
    """A PayloadStore."""

    ahead = 0

    def __init__(self, data: Path) -> None:
        self._data = data

    def write(self, meta: AnyPayload, columns: Columns) -> AnyPayload:
        """See PayloadStore. A full disk is waited for."""
        try:
            return write_chunk(self._data, meta, columns)
        except OSError as error:
            if error.errno not in DISK_IS_FULL:
                raise
            size_bytes = sum(column.nbytes for column in columns.values())
            raise NotNowError("room on the disk", str(error), lacks_bytes=size_bytes) from error

    def read(self, meta: Payload) -> Columns:
        """See PayloadStore."""
        return read_chunk(self._data / meta.file, meta)


class FilePolicy:
    """A PolicyStore."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self, *, newer_than: PolicyRef | None = None) -> LoadedPolicy | None:
        """See PolicyStore."""
        return load(self._path, newer_than=newer_than)


class FileCheckpoints:
    """CheckpointStore on disk. Reads no file to check it: loading a checkpoint checks the file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def fetch(self, file: str, sha256: str) -> Path:
        """See CheckpointStore."""
        return self._folder / file
