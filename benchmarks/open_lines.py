"""The sockets of Remuda without keys, as something to compare with: no user has this.

`python -m remuda.benchmarks.open_lines MODULE ARGUMENTS…` runs a module so.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager

import zmq

from remuda.coordinator import rights
from remuda.wire import sockets
from remuda.wire.door import Door
from remuda.wire.keys.authorized import Identity
from remuda.wire.keys.folder import CallerKeys
from remuda.wire.router import RouterSocket

ANYBODY = Identity("worker", "worker")


@contextmanager
def open_lines() -> Generator[None]:
    """Every socket that this process makes in the block speaks without keys, and everybody may say everything."""

    def whose(router: RouterSocket, frame: zmq.Frame) -> Identity:
        return ANYBODY

    def guard(door: Door, socket: zmq.Socket[bytes]) -> None:
        return

    def show_keys(socket: zmq.Socket[bytes], keys: CallerKeys) -> None:
        return

    everything = frozenset[type].union(*rights.MAY_SAY.values())
    with ExitStack() as stack:
        for owner, name, instead in (
            (RouterSocket, "_whose", whose),
            (Door, "guard", guard),
            (sockets, "show_keys", show_keys),
        ):
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, instead)
        stack.callback(rights.MAY_SAY.__setitem__, "worker", rights.MAY_SAY["worker"])
        rights.MAY_SAY["worker"] = everything
        yield


def main(run: Callable[[], object]) -> None:
    """Call it with open lines."""
    with open_lines():
        run()


if __name__ == "__main__":
    _, module, *arguments = sys.argv
    sys.argv = [module, *arguments]
    main(lambda: runpy.run_module(module, run_name="__main__", alter_sys=False))
