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

from remuda.config.errors import Error
from remuda.storage.bucket.address import BucketError, read_mark
from remuda.storage.bucket.opening import free_name, open_run
from remuda.storage.bucket.shipper import MovedError, Shipper
from remuda.storage.bucket.shipping import FINISH, Event
from remuda.storage.bucket.store import Retries, Store
from remuda.storage.existing_folder import OnExists
from remuda.storage.ownership import FolderOwnedError, Ownership
from remuda.storage.run_folder import RunFolder
from remuda.storage.untrusted import json_of, read_bounded

_LOOK_S = 0.5
"""Between two looks for the folder of a run that begins."""
_ORPHAN_S = 120.0
"""Longest wait for the end of a run whose command was killed, before its last copy."""
_PAUSE_S = 5.0
"""Before another try after a failed copy."""
_MOST_CONFIG_BYTES = 16 << 20


class _Settings(msgspec.Struct, frozen=True):
    """The section `storage` of the run's config."""

    ship_interval_s: float = 30.0
    payloads: str = "all"
    last_copy_s: float = 300.0


class _Config(msgspec.Struct, frozen=True):
    storage: _Settings = _Settings()


def main() -> int:
    """Ship one run until standard input ends; return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--on-exists", default="error")
    parser.add_argument("--continues", action="store_true", help="the run was opened by a process that has died")
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the run ends first, and then this process
    os.nice(5)
    try:
        _Process(arguments.address, arguments.folder).run(arguments.on_exists, continues=arguments.continues)
    except (Error, OSError) as error:
        _tell(Event("moved" if isinstance(error, MovedError) else "refused", f"{error}"))
        return 1
    return 0


class _Process:
    def __init__(self, address: str, root: Path) -> None:
        self._address, self._root = address, root

    def run(self, on_exists: OnExists, *, continues: bool) -> None:
        """Open the run, and ship until the end. Raises BucketError, FolderOwnedError and OSError."""
        store = Store.at(self._address, Retries())
        mark = read_mark(self._root) if continues else None
        if mark is None:
            if on_exists == "rename":
                self._take_free_name(store)
                store, on_exists = Store.at(self._address, Retries()), "error"
            mark = open_run(store, self._address, self._root, on_exists, secrets.token_hex(8), _say)
        shipper = Shipper(store, self._root, mark, say=_say)
        _tell(Event("ready", address=self._address, folder=str(self._root)))
        self._ship_until_the_end(shipper)

    def _take_free_name(self, store: Store) -> None:
        from remuda.storage.bucket.generation import last_epoch

        if last_epoch(store):
            now = datetime.now().astimezone()
            self._address, self._root = free_name(self._address, self._root, now)

    def _ship_until_the_end(self, shipper: Shipper) -> None:
        """Ship at intervals, and once more when the run has ended. Raises MovedError."""
        in_trouble = False
        while not self._is_begun():
            if self._waited(_LOOK_S):
                self._ship_last(shipper)
                return
        pause_s = self._settings().ship_interval_s
        _say(f"{self._address}: copied every {pause_s:g} s; if this machine is lost, so is all after the last copy")
        while True:
            settings = self._settings()
            pause_s = settings.ship_interval_s
            try:
                self._ship(shipper, settings, pause_s)
                if in_trouble:
                    _say(f"{self._address}: shipped again")
                in_trouble = False
            except MovedError:
                raise
            except (BucketError, OSError) as error:
                if not in_trouble:
                    _say(f"{self._address} is not up to date: {error}; trying again")
                in_trouble, pause_s = True, min(_PAUSE_S, pause_s)
            if self._waited(pause_s):
                break
        self._ship_last(shipper)

    def _ship_last(self, shipper: Shipper) -> None:
        if not self._told_to_finish:
            self._wait_for_orphans()
        settings = self._settings()
        end_s = time.monotonic() + settings.last_copy_s
        while True:
            try:
                self._ship(shipper, settings, 0.0)
                _tell(Event("done"))
                return
            except MovedError:
                raise
            except (BucketError, OSError) as error:
                if time.monotonic() + _PAUSE_S > end_s:
                    _tell(Event("failed", f"the last copy failed for {settings.last_copy_s:g} s: {error}"))
                    return
            time.sleep(_PAUSE_S)

    def _ship(self, shipper: Shipper, settings: _Settings, next_s: float) -> None:
        shipped = shipper.ship(payloads=settings.payloads == "all", next_s=next_s)
        if shipped is not None:
            _tell(Event("shipped", shipped=shipped))

    def _wait_for_orphans(self) -> None:
        """Wait until the processes of the run have let go of the folder: their command was killed."""
        end_s = time.monotonic() + _ORPHAN_S
        owner = RunFolder(self._root).owner
        while owner.exists() and time.monotonic() < end_s:
            try:
                Ownership(owner).release()
                return
            except (FolderOwnedError, OSError):
                time.sleep(_LOOK_S)

    _told_to_finish = False

    def _waited(self, seconds: float) -> bool:
        """Wait; True once the run is over, told by a line on standard input, or its command is gone."""
        if not select.select([0], [], [], seconds)[0]:
            return False
        self._told_to_finish = os.read(0, 64) == FINISH
        return True

    def _is_begun(self) -> bool:
        return RunFolder(self._root).config_json.is_file()

    def _settings(self) -> _Settings:
        """Read the settings of the run; a config that cannot be read has the defaults."""
        try:
            content = json_of(read_bounded(RunFolder(self._root).config_json, most_bytes=_MOST_CONFIG_BYTES))
            return msgspec.convert(content, _Config).storage
        except (OSError, ValueError):
            return _Settings()


def _say(text: str) -> None:
    _tell(Event("said", text))


def _tell(event: Event) -> None:
    with contextlib.suppress(BrokenPipeError):  # the command was killed; the last copy follows
        os.write(1, msgspec.json.encode(event) + b"\n")


if __name__ == "__main__":
    sys.exit(main())
