"""Access to the files of a run: three ports, each with two implementations.

`worker/stores/files.py` is for a worker that sees the runs folder, `worker/stores/streams.py` for one that does not.
Roles use only these ports, and never open a path that came by message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from remuda.buffer.chunk import Columns
from remuda.policy.files.policy_file import LoadedPolicy
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import ChunkMeta, PolicyRef, Reanalysis


class NotNowError(Exception):
    """It cannot be done now: call again with the same arguments. Nothing was done that has to be undone."""

    def __init__(self, waits_for: str, problem: str = "", *, lacks_bytes: int = 0) -> None:
        """`waits_for` completes "waiting for …"; `problem` is what people should know of, empty if all is well;
        `lacks_bytes` is the size of what a full disk has no room for."""
        super().__init__(problem or f"waits for {waits_for}")
        self.waits_for = waits_for
        self.problem = problem
        self.lacks_bytes = lacks_bytes


class PayloadStore(Protocol):
    """The files of experience in data/."""

    @property
    def ahead(self) -> int:
        """How many chunks may wait to be stored while another is collected."""
        ...

    def write_chunk(self, meta: ChunkMeta, columns: Columns) -> ChunkMeta:
        """Put a chunk into data/; returns what to announce. When it returns, the file is there, whole.

        Raises ValueError for columns that do not fit `meta`, NotNowError, and OSError."""
        ...

    def read_chunk(self, meta: ChunkMeta) -> Columns:
        """The columns of an announced chunk, read-only. Raises ChunkError, and NotNowError."""
        ...

    def write_reanalysis(self, meta: Reanalysis, columns: Columns) -> Reanalysis:
        """Put a reanalysis into data/; as `write_chunk`."""
        ...

    def read_reanalysis(self, meta: Reanalysis) -> Columns:
        """The columns of an announced reanalysis, read-only. Raises ChunkError, and NotNowError."""
        ...


class PolicyStore(Protocol):
    """One file in policy/ that the learner rewrites."""

    def load(self, *, newer_than: PolicyRef | None = None) -> LoadedPolicy | None:
        """The published policy; None if it is not newer (by epoch, then version) than `newer_than`.

        Raises PolicyFileError, and NotNowError."""
        ...


class CheckpointStore(Protocol):
    """The files in ckpt/."""

    def fetch(self, file: str, sha256: str) -> Path:
        """Where the checkpoint of this name lies on this machine, whole. `sha256` is what its record says.

        Raises NotNowError, and CheckpointGoneError."""
        ...


class CheckpointGoneError(Exception):
    """There is no such checkpoint, or it is another file than the one that was asked for; the text says which."""


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class RunStores:
    """What a worker under one lease has of its run."""

    folder: RunFolder
    """Where this worker writes its log, and a collector describes its environment: the run folder, or a folder of its
    own from which both arrive in the run folder."""
    payloads: PayloadStore
    policies: PolicyStore
    targets: PolicyStore
    """The target network, for reanalyzers."""
    checkpoints: CheckpointStore
    describe: Callable[[], None] = _nothing
    """Called once the environment is described in `folder`."""
    close: Callable[[], None] = _nothing
    """Called at the end of the lease; what is on its way is given up."""
    policies_apart: Mapping[str, RunStores] = field(default_factory=dict[str, "RunStores"])
    """Of a run with several policies: what each has of its own, by name, sorted. Empty where there is one."""

    @property
    def of_policies(self) -> tuple[RunStores, ...]:
        """Those of each policy; these where there is one."""
        return tuple(self.policies_apart.values()) or (self,)
