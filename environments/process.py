"""A process that steps a part of a vector of environments; ProcessVector starts it with two file descriptors."""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import io
import mmap
import os
import select
import socket
import sys
import threading
import time
import traceback

import msgspec
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from remuda.config.environment import EnvConfig
from remuda.config.errors import NoExit
from remuda.environments.lanes import as_columns
from remuda.environments.legal_actions import components_of, legal_of_vector
from remuda.environments.make import make_single
from remuda.environments.process_peer import (
    DONE,
    PRINTED,
    RESET,
    WARNED,
    ProcessStart,
    SharedStep,
    broken,
    failure,
    printing,
    receive_body,
)
from remuda.environments.replaceable import ReplaceableEnv
from remuda.environments.vectors import Vector, reset_with_info, single_spaces

_STDERR = 2  # the owner's, since sys.stderr is sent to it by Python code, which a crash ends
GRACE_S = 1.0
"""How long a step may still take after the owner is gone."""


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
    """Carry out the owner's commands until it is gone; a crash in C prints the stack that led to it."""
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
    part = slice(start.first, start.first + start.count)
    shared = SharedStep(start.layout, mmap.mmap(shared_memory, start.layout.nbytes))
    os.close(shared_memory)
    shared.stepping[start.first] = start.first

    def begins(index: int) -> None:
        shared.stepping[start.first] = index

    replaceable = functools.partial(
        ReplaceableEnv,
        functools.partial(make_single, env, source_dir=start.source_dir),
        name=str(env.id or env.make),
        broke=lambda fault: owner.tell(broken(fault)),
        begins=begins if start.count > 1 else None,
    )
    envs = [functools.partial(replaceable, index=start.first + index) for index in range(start.count)]
    vector: Vector = SyncVectorEnv(envs, copy=False, autoreset_mode=AutoresetMode.NEXT_STEP)
    components = components_of(single_spaces(vector)[1])
    try:
        owner.tell(DONE)
        while command := owner.receive(1):
            if command == RESET:
                seeds = msgspec.json.decode(receive_body(owner.receive), type=list[int] | None)
                shared.observations[part], info = reset_with_info(vector, seeds)
            else:
                observations, reward, terminated, truncated, info = vector.step(shared.actions[part])
                shared.observations[part], shared.reward[part] = observations, reward
                shared.terminated[part], shared.truncated[part] = terminated, truncated
                if env.episode_info:
                    shared.episode_info[part] = as_columns(info, env.episode_info, start.count)
            if shared.wants_legal[0]:
                legal = legal_of_vector(info, num_envs=start.count, components=components)
                shared.tells_legal[part] = legal is not None
                if legal is not None:
                    shared.legal[part] = legal
            owner.tell(DONE)
    finally:
        vector.close()


def _end_with_the_owner(connection: int) -> None:
    """Exit when the owner is gone, even in the middle of a step that never ends."""
    poller = select.poll()
    poller.register(connection, select.POLLHUP)
    while not any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in poller.poll()):
        pass
    time.sleep(GRACE_S)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
