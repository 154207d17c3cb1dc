"""How workers reach the files of runs, as they are told when they register and with each lease."""

from __future__ import annotations

import os
from dataclasses import dataclass

from msgspec.structs import replace

from remuda.coordinator.worker import Worker
from remuda.wire.keys.authorized import Grants
from remuda.wire.messages import Assign, Grant


@dataclass(frozen=True)
class FilesOffer:
    """Where the runs folder is, by what a worker knows that it sees it, and where files travel by stream."""

    runs_dir: str = ""
    token: str = ""
    token_there: bool = False
    stream_port: int = 0
    grants: Grants | None = None
    """None: in tests without files."""

    def granted(self, assign: Assign, worker: Worker) -> Assign:
        """The same lease with the grant that its worker shows to the stream server, if it needs it."""
        if self.grants is None or worker.role == "learner":
            return assign
        grant = Grant(
            os.path.normpath(assign.run_dir), worker.role, worker.uuid, worker.incarnation, assign.policy_file
        )
        return replace(assign, grant=self.grants.seal(grant))
