"""A process that steps a part of the copies of ProcessCopies, which starts it with two file descriptors."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import mmap
import os
import select
import socket
import sys
import threading
import time
import traceback
from collections.abc import Sequence

import msgspec
import numpy as np

from remuda.config.environment import EnvConfig
from remuda.config.errors import NoExit
from remuda.environments.copies import local_copies
from remuda.environments.lanes import Lanes, of_single
from remuda.environments.legal_actions import components_of
from remuda.environments.process_peer import (
    DONE,
    PRINTED,
    RESET,
    WARNED,
    ProcessStart,
    SharedLanes,
    SharedStep,
    broken,
    failure,
    printing,
    receive_body,
)

_STDERR = 2  # the owner's, since sys.stderr is sent to it by Python code, which a crash ends
GRACE_S = 1.0
"""Longest time in seconds for a step to finish after the owner is gone."""


class Owner:
    """The connection to the process that started this one; any thread may send."""

    def __init__(self, connection: socket.socket) -> None:
        self.receive = connection.recv
        self._connection = connection
        self._lock = threading.Lock()

    def tell(self, message: bytes) -> None:
        """Send one whole message."""
        with self._lock:
            self._connection.sendall(message)


class Printing(io.TextIOBase):
    """Standard output or standard error of this process, which the owner prints."""

    def __init__(self, owner: Owner, kind: bytes) -> None:
        self._owner = owner
        self._kind = kind
        self._begun = ""

    def write(self, text: str) -> int:
        """Send whole lines; an unfinished line waits for its end or for `flush`."""
        lines, newline, rest = text.rpartition("\n")
        if newline:
            self._say(self._begun + lines + newline)
            self._begun = ""
        self._begun += rest
        return len(text)

    def flush(self) -> None:
        """Send an unfinished line."""
        begun, self._begun = self._begun, ""
        if begun:
            self._say(begun)

    def writable(self) -> bool:
        """Always."""
        return True

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the owner is gone, and this process ends soon
            self._owner.tell(printing(self._kind, text))


def main(connection: int, shared_memory: int) -> None:
    """Carry out the owner's commands until the owner is gone. A crash in C prints its stack."""
    faulthandler.enable(_STDERR, all_threads=False)
    owner = Owner(socket.socket(fileno=connection))
    sys.stdout, sys.stderr = Printing(owner, PRINTED), Printing(owner, WARNED)
    threading.Thread(target=_end_with_the_owner, args=(connection,), daemon=True).start()
    try:
        with NoExit():
            _serve(owner, shared_memory)
    except (EOFError, ConnectionError):
        return  # the owner has closed the vector, or died
    except Exception:  # anything that an environment raises
        owner.tell(failure(traceback.format_exc()))


def _serve(owner: Owner, shared_memory: int) -> None:
    start = msgspec.json.decode(receive_body(owner.receive), type=ProcessStart)
    env = EnvConfig.model_validate_json(start.env_json)
    shared = SharedStep(start.layout, mmap.mmap(shared_memory, 0))
    os.close(shared_memory)
    part = range(start.first, start.first + start.count)
    shared.stepping[start.first] = start.first

    def begins(index: int) -> None:
        shared.stepping[start.first] = index

    copies = local_copies(
        env.model_copy(update={"build_timeout_s": None}),  # the owner waits no longer
        {name: group.agents for name, group in start.layout.groups.items()},
        part,
        source_dir=start.source_dir,
        limit=lambda fault: owner.tell(broken(fault)),
        begins=begins if start.count > 1 else None,
    )
    own = slice(part.start, part.stop)
    groups = [lanes.group for lanes in copies.lanes]
    copies.write_to(shared.lanes(groups, part), shared.begun[own], shared.replaced[own])
    pairs = zip(copies.lanes, shared.groups, strict=True)
    parts = [_Part(lanes, arrays, part, env.episode_info) for lanes, arrays in pairs]
    try:
        owner.tell(DONE)
        while command := owner.receive(1):
            if command == RESET:
                copies.reset(msgspec.json.decode(receive_body(owner.receive), type=list[int] | None))
            else:
                copies.step([each.actions for each in parts])
            for each in parts:
                each.report(legal=bool(shared.wants_legal[0]))
            owner.tell(DONE)
    finally:
        copies.close()


class _Part:
    """The lanes of a group in this process."""

    def __init__(self, lanes: Lanes, arrays: SharedLanes, part: range, names: Sequence[str]) -> None:
        count = len(lanes.group.agents)
        own = slice(part.start * count, part.stop * count)
        self.actions = arrays.actions[own]
        self._lanes, self._names = lanes, names
        self._episode_info, self._legal = arrays.episode_info[own], arrays.legal[own]
        self._tells_legal = arrays.tells_legal[own]
        self._components = components_of(lanes.group.action)

    def report(self, *, legal: bool) -> None:
        """Write values of the newest infos into the shared memory."""
        lanes = self._lanes
        assert isinstance(lanes.info, list)
        for lane in np.flatnonzero(lanes.over).tolist() if self._names else ():
            found = of_single(lanes.info[lane], self._names)
            self._episode_info[lane] = [found.get(name, np.nan) for name in self._names]
        if legal and self._components:
            masks = lanes.legal(self._components)
            self._tells_legal[:] = masks is not None
            if masks is not None:
                self._legal[:] = masks


def _end_with_the_owner(connection: int) -> None:
    """Exit when the owner is gone, even during a step without end."""
    poller = select.poll()
    poller.register(connection, select.POLLHUP)
    while not any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in poller.poll()):
        pass
    time.sleep(GRACE_S)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
