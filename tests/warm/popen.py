"""subprocess.Popen for commands of Remuda's, which forks them from a process that has imported Remuda."""

from __future__ import annotations

import ctypes
import inspect
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from remuda.tests.warm.command_line import ROOM, ROOM_BYTES, fits
from remuda.tests.warm.order import LENGTH_BYTES, Order, receive
from remuda.tests.warm.program import Program
from remuda.worker.process import ONE_THREAD

_PARAMETERS = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]
_DEFAULTS = {
    "process_group": -1,
    "umask": -1,
    "uid": None,
    "gid": None,
    "gids": None,
    "close_fds": True,
    "restore_signals": True,
}
"""Of options that a forked process cannot have; Popen has filled them in."""
_PR_SET_CHILD_SUBREAPER = 36


@dataclass
class Forker:
    """The process that forks for this one."""

    control: socket.socket
    python: dict[str, str]
    """Settings of Python's own in its environment: those of a command must be the same."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def is_set_up_as(self, order: Order) -> bool:
        """Whether Python is set up there as it is here; an order may say where else to look for modules."""
        asked, here = of_python(order.env), dict(self.python)
        if order.site is not None:
            rest = asked.pop("PYTHONPATH").removeprefix(order.site).removeprefix(os.pathsep)
            asked |= {"PYTHONPATH": rest} if rest else {}
        if order.places is not None:
            del asked["PYTHONPATH"]
            here.pop("PYTHONPATH", None)
        return asked == here

    def fork(self, order: Order, descriptors: Sequence[int]) -> int:
        """Returns the process id. The forker forks a process between itself and the new one, which ends at once.
        Meanwhile this process adopts orphans, and so the new one becomes its child."""
        with self._lock, _adopting_orphans():
            order.send(self.control, descriptors)
            pid = int.from_bytes(receive(self.control, LENGTH_BYTES))
        if not pid:
            raise OSError("the process could not be forked")
        return pid


_forker: Forker | None = None


def use(forker: Forker | None) -> None:
    """Let Popen of this process fork by it; None: let it start real commands."""
    global _forker
    _forker = forker


@contextmanager
def warm() -> Generator[None]:
    """Processes are forked in the body. On systems other than Linux the real commands are started."""
    if sys.platform != "linux":
        yield
        return
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-P", "-m", "remuda.tests.warm.forking", str(theirs.fileno()), " " * ROOM_BYTES]
    process = subprocess.Popen(
        command,
        env={**os.environ, **ONE_THREAD, **ROOM},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(theirs.fileno(),),
    )
    theirs.close()
    use(Forker(ours, of_python(os.environ)))
    try:
        yield
    finally:
        use(None)
        ours.close()
        process.kill()  # it may still be importing
        process.wait()


class Popen(subprocess.Popen[bytes]):
    """Forks the process where a forker is in use and what is asked for is a program of Python's; else starts it."""

    def _execute_child(self, *given: Any) -> None:
        asked: dict[str, Any] = _PARAMETERS.bind(self, *given).arguments
        order, forker = _order(asked), _forker
        if forker is None or order is None or not forker.is_set_up_as(order):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        standard = (asked["p2cread"], asked["c2pwrite"], asked["errwrite"])
        inherited = [number if given == -1 else given for number, given in enumerate(standard)]
        self.pid = forker.fork(order, [*inherited, *order.descriptors[3:]])
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[name] for name in pipes))  # type: ignore[attr-defined]


def _order(asked: Mapping[str, Any]) -> Order | None:
    """None where the process must be started by its command."""
    plain = not asked["shell"] and asked["executable"] is None and asked["preexec_fn"] is None
    plain = plain and all(asked.get(name, default) == default for name, default in _DEFAULTS.items())
    if not plain or isinstance(asked["args"], str | bytes):
        return None
    command = [os.fsdecode(part) for part in asked["args"]]
    cwd = os.path.abspath(asked["cwd"] or ".")
    env = {os.fsdecode(name): os.fsdecode(value) for name, value in (asked["env"] or os.environ).items()}
    one_thread = all(env.get(name, value) == value for name, value in ONE_THREAD.items())
    if Program.of(command) is None or not fits(command, env) or not one_thread or not os.path.isdir(cwd):
        return None
    return Order(command, cwd, env, [0, 1, 2, *asked["pass_fds"]], asked["start_new_session"], _places(env), _site(env))


def _places(env: Mapping[str, str]) -> list[str] | None:
    """Where it is to look for modules, if that is where this process does: Remuda starts its children so."""
    places = [place for place in sys.path if place]
    return places if env.get("PYTHONPATH") == os.pathsep.join(places) else None


def _site(env: Mapping[str, str]) -> str | None:
    """Return the first folder of PYTHONPATH if it has a sitecustomize.py, which Python would run at its start."""
    first = env.get("PYTHONPATH", "").partition(os.pathsep)[0]
    return first if first and os.path.exists(os.path.join(first, "sitecustomize.py")) else None


def of_python(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings of Python itself in an environment."""
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}


@contextmanager
def _adopting_orphans() -> Generator[None]:
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
