"""The process that has imported Remuda, and forks a child for every order. It has only one thread, so forking is safe.

python -P -m remuda.tests.warm.forking SOCKET ROOM
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import NoReturn

from remuda.logbook.event_file import tensorboardx
from remuda.tests.warm import popen
from remuda.tests.warm.command_line import set_command_line, show_environment
from remuda.tests.warm.order import LENGTH_BYTES, Order, received
from remuda.tests.warm.program import Program
from remuda.worker.process import exit_code, exit_now, gc_frozen

IMPORTED = (
    "remuda.cli.app",
    "remuda.cli.train",
    "remuda.client.checking",
    "remuda.client.running",
    "remuda.coordinator.service",
    "remuda.deploy.local",
    "remuda.deploy.roles",
    "remuda.learner.ranks.leading",
    "remuda.policy.algorithms",
    "remuda.policy.algorithms.dqn.learning",
    "remuda.runner.serial",
    "remuda.worker.stores.server.service",
)
"""What the programs import, but no program itself: it runs as `__main__`."""
NAME = "forks-warm-processes"
_HIGH = 512
"""No program asks for a descriptor of so high a number."""


def main() -> None:
    """Fork until nobody can ask any more. In each child: be the program that was asked for."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for those that were started
    with gc_frozen():
        for module in IMPORTED:
            importlib.import_module(module)
        tensorboardx()  # it imports as well
    set_command_line([NAME])
    if (ordered := fork_for_orders(control)) is not None:
        be(*ordered)


def fork_for_orders(control: socket.socket) -> tuple[Order, list[int]] | None:
    """Returns None once nobody can ask any more; and in each child, what was ordered, with its descriptors."""
    while (ordered := received(control)) is not None:
        reading_end, writing_end = os.pipe()
        between = os.fork()
        if between == 0:  # its child outlives it, and so becomes a child of whoever has asked: see Forker
            between = os.getpid()
            if os.fork():
                os._exit(0)
            control.close()
            os.close(reading_end)
            _prepare(ordered[0])
            os.write(writing_end, os.getpid().to_bytes(LENGTH_BYTES))
            os.close(writing_end)
            while os.getppid() == between:
                time.sleep(0.0002)
            return ordered
        os.close(writing_end)
        told = os.read(reading_end, LENGTH_BYTES)
        os.close(reading_end)
        os.waitpid(between, 0)
        for descriptor in ordered[1]:
            os.close(descriptor)
        control.sendall(told.rjust(LENGTH_BYTES, b"\0"))
    return None


def _prepare(order: Order) -> None:
    """What others may count on once a process is started: they find it by its command and its environment, and send it
    signals."""
    if order.new_session:
        os.setsid()
    os.environ.clear()
    os.environ.update(order.env)
    show_environment(order.env)
    set_command_line(order.command)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def be(order: Order, descriptors: Sequence[int]) -> NoReturn:
    """Run the program as if this process had been started with it, and end as it does, but without freeing modules."""
    program = Program.of(order.command)
    assert program is not None
    _place(descriptors, order.descriptors)
    os.chdir(order.cwd)
    tempfile.tempdir = None  # it is looked for once, in the environment of the time
    if order.places is not None:
        sys.path[:] = order.places
    if order.site is not None:
        sys.path.insert(0, order.site)
        runpy.run_path(os.path.join(order.site, "sitecustomize.py"))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if program.starts_others:
        _fork_for_this_process()
    for name in ("freeze", "unfreeze"):  # what was imported stays frozen: memory that is looked at is copied
        setattr(gc, name, lambda: None)
    try:
        program.run()
    except SystemExit as end:
        exit_now(exit_code(end))
    exit_now(0)


def _fork_for_this_process() -> None:
    """Start a forker for it, while nothing but the imports has happened here, and let it be used."""
    ours, theirs = socket.socketpair()
    if os.fork():
        theirs.close()
        popen.use(popen.Forker(ours, popen.of_python(os.environ)))
        subprocess.Popen = popen.Popen  # type: ignore[assignment, misc]
        return
    ours.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _hold_only(theirs)
    set_command_line([NAME])
    if (ordered := fork_for_orders(theirs)) is None:
        os._exit(0)
    be(*ordered)


def _hold_only(control: socket.socket) -> None:
    """Let go of every descriptor but this one, or whoever reads from their other ends would wait."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.closerange(3, control.fileno())
    os.closerange(control.fileno() + 1, _HIGH)


def _place(descriptors: Sequence[int], numbers: Sequence[int]) -> None:
    """Give each descriptor its number; first out of the way, since one may have the number of another."""
    aside = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _HIGH) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    for descriptor, number in zip(aside, numbers, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)


if __name__ == "__main__":
    main()
