"""Access to the files of a run: three ports, and their implementation for workers with the runs folder.

`worker/stores/streams.py` implements the ports for workers without. Roles use only these ports, and never open a path
from a message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from remuda.buffer.chunk import AnyPayload, Columns, Payload, read_chunk, write_chunk
from remuda.policy.files.policy_file import LoadedPolicy, load
from remuda.storage.atomic import DISK_IS_FULL
from remuda.storage.run_folder import RunFolder, target_file
from remuda.wire.messages import PolicyRef


class NotNowError(Exception):
    """The operation is not possible now: call again with the same arguments. No cleanup is needed."""

    def __init__(self, waits_for: str, problem: str = "", *, lacks_bytes: int = 0) -> None:
        """`waits_for`: short reason, shown after "waiting for"; `problem`: log text for people, empty if all is well;
        `lacks_bytes`: size of the file without room on a full disk."""
        super().__init__(problem or f"waits for {waits_for}")
        self.waits_for = waits_for
        self.problem = problem
        self.lacks_bytes = lacks_bytes


class PayloadStore(Protocol):
    """The payload files in data/: chunks and reanalyses."""

    @property
    def ahead(self) -> int:
        """Number of chunks that may wait for storage while another is collected."""
        ...

    def write(self, meta: AnyPayload, columns: Columns) -> AnyPayload:
        """Put a payload into data/; returns the metadata to announce. On return, the whole file is in place.

        Raises ValueError for columns that do not fit `meta`, NotNowError, and OSError.
        """
        ...

    def read(self, meta: Payload) -> Columns:
        """Return the columns of an announced payload, read-only. Raises ChunkError, and NotNowError."""
        ...


class PolicyStore(Protocol):
    """A file in policy/ that the learner rewrites."""

    def load(self, *, newer_than: PolicyRef | None = None) -> LoadedPolicy | None:
        """Return the published policy; None if it is not newer (by epoch, then version) than `newer_than`.

        Raises PolicyFileError, and NotNowError.
        """
        ...


class CheckpointStore(Protocol):
    """The files in ckpt/."""

    def fetch(self, file: str, sha256: str) -> Path:
        """Return this machine's path of the whole checkpoint. `sha256` is the checksum in its record; a learner may
        have saved the checkpoint again since, as at the end of a run.

        Raises NotNowError, and CheckpointGoneError.
        """
        ...


class CheckpointGoneError(Exception):
    """The checkpoint is missing, as the text says."""


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class RunStores:
    """Files of a run for a worker under a lease."""

    folder: RunFolder
    """Folder for this worker's log and a collector's description of its environment: the run folder, or the worker's
    own folder, from which both are copied to the run folder."""
    payloads: PayloadStore
    policies: PolicyStore
    targets: PolicyStore
    """The target network, for reanalyzers."""
    checkpoints: CheckpointStore
    steps: Path | None = None
    """Folder for the steps of a collector; None without the runs folder."""
    describe: Callable[[], None] = _nothing
    """Called once the environment is described in `folder`."""
    close: Callable[[], None] = _nothing
    """Called at the end of the lease; gives up running transfers."""
    policies_apart: Mapping[str, RunStores] = field(default_factory=dict[str, "RunStores"])
    """Stores of each policy of a run with several policies, by name, sorted. Empty with one policy."""

    @property
    def of_policies(self) -> tuple[RunStores, ...]:
        """Stores of each policy; with one policy, these stores."""
        return tuple(self.policies_apart.values()) or (self,)


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
