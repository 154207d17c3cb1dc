"""The vector's side of one process with environments, and the messages between the two.

A command is one byte; so is the answer, unless it has a body, whose length comes first.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from mmap import mmap
from typing import Any

import msgspec
import numpy as np

from remuda.config.environment import EnvConfig
from remuda.environments.faults import Fault
from remuda.environments.legal_actions import components_of
from remuda.environments.spaces import Array, Space
from remuda.wire.child_end import end_within, ended

STEP, RESET, DONE, FAILED = b"s", b"r", b"d", b"f"
PRINTED, WARNED, BROKEN = b"o", b"e", b"b"
"""Sent before an answer: text that was printed to standard output or to standard error, and an environment that broke
and is made again."""
SLICE_S = 0.25
"""A process that is waited for is looked at so often. Time in which this process itself stood still counts for no
more than one look."""
_LENGTH_BYTES = 4
_STOP_S = 2.0
"""How long a process may take to end by itself before it is killed."""


class ProcessStart(msgspec.Struct, frozen=True):
    """The first message to a process."""

    env_json: str
    source_dir: str | None
    first: int
    """Index of its first environment in the vector."""
    count: int
    layout: StepLayout

    @classmethod
    def of(cls, env: EnvConfig, *, source_dir: str | None, part: slice, layout: StepLayout) -> ProcessStart:
        """For the environments `part` of the vector."""
        return cls(env.model_dump_json(), source_dir, part.start, part.stop - part.start, layout)


class EnvironmentProcessError(RuntimeError):
    """A process with environments has failed; the message has its traceback."""


class LostProcessError(EnvironmentProcessError):
    """A process with environments hung and was killed, or has ended."""


class _HangsError(Exception):
    """A process has been waited for long enough."""

    def __init__(self, waited_s: float) -> None:
        super().__init__(waited_s)
        self.waited_s = waited_s


class _Waiting:
    """Receives from a process, however long that takes, unless it `hangs`."""

    def __init__(self, connection: socket.socket, hangs: Callable[[float], bool]) -> None:
        self._connection, self._hangs = connection, hangs
        self._waited_s = 0.0

    def __call__(self, count: int) -> bytes:
        """At most so many bytes. Raises _HangsError, and OSError."""
        while True:
            try:
                return self._connection.recv(count)
            except TimeoutError:
                self._waited_s += SLICE_S
                if self._hangs(self._waited_s):
                    raise _HangsError(self._waited_s) from None


class Peer:
    """One process; every command is followed by a `wait`."""

    def __init__(self, start: ProcessStart, shared_memory: int) -> None:
        """`shared_memory` is a file descriptor. Wait until the environments are built."""
        self._socket, theirs = socket.socketpair()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        arguments = [sys.executable, "-m", "remuda.environments.process", str(theirs.fileno()), str(shared_memory)]
        with theirs:
            self._process = subprocess.Popen(
                arguments,
                env=environment,
                pass_fds=(theirs.fileno(), shared_memory),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C at the terminal must reach only its owner
            )
        self.first, self.count = start.first, start.count
        self.tell(b"", msgspec.json.encode(start))  # may be long, and is read once it runs
        self._socket.settimeout(SLICE_S)

    def tell(self, command: bytes, body: bytes | None = None) -> None:
        """Send a command. Whether it arrives is seen by `wait`."""
        with contextlib.suppress(OSError):  # its last message explains more than the broken connection
            self._socket.sendall(command if body is None else command + _with_length(body))

    def wait(self, hangs: Callable[[float], bool] = lambda waited_s: False) -> list[Fault]:
        """Wait until the command is done; returns the environments that broke meanwhile and were made again.

        `hangs` gets the seconds waited, and says whether to wait no longer. Raises LostProcessError if the process then
        has been killed, or has ended, and EnvironmentProcessError if it has failed.
        """
        faults: list[Fault] = []
        receive = _Waiting(self._socket, hangs)
        try:
            while True:
                kind = receive(1)
                if kind == DONE:
                    return faults
                if kind not in (PRINTED, WARNED, BROKEN, FAILED):
                    break
                body = receive_body(receive)
                if kind == FAILED:
                    text = body.decode(errors="replace")
                    raise EnvironmentProcessError(f"{self.environments}, in a separate process:\n{text}")
                if kind == BROKEN:
                    faults.append(msgspec.json.decode(body, type=Fault))
                else:
                    _print(kind, body)
        except _HangsError as hanging:
            raise self._killed(hanging.waited_s) from None
        except (OSError, EOFError):
            pass
        raise self._ended()

    def hang_up(self) -> None:
        """Close the connection, which tells it to end."""
        self._socket.close()

    def end(self) -> None:
        """Wait for its end; kill it if that takes too long."""
        if not ended(self._process, _STOP_S):
            self._kill()

    @property
    def environments(self) -> str:
        """For people."""
        last = self.first + self.count - 1
        return f"environments {self.first} to {last}" if self.count > 1 else f"environment {self.first}"

    def _kill(self) -> int | None:
        """Kill it, with the processes that its environments have started in its session; returns what
        end_within does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return end_within(self._process, 0.0)

    def _killed(self, waited_s: float) -> LostProcessError:
        self._kill()
        self.hang_up()
        return LostProcessError(f"it hung for {waited_s:g} s (env.step_timeout_s)")

    def _ended(self) -> LostProcessError:
        code = self._process.returncode if ended(self._process, _STOP_S) else self._kill()
        self.hang_up()
        if code is None:
            return LostProcessError("its process does not end, even by SIGKILL")
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return LostProcessError(f"its process ended unexpectedly ({how})")


