"""Environments in several processes: each steps a part of the vector, with results in shared memory.

A step costs a byte in each direction: the process reads its actions from shared memory and writes its results there.
Its part is gymnasium's SyncVectorEnv, so that it behaves like objects in one process, and the output of its Python code
is printed by the owner. It ends when the socket to its owner is closed, however the owner died.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from remuda.config.schema import EnvConfig
from remuda.environments.legal_actions import ACTION_MASK, components_of
from remuda.environments.shared_step import SharedStep, StepLayout
from remuda.environments.spaces import Array, Space

STEP, RESET, DONE, FAILED = b"s", b"r", b"d", b"f"
PRINTED, WARNED = b"o", b"e"
"""Sent before an answer: text that was printed to standard output or to standard error."""
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


class EnvironmentProcessError(RuntimeError):
    """A process with environments has failed or ended; the message has its traceback."""


class ProcessVector(VectorEnv[Array, Array, Array]):
    """Steps `num_envs` environments in `processes` processes; resets as in AutoresetMode.NEXT_STEP.

    The `info` that is returned has only the names in env.episode_info, with nan where nothing is reported, and action
    masks once somebody has asked for them.
    """

    def __init__(
        self, env: EnvConfig, *, num_envs: int, processes: int, source_dir: str | None, spaces: tuple[Space, Space]
    ) -> None:
        """`spaces` are one environment's, observation and action. Raises EnvironmentProcessError."""
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space, self.single_action_space = spaces
        self.observation_space, self.action_space = (batch_space(space, num_envs) for space in spaces)
        self._has_masks = bool(components_of(spaces[1]))
        self._episode_info = env.episode_info
        layout = StepLayout.of(*spaces, num_envs=num_envs, episode_info=len(env.episode_info))
        descriptor = _anonymous_memory(layout.nbytes)
        self._shared = SharedStep(layout, mmap.mmap(descriptor, layout.nbytes))
        bounds = [num_envs * number // processes for number in range(processes + 1)]
        self._slices = [slice(first, end) for first, end in itertools.pairwise(bounds)]
        self._peers: list[_Peer] = []
        try:
            for part in self._slices:
                start = ProcessStart(env.model_dump_json(), source_dir, part.start, part.stop - part.start, layout)
                self._peers.append(_Peer(start, descriptor))
            for peer in self._peers:
                peer.wait()
        except BaseException:
            self.close()
            raise
        finally:
            os.close(descriptor)

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Reset all environments; a list has one seed for each, a number is the first of consecutive seeds."""
        seeds = [seed + index for index in range(self.num_envs)] if isinstance(seed, int) else seed
        for peer, part in zip(self._peers, self._slices, strict=True):
            peer.tell(RESET, msgspec.json.encode(None if seeds is None else seeds[part]))
        for peer in self._peers:
            peer.wait()
        return self._shared.observations.copy(), self._action_masks()

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Step all environments. Raises EnvironmentProcessError with the traceback if an environment raises an
        error."""
        self.send(actions)
        return self.receive()

    def send(self, actions: Array) -> None:
        """Start a step in all environments, and return at once."""
        self._shared.actions[:] = actions
        for peer in self._peers:
            peer.tell(STEP)

    def receive(self) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Wait for the end of the step that `send` started."""
        for peer in self._peers:
            peer.wait()
        shared = self._shared
        info = {name: shared.episode_info[:, column].copy() for column, name in enumerate(self._episode_info)}
        return (
            shared.observations.copy(),
            shared.reward.copy(),
            shared.terminated.copy(),
            shared.truncated.copy(),
            info | self._action_masks(),
        )

    def tell_legal_actions(self) -> None:
        """Put action masks into `info` from now on, where environments have them and actions are counted."""
        self._shared.wants_legal[0] = self._has_masks

    def _action_masks(self) -> dict[str, Any]:
        shared = self._shared
        if not shared.tells_legal.any():
            return {}
        return {ACTION_MASK: shared.legal.copy(), f"_{ACTION_MASK}": shared.tells_legal.copy()}

    def close_extras(self, **kwargs: Any) -> None:
        """End the processes."""
        for peer in self._peers:
            peer.hang_up()
        for peer in self._peers:
            peer.end()


class _Peer:
    """The vector's side of one process."""

    def __init__(self, start: ProcessStart, shared_memory: int) -> None:
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
        self.tell(b"", msgspec.json.encode(start))

    def tell(self, command: bytes, body: bytes | None = None) -> None:
        try:
            self._socket.sendall(command if body is None else command + _with_length(body))
        except OSError:
            self.wait()  # its last message explains more than the broken connection
            raise self._ended() from None

    def wait(self) -> None:
        """Wait until the command is done; there is no time limit for a step."""
        try:
            while (answer := self._socket.recv(1)) in (PRINTED, WARNED):
                _print(answer, receive_body(self._socket.recv))
            if answer == DONE:
                return
            if answer == FAILED:
                text = receive_body(self._socket.recv)
                raise EnvironmentProcessError(
                    f"environments {self.first} to {self.first + self.count - 1}, in a separate process:\n"
                    f"{text.decode(errors='replace')}"
                )
        except (OSError, EOFError):
            pass
        raise self._ended()

    def hang_up(self) -> None:
        self._socket.close()

    def end(self) -> None:
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ended(self) -> EnvironmentProcessError:
        try:
            code = self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return EnvironmentProcessError(
            f"the process of environments {self.first} to {self.first + self.count - 1} ended unexpectedly ({how})"
        )


def printing(kind: bytes, text: str) -> bytes:
    """The message for printed text; `kind` is PRINTED or WARNED."""
    return kind + _with_length(text.encode(errors="replace"))


def failure(text: str) -> bytes:
    """The message of a process in which an environment has failed."""
    return FAILED + _with_length(text.encode(errors="replace"))


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


def _anonymous_memory(size: int) -> int:
    """A file descriptor of memory that is freed with its last user."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("remuda-environments")
    else:
        with tempfile.TemporaryFile(dir=Path(tempfile.gettempdir())) as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor
