"""Opens the files of a worker's runs: in the runs folder, if visible, else by streams."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

from remuda.storage.existing_folder import submitted_folder
from remuda.storage.folder_token import has_token
from remuda.storage.held_folder import HeldFolder
from remuda.storage.run_folder import PolicyFolder, RunFolder, folder_of_policy
from remuda.wire.keys.folder import CallerKeys
from remuda.wire.messages import Assign, Registered, Role
from remuda.worker.stores.client import StreamClient
from remuda.worker.stores.ports import RunStores, file_stores
from remuda.worker.stores.streams import LogStream, stream_stores

_PREFIX = "remuda-worker-"
LOGS_KEPT = 8
"""Most unfinished logs of past leases; the oldest are given up first."""
LAST_LINES_S = 2.0
"""Seconds to wait for the arrival of the last log lines, at the end of a process."""


class NoFolderError(Exception):
    """This worker needs the runs folder; the text names the remedy."""


class WorkerStores:
    """Stores of one worker's process, chosen for each lease by the coordinator's token in the runs folder, never
    assumed. For the main thread."""

    def __init__(
        self,
        role: Role,
        runs_dirs: Sequence[Path],
        keys: Callable[[], CallerKeys],
        host: Callable[[], str],
        wake: Callable[[], None],
    ) -> None:
        """`runs_dirs` are candidates for the runs folder from this worker's own user; no message names a folder. `keys`
        and `host` of the coordinator are those of the present connection. `wake` lets the main thread look again."""
        self._role = role
        self._runs_dirs = runs_dirs
        self._keys, self._host, self._wake = keys, host, wake
        self._news: Registered | None = None
        self._client: StreamClient | None = None
        self._folder: HeldFolder | None = None
        self._logs: dict[Path, LogStream] = {}

    def registered(self, news: Registered) -> None:
        """Note a registration, perhaps with another coordinator than before. Raises NoFolderError for a learner without
        the runs folder."""
        self._news = news
        if self._role == "learner" and news.token_there:
            self._runs_dir(news)
        if self._client is not None:
            self._client.serve_at(self._address(news))

    def begin(self, assign: Assign) -> RunStores:
        """Return the stores for a lease. Raises RunFolderError if its run folder is outside the runs folder, and
        NoFolderError."""
        assert self._news is not None, "only who is registered gets a lease"
        runs_dir = self._runs_dir(self._news)
        if runs_dir is not None:
            name = PurePath(assign.run_dir).relative_to(self._news.runs_dir)
            return _in_folder(submitted_folder(runs_dir, os.fspath(name)), assign)
        if self._client is not None and self._client.failed:
            self._client.close()
            self._client = None
        if self._client is None:
            self._client = StreamClient(self._keys, self._wake)
            self._client.serve_at(self._address(self._news))
        assert assign.grant is not None, "a lease for a worker without the runs folder has a grant"
        folder = RunFolder(self._own_folder(assign.grant.worker) / assign.experiment)
        log = self._log_of(folder, assign)
        return stream_stores(self._client, assign.grant, folder, assign.policies, lambda: self._end(log))

    def close(self) -> None:
        """Let the last lines of the logs arrive, end the streams, and remove this worker's own folder."""
        if self._client is not None:
            end_s = time.monotonic() + LAST_LINES_S
            for log in self._logs.values():
                log.hurry()
            self._client.wake()
            while time.monotonic() < end_s and not all(log.is_complete or log.finished for log in self._logs.values()):
                time.sleep(0.01)
            self._client.close()
        if self._folder is not None:
            self._folder.remove()
            self._folder = None

    def _runs_dir(self, news: Registered) -> Path | None:
        """Return the runs folder, if visible to this worker. Raises NoFolderError for a learner without the folder."""
        found = next((each for each in self._runs_dirs if has_token(each, news.coordinator, news.token)), None)
        if found is None and self._role == "learner":
            raise NoFolderError(
                f"a learner must see the runs folder of its coordinator ({news.runs_dir} on its host), and this one "
                f"looked in {', '.join(map(str, self._runs_dirs))}: start it where that folder is, or name it with "
                "--runs-dir"
            )
        return found

    def _address(self, news: Registered) -> str:
        return f"tcp://{self._host()}:{news.stream_port}"

    def _log_of(self, folder: RunFolder, assign: Assign) -> Path:
        """Return the role's log under this lease. The log is copied to the run folder as it grows."""
        assert self._client is not None
        assert assign.grant is not None
        path = folder.worker_log(assign.grant.role, assign.grant.worker, assign.grant.incarnation)
        if path not in self._logs or self._logs[path].finished:
            self._logs[path] = LogStream(assign.grant, path)
            self._client.start(self._logs[path])
        return path

    def _end(self, path: Path) -> None:
        """End a lease; the rest of its log is still sent."""
        assert self._client is not None
        self._logs[path].hurry()
        self._client.wake()
        for done in [each for each, log in self._logs.items() if each != path and (log.is_complete or log.finished)]:
            self._drop(done)
        while len(self._logs) > LOGS_KEPT:
            self._drop(next(iter(self._logs)))

    def _drop(self, path: Path) -> None:
        assert self._client is not None
        self._client.cancel(self._logs.pop(path))

    def _own_folder(self, worker: str) -> Path:
        """Return this worker's folder, named by the worker: the next incarnation removes the folder of a killed
        process."""
        if self._folder is None:
            self._folder = HeldFolder(_PREFIX, worker)
        return self._folder.path


def _in_folder(root: Path, assign: Assign) -> RunStores:
    """Return plain files of the learner's policy, or of the run."""
    stores = file_stores(folder_of_policy(root, assign.policy), assign.policy_file)
    each = {name: file_stores(PolicyFolder(root, name), file) for name, file in sorted(assign.policies.items())}
    return replace(stores, policies_apart=each)