def printing(kind: bytes, text: str) -> bytes:
    """The message for printed text; `kind` is PRINTED or WARNED."""
    return kind + _with_length(text.encode(errors="replace"))


def failure(text: str) -> bytes:
    """The message of a process that cannot go on."""
    return FAILED + _with_length(text.encode(errors="replace"))


def broken(fault: Fault) -> bytes:
    """The message about an environment that is made again."""
    return BROKEN + _with_length(msgspec.json.encode(fault))


def receive_body(receive: Callable[[int], bytes]) -> bytes:
    """Read a body that begins with its length. Raises EOFError."""
    length = int.from_bytes(_exactly(receive, _LENGTH_BYTES), "little")
    return _exactly(receive, length)


def _print(kind: bytes, text: bytes) -> None:
    with contextlib.suppress(OSError, ValueError):  # the output is closed or full
        print(text.decode(errors="replace"), end="", file=sys.stdout if kind == PRINTED else sys.stderr, flush=True)


def _with_length(body: bytes) -> bytes:
    return len(body).to_bytes(_LENGTH_BYTES, "little") + body


def _exactly(receive: Callable[[int], bytes], count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = receive(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data


_ALIGNMENT = 64
"""Bytes of a cache line: no two arrays share one."""


class _Field(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        data_bytes = math.prod(self.shape) * np.dtype(self.dtype).itemsize
        return -(-data_bytes // _ALIGNMENT) * _ALIGNMENT


class StepLayout(msgspec.Struct, frozen=True):
    """Dtypes and shapes [num_envs, …] of what goes in and out of a step."""

    observations: _Field
    actions: _Field
    reward: _Field
    terminated: _Field
    truncated: _Field
    episode_info: _Field
    """[num_envs, names]: values of env.episode_info of episodes that have just ended; nan if there is none."""
    legal: _Field
    """[num_envs, values]: which values of the components of actions are legal now."""
    tells_legal: _Field
    """[num_envs]: whether the environment says so. Both are also filled by a reset."""
    wants_legal: _Field
    """[1]: whether anybody reads them."""
    stepping: _Field
    """[num_envs]: at the first environment of each process, which of its environments it is stepping or resetting."""

    @classmethod
    def of(cls, observation: Space, action: Space, *, num_envs: int, episode_info: int = 0) -> StepLayout:
        """The layout for environments with these spaces, which column_layout supports; `episode_info` is the number of
        names in env.episode_info."""
        return cls(
            _field(observation, num_envs),
            _field(action, num_envs),
            _Field("float64", (num_envs,)),
            _Field("bool", (num_envs,)),
            _Field("bool", (num_envs,)),
            _Field("float64", (num_envs, episode_info)),
            _Field("bool", (num_envs, sum(components_of(action)))),
            _Field("bool", (num_envs,)),
            _Field("bool", (1,)),
            _Field("int64", (num_envs,)),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        fields = (self.observations, self.actions, self.reward, self.terminated, self.truncated)
        masks = (self.legal, self.tells_legal, self.wants_legal)
        return sum(field.nbytes for field in (*fields, self.episode_info, *masks, self.stepping))


class SharedStep:
    """The arrays, as views into the memory."""

    def __init__(self, layout: StepLayout, memory: mmap) -> None:
        offset = 0

        def view(field: _Field) -> Array:
            nonlocal offset
            array: Array = np.ndarray(field.shape, np.dtype(field.dtype), memory, offset)
            offset += field.nbytes
            return array

        self.observations, self.actions = view(layout.observations), view(layout.actions)
        self.reward, self.terminated, self.truncated = map(view, (layout.reward, layout.terminated, layout.truncated))
        self.episode_info, self.legal = view(layout.episode_info), view(layout.legal)
        self.tells_legal, self.wants_legal = view(layout.tells_legal), view(layout.wants_legal)
        self.stepping = view(layout.stepping)


def _field(space: Space, num_envs: int) -> _Field:
    dtype: np.dtype[Any] = np.dtype(space.dtype)
    return _Field(str(dtype), (num_envs, *(space.shape or ())))
