"""Access to the files of a run: three ports, each with two implementations.

`worker/stores/files.py` is for workers with the runs folder, `worker/stores/streams.py` for workers without. Roles use
only these ports, and never open a path from a message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from remuda.buffer.chunk import AnyPayload, Columns, Payload
from remuda.policy.files.policy_file import LoadedPolicy
from remuda.storage.run_folder import RunFolder
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
