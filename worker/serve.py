"""The loop that every worker runs: take a lease, work under it, hand it back, until told to leave."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Protocol

from remuda.wire.messages import AnyMessage, Assign, Drain, Leave, Ready, WorkerFailed
from remuda.worker.life import Life
from remuda.worker.link import Link

IDLE_WAIT_S = 0.2
"""Longest a worker with nothing to do sleeps before it looks whether it has been asked to end."""


class Work(Protocol):
    """What one lease means for one role."""

    def handle(self, message: AnyMessage) -> None:
        """Something about this lease was said."""
        ...

    def step(self) -> bool:
        """Do a bit of work. False when there is nothing to do until the next message."""
        ...

    def drain(self) -> None:
        """Come to an end: finish what is in hand. `drained` says when that is so."""
        ...

    @property
    def drained(self) -> bool:
        """Asked to drain, and nothing is in hand or unannounced."""
        ...

    def close(self) -> None:
        """Let go of environments, files and threads; called once, also after an error."""
        ...


def serve(link: Link, life: Life, begin: Callable[[Assign], Work]) -> str:
    """Work until told to leave; returns why. An exception in the work is reported, with its traceback, and raised."""
    work: Work | None = None
    lease = 0
    try:
        while not life.ending:
            busy = work is not None and work.step()
            if work is not None and work.drained:
                work.close()
                work = None
                link.end_lease(lease)
                continue
            message = link.receive(0.0 if busy else IDLE_WAIT_S)
            match message:
                case None:
                    continue
                case Leave():
                    return message.reason
                case Assign():
                    lease = message.lease
                    link.begin_lease(lease)
                    work = begin(message)
                    link.send(Ready(lease))
                case Drain() if work is not None:
                    work.drain()
                case _ if work is not None:
                    work.handle(message)
                case _:
                    continue  # about a lease that is over
        return "asked by the operating system"
    except Exception as error:
        text = f"{type(error).__name__}: {error}"[:1_000]
        link.send(WorkerFailed(lease, text, traceback.format_exc()[-100_000:]))
        raise
    finally:
        if work is not None:
            work.close()
