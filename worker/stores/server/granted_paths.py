"""Finds the file of a run folder for a worker's request, if the worker's grant permits it."""

from __future__ import annotations

import os
from pathlib import Path

from remuda.buffer.chunk import ChunkError, Payload, meta_named, parse_name
from remuda.storage.existing_folder import RunFolderError, submitted_folder
from remuda.storage.run_folder import RunFolder, folder_of_policy, target_file
from remuda.wire.keys.authorized import Grants
from remuda.wire.messages import ChunkMeta, Grant, Reanalysis, Role
from remuda.wire.streams import Get, Put, PutKind

KNOWN_AT_MOST = 4_096
"""Most checked grants that are kept."""
_PAYLOADS: dict[PutKind, tuple[Role, type[Payload]]] = {
    "chunk": ("collector", ChunkMeta),
    "reanalysis": ("reanalyzer", Reanalysis),
}
"""Roles that bring payloads, and the kinds of the payloads."""
OVER = "the run is over: nothing is kept of what comes now"


class NotAllowedError(Exception):
    """The worker may not bring or fetch this file, for the reason in the text."""


class RunIsOverError(Exception):
    """The worker brings a file to a finished run. This is no fault of the worker, which could not know."""

    def __init__(self) -> None:
        super().__init__(OVER)


class GrantedPaths:
    """Finds files by a worker's grant. Opens no file, and never names a path outside the runs folder."""

    def __init__(self, runs_dir: Path, grants: Grants) -> None:
        self._runs_dir = Path(os.path.abspath(runs_dir))
        self._grants = grants
        self._known: dict[Grant, RunFolder] = {}
        """Run folders of checked grants. The folder follows from the grant's text alone, so it never changes."""

    def run(self, grant: Grant) -> RunFolder:
        """The run folder of a grant. Raises NotAllowedError."""
        known = self._known.get(grant)
        if known is not None:
            return known
        if not self._grants.is_genuine(grant):
            raise NotAllowedError("the coordinator has not granted this: register again")
        try:
            run = RunFolder(submitted_folder(self._runs_dir, grant.run_dir))
        except (RunFolderError, ValueError, OSError) as error:
            raise NotAllowedError(str(error)) from error
        if self._runs_dir in run.root.parents:  # else it hangs on a link
            if len(self._known) >= KNOWN_AT_MOST:
                self._known.clear()
            self._known[grant] = run
        return run

    def to_write(self, put: Put) -> Path:
        """Return the path of a file that a worker brings. Raises NotAllowedError, RunIsOverError."""
        run, grant = self.run(put.grant), put.grant
        of_policy = folder_of_policy(run.root, put.policy)
        if not is_open(run.root):
            raise RunIsOverError
        if put.kind == "description":
            if put.file != run.env_spec.name or grant.role != "collector":
                raise NotAllowedError(f"a {grant.role} does not bring {put.file}")
            return run.env_spec
        role, kind = _PAYLOADS[put.kind]
        try:
            id = parse_name(put.file, kind)
        except ChunkError as error:
            raise NotAllowedError(str(error)) from error
        if (grant.role, grant.worker, grant.incarnation) != (role, id.worker, id.incarnation):
            raise NotAllowedError(f"{put.file} is not a file of this {grant.role}")
        return of_policy.data / put.file

    def to_read(self, get: Get) -> Path:
        """Return the path of a file that a worker fetches. Raises NotAllowedError."""
        run = folder_of_policy(self.run(get.grant).root, get.policy)
        match get.kind:
            case "policy":
                return run.policy / (get.file if get.policy else get.grant.policy_file)
            case "target":
                return run.policy / (get.file if get.policy else target_file(get.grant.policy_file))
            case "checkpoint":
                return run.ckpt / get.file
            case "chunk" | "reanalysis":
                return run.data / get.file

    def log(self, grant: Grant) -> Path:
        """The log of a worker. Raises NotAllowedError."""
        run = self.run(grant)
        if grant.role == "learner":
            raise NotAllowedError("a learner sees the runs folder, and writes its own log")
        return run.worker_log(grant.role, grant.worker, grant.incarnation)


def is_open(root: Path) -> bool:
    """True if a coordinator works on the run of this folder; later files would stay in data/ unused."""
    return RunFolder(root).owner.exists()


def check_arrived(put: Put, path: Path) -> None:
    """Raise ChunkError unless the file at `path` is a whole file of this name, by its own header."""
    if put.kind != "description":
        meta_named(put.file, path, _PAYLOADS[put.kind][1])
