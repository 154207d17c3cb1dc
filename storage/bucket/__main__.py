"""The process that opens a run in a bucket and ships the run folder: `python -m remuda.storage.bucket`."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import select
import signal
import sys
import time
from datetime import datetime
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout

from remuda.config.errors import Error
from remuda.storage.bucket.address import BucketError, LocalFolder, read_mark
from remuda.storage.bucket.opening import free_address, open_run
from remuda.storage.bucket.shipper import MovedError, Shipper
from remuda.storage.bucket.shipping import FINISH, Event
from remuda.storage.bucket.store import Retries, Store
from remuda.storage.existing_folder import OnExists
from remuda.storage.lock import FolderOwnedError

_LOOK_S = 0.5
"""Between two looks for the folder of a run that begins."""
_RUNS_LOOK_S = 2.0
"""Between two looks for new runs of a coordinator."""
_FORMER_S = 120.0
"""Longest wait for the last copy of a former process."""
_ORPHAN_S = 120.0
"""Longest wait for the end of a run whose command was killed, before its last copy."""
_PAUSE_S = 5.0
"""Before another try after a failed copy."""


def main() -> int:
    """Ship one run until standard input ends; return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--on-exists", default="error")
    parser.add_argument("--continues", action="store_true", help="the run was opened by a process that has died")
    parser.add_argument("--has-runs", action="store_true", help="the runs folder of a coordinator, with all runs")
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the run ends first, and then this process
    os.nice(5)
    try:
        _Process(arguments.address, LocalFolder(arguments.folder, arguments.has_runs)).run(
            arguments.on_exists, continues=arguments.continues
        )
    except (Error, OSError) as error:
        _tell(Event("moved" if isinstance(error, MovedError) else "refused", f"{error}"))
        return 1
    return 0


class _Process:
    def __init__(self, address: str, folder: LocalFolder) -> None:
        self._address, self._folder = address, folder

    def run(self, on_exists: OnExists, *, continues: bool) -> None:
        """Open the run, and ship until the end. Raises BucketError, FolderOwnedError and OSError."""
        store = Store.at(self._address, Retries())
        mark = read_mark(self._folder.root) if continues else None
        if mark is None and on_exists == "rename":
            self._take_free_name(store)
            store, on_exists = Store.at(self._address, Retries()), "error"
        self._wait_for_former()
        if mark is None:
            mark = open_run(store, self._address, self._folder, on_exists, secrets.token_hex(8), _say)
        shipper = Shipper(store, self._folder.root, mark, say=_say)
        _tell(Event("ready", address=self._address, folder=str(self._folder.root)))
        self._ship_until_the_end(shipper)

    def _wait_for_former(self) -> None:
        """Be alone: a former process may be at its last copy, and both would copy the folder to the same place. Raises
        FolderOwnedError while the run goes on, and BucketError at the deadline."""
        root, end_s = self._folder.root, time.monotonic() + _FORMER_S
        root.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = FileLock(root.parent / f".{root.name}.shipping.lock", fallback_to_soft=False)
        while not lock.is_locked:
            try:
                lock.acquire(timeout=_LOOK_S)
            except Timeout:
                self._folder.require_no_owner()
                if time.monotonic() > end_s:
                    why = f"{self._address}: a former process still ships {root}: try again later"
                    raise BucketError(why) from None
        self._lock = lock  # until this process ends

    def _take_free_name(self, store: Store) -> None:
        from remuda.storage.bucket.generation import last_epoch

        if last_epoch(store):
            now = datetime.now().astimezone()
            self._address, root = free_address(self._address, self._folder.root, now)
            self._folder = LocalFolder(root)

    def _ship_until_the_end(self, shipper: Shipper) -> None:
        """Ship at intervals, and once more when the run has ended. Raises MovedError."""
        in_trouble = False
        while not self._folder.main.is_file():
            if self._waited(_LOOK_S):
                self._ship_last(shipper)
                return
        pause_s = self._folder.settings().ship_interval_s
        _say(f"{self._address}: copied every {pause_s:g} s; if this machine is lost, so is all after the last copy")
        while True:
            pause_s = self._folder.settings().ship_interval_s
            try:
                self._ship(shipper, pause_s)
                if in_trouble:
                    _say(f"{self._address}: shipped again")
                in_trouble = False
            except MovedError:
                raise
            except (BucketError, OSError) as error:
                if not in_trouble:
                    _say(f"{self._address} is not up to date: {error}; trying again")
                in_trouble, pause_s = True, min(_PAUSE_S, pause_s)
            if self._waited_until_next(pause_s):
                break
        self._ship_last(shipper)

    def _ship_last(self, shipper: Shipper) -> None:
        if not self._told_to_finish:
            self._wait_for_orphans()
        patience_s = self._folder.settings().last_copy_s
        end_s = time.monotonic() + patience_s
        while True:
            try:
                self._ship(shipper, 0.0)
                _tell(Event("done"))
                return
            except MovedError:
                raise
            except (BucketError, OSError) as error:
                if time.monotonic() + _PAUSE_S > end_s:
                    _tell(Event("failed", f"the last copy failed for {patience_s:g} s: {error}"))
                    return
            time.sleep(_PAUSE_S)

    def _ship(self, shipper: Shipper, next_s: float) -> None:
        shipped = shipper.ship(next_s=next_s)
        if shipped is not None:
            _tell(Event("shipped", shipped=shipped))

    def _wait_for_orphans(self) -> None:
        """Wait until the processes of the run have let go of the folder: their command was killed."""
        end_s = time.monotonic() + _ORPHAN_S
        while time.monotonic() < end_s:
            try:
                self._folder.require_no_owner()
                return
            except (FolderOwnedError, OSError):
                time.sleep(_LOOK_S)

    _told_to_finish = False

    def _waited_until_next(self, pause_s: float) -> bool:
        """Wait as `_waited`, and less if a run begins that asks for a shorter interval."""
        begun_s, look_s = time.monotonic(), _RUNS_LOOK_S if self._folder.has_runs else pause_s
        while (left_s := begun_s + pause_s - time.monotonic()) > 0:
            if self._waited(min(left_s, look_s)):
                return True
            pause_s = min(pause_s, self._folder.settings().ship_interval_s)
        return False

    def _waited(self, seconds: float) -> bool:
        """Wait; True once the run is over, told by a line on standard input, or its command is gone."""
        if not select.select([0], [], [], seconds)[0]:
            return False
        self._told_to_finish = os.read(0, 64) == FINISH
        return True


def _say(text: str) -> None:
    _tell(Event("said", text))


def _tell(event: Event) -> None:
    with contextlib.suppress(BrokenPipeError):  # the command was killed; the last copy follows
        os.write(1, msgspec.json.encode(event) + b"\n")


if __name__ == "__main__":
    sys.exit(main())
