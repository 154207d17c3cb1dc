"""The owner's side of one process with environments, and the messages between owner and process.

A command is one byte. An answer is one byte too, or a length and a body.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from mmap import mmap
from typing import Any

import msgspec
import numpy as np

from remuda.config.environment import EnvConfig
from remuda.environments.errors import Fault
from remuda.environments.lanes import Group, Lanes
from remuda.environments.legal_actions import components_of
from remuda.environments.spaces import Array, column_layout
from remuda.wire.child_end import end_within, ended

STEP, RESET, DONE, FAILED = b"s", b"r", b"d", b"f"
PRINTED, WARNED, BROKEN = b"o", b"e", b"b"
"""Messages before an answer: text printed to standard output, text printed to standard error, and a broken environment
that is made again."""
SLICE_S = 0.25
"""Seconds between two looks at an awaited process. Time in which this process itself stood still counts as at most one
look."""
_LENGTH_BYTES = 4
_STOP_S = 2.0
"""Longest time in seconds for a process to end by itself before it is killed."""


class ProcessStart(msgspec.Struct, frozen=True):
    """The first message to a process."""

    env_json: str
    source_dir: str | None
    first: int
    """Index of the first copy of the process."""
    count: int
    layout: StepLayout

    @classmethod
    def of(cls, env: EnvConfig, *, source_dir: str | None, part: range, layout: StepLayout) -> ProcessStart:
        """Return the message for the copies `part`."""
        return cls(env.model_dump_json(), source_dir, part.start, len(part), layout)


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
    """Receives from a process without a time limit, unless it `hangs`."""

    def __init__(self, connection: socket.socket, hangs: Callable[[float], bool]) -> None:
        self._connection, self._hangs = connection, hangs
        self._waited_s = 0.0

    def __call__(self, count: int) -> bytes:
        """Receive at most `count` bytes. Raises _HangsError and OSError."""
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
        """Send a command. A failure to send shows in the following `wait`."""
        with contextlib.suppress(OSError):  # its last message explains more than the broken connection
            self._socket.sendall(command if body is None else command + _with_length(body))

    def wait(self, hangs: Callable[[float], bool], *, setting: str = "env.step_timeout_s") -> list[Fault]:
        """Wait until the command is done; return the faults of environments made again meanwhile.

        `hangs` receives the seconds waited, and returns True to end the wait by this `setting`. Raises
        LostProcessError if the process was then killed, or has ended, and EnvironmentProcessError if the process
        failed.
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
            raise self._killed(hanging.waited_s, setting) from None
        except (OSError, EOFError):
            pass
        raise self._ended()

    def hang_up(self) -> None:
        """Close the connection; the process then ends."""
        self._socket.close()

    def end(self) -> None:
        """Wait for the end of the process; kill a slow process."""
        if not ended(self._process, _STOP_S):
            self._kill()

    @property
    def environments(self) -> str:
        """For people."""
        last = self.first + self.count - 1
        return f"environments {self.first} to {last}" if self.count > 1 else f"environment {self.first}"

    def _kill(self) -> int | None:
        """Kill the process and all processes its environments started in its session. Returns the
        result of end_within."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return end_within(self._process, 0.0)

    def _killed(self, waited_s: float, setting: str) -> LostProcessError:
        self._kill()
        self.hang_up()
        return LostProcessError(f"it hung for {waited_s:g} s ({setting})")

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
    """Return the message of a process that cannot continue."""
    return FAILED + _with_length(text.encode(errors="replace"))


def broken(fault: Fault) -> bytes:
    """Return the message about an environment made again."""
    return BROKEN + _with_length(msgspec.json.encode(fault))


def receive_body(receive: Callable[[int], bytes]) -> bytes:
    """Read a body after its length. Raises EOFError."""
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
"""Bytes of a cache line: no two arrays share a line."""


class LanesLayout(msgspec.Struct, frozen=True):
    """Sizes of the arrays of a group; shapes and dtypes are those of a lane."""

    agents: tuple[str, ...]
    seen_shape: tuple[int, ...]
    seen_dtype: str
    action_shape: tuple[int, ...]
    action_dtype: str
    values: int
    """Values of a mask."""


class StepLayout(msgspec.Struct, frozen=True):
    """Sizes of all arrays of a step."""

    num_envs: int
    groups: dict[str, LanesLayout]
    """By the name of the policy."""
    names: int
    """Number of names in env.episode_info."""

    @classmethod
    def of(cls, groups: Mapping[str, Group], *, num_envs: int, names: int = 0) -> StepLayout:
        """Return the layout for copies with these groups."""
        return cls(num_envs, {name: _layout(group) for name, group in groups.items()}, names)


def _layout(group: Group) -> LanesLayout:
    seen_shape, seen_dtype = column_layout(group.observation, what="observation", keeps_float64=True)
    action_dtype: np.dtype[Any] = np.dtype(group.action.dtype)
    values = sum(components_of(group.action))
    return LanesLayout(
        group.agents, seen_shape, str(seen_dtype), tuple(group.action.shape or ()), str(action_dtype), values
    )


@dataclass(frozen=True)
class SharedLanes:
    """Arrays of a group, [lanes, …]."""

    observations: Array
    actions: Array
    reward: Array
    terminated: Array
    truncated: Array
    over: Array
    episode_info: Array
    """[lanes, names]: values of env.episode_info of lanes that are over; nan without a value."""
    legal: Array
    """[lanes, values]: legal values of the components of actions."""
    tells_legal: Array
    """[lanes]: True if the environment reports legal actions."""


class SharedStep:
    """The arrays of a step, as views into memory of several processes."""

    def __init__(self, layout: StepLayout, memory: mmap | None) -> None:
        """`memory`: shared memory; None for arrays of this process alone, used to compute `nbytes`."""
        self._memory = memory
        self.nbytes = 0
        """Bytes of all arrays."""
        num_envs, view = layout.num_envs, self._view
        self.begun, self.replaced = view("bool", num_envs), view("bool", num_envs)
        self.stepping = view("int64", num_envs)
        """[num_envs]: at the first copy of each process, the index of the copy that the process steps or resets."""
        self.wants_legal = view("bool", 1)
        """True if legal actions are to be reported."""
        self.groups: list[SharedLanes] = []
        for group in layout.groups.values():
            lanes = num_envs * len(group.agents)
            self.groups.append(
                SharedLanes(
                    observations=view(group.seen_dtype, lanes, *group.seen_shape),
                    actions=view(group.action_dtype, lanes, *group.action_shape),
                    reward=view("float64", lanes),
                    terminated=view("bool", lanes),
                    truncated=view("bool", lanes),
                    over=view("bool", lanes),
                    episode_info=view("float64", lanes, layout.names),
                    legal=view("bool", lanes, group.values),
                    tells_legal=view("bool", lanes),
                )
            )

    def lanes(self, groups: Sequence[Group], part: range) -> tuple[Lanes, ...]:
        """Return the lanes of some copies, which write here."""
        found: list[Lanes] = []
        for group, arrays in zip(groups, self.groups, strict=True):
            count = len(group.agents)
            own = slice(part.start * count, part.stop * count)
            found.append(
                Lanes(
                    group,
                    arrays.observations[own],
                    arrays.reward[own],
                    arrays.terminated[own],
                    arrays.truncated[own],
                    arrays.over[own],
                    info={},
                )
            )
        return tuple(found)

    def _view(self, dtype: str, *shape: int) -> Array:
        array: Array = np.ndarray(shape, np.dtype(dtype), self._memory, 0 if self._memory is None else self.nbytes)
        self.nbytes += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        return array
