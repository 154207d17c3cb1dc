"""Keeps the workers of one machine alive: forks them from a warm process and starts again those that die.

The nanny imports what the roles need once and never starts a thread, so its children begin to work within
milliseconds and share the memory of torch. When its lifeline breaks (whoever started it is gone, however it died) or it
is told to stop, it ends every child: in order first, by force after a grace period.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from uuid import uuid4

from remuda.deploy.supervision import EXIT_FAILED, Slot, describe_exit

POLL_S = 0.05
GRACE_S = 10.0
"""How long children may take to end in order before they are killed."""


class Nanny:
    """Supervises one process per slot. Single-threaded, so that forking is safe."""

    def __init__(self, slots: Sequence[Slot], connection_file: Path, lifeline: int | None) -> None:
        self._slots = list(slots)
        self._connection_file = connection_file
        self._lifeline = lifeline
        self._alive: dict[int, Slot] = {}
        self._stopping = False

    def run(self) -> int:
        """Until told to stop, or until no worker is left to supervise. 1 if one was given up after failures."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        while not self._stopping:
            now_s = time.monotonic()
            for slot in self._slots:
                if slot.due_s is not None and slot.due_s <= now_s and slot not in self._alive.values():
                    self._start(slot, now_s)
            self._reap()
            if not self._alive and all(slot.given_up for slot in self._slots):
                break
            self._wait()
        self._end_all()
        return EXIT_FAILED if any("in a row" in (slot.given_up or "") for slot in self._slots) else 0

    def _start(self, slot: Slot, now_s: float) -> None:
        incarnation = slot.born(now_s)
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            os._exit(self._be_worker(slot, incarnation))
        self._alive[pid] = slot

    def _be_worker(self, slot: Slot, incarnation: int) -> int:
        """In the child. Never returns into the nanny's loop."""
        from remuda.deploy.roles import run_worker

        try:
            return run_worker(slot.role, self._connection_file, slot.uuid, incarnation, self._lifeline)
        except SystemExit as exit_:
            return exit_.code if isinstance(exit_.code, int) else EXIT_FAILED
        except BaseException as error:  # whatever it is, the child must not go on as a second nanny
            print(f"{slot.role} {slot.uuid}: {type(error).__name__}: {error}", file=sys.stderr)
            return EXIT_FAILED
        finally:
            sys.stdout.flush()
            sys.stderr.flush()

    def _reap(self) -> None:
        while self._alive:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            slot = self._alive.pop(pid, None)
            if slot is None:
                continue
            exit_code = os.waitstatus_to_exitcode(status)
            slot.died(exit_code, time.monotonic())
            if slot.given_up and exit_code != 0:
                print(f"{slot.role} {slot.uuid} is not started again: it {slot.given_up}", file=sys.stderr)
            elif exit_code != 0:
                print(f"{slot.role} {slot.uuid} ended with {describe_exit(exit_code)}; starting it again", file=sys.stderr)

    def _wait(self) -> None:
        """Sleep a little; wake up at once when the lifeline breaks."""
        watched = [] if self._lifeline is None else [self._lifeline]
        try:
            readable, _, _ = select.select(watched, [], [], POLL_S)
        except InterruptedError:
            return
        if readable:
            self._stopping = True

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True

    def _end_all(self) -> None:
        deadline_s = time.monotonic() + GRACE_S
        self._signal_all(signal.SIGTERM)
        while self._alive and time.monotonic() < deadline_s:
            self._reap_quietly()
            time.sleep(0.01)
        self._signal_all(signal.SIGKILL)
        while self._alive:
            self._reap_quietly()
            time.sleep(0.01)

    def _reap_quietly(self) -> None:
        for pid in list(self._alive):
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                del self._alive[pid]

    def _signal_all(self, number: int) -> None:
        for pid in self._alive:
            os.kill(pid, number)


def make_slots(counts: Mapping[str, int]) -> list[Slot]:
    """One slot per worker wanted, each with a UUID of its own."""
    return [Slot(role=role, uuid=str(uuid4())) for role, count in counts.items() for _ in range(count)]


def warm_up() -> None:
    """Import now what every child would import."""
    import remuda.deploy.roles  # noqa: F401


def main() -> None:
    """Entry point of `python -m remuda.deploy.nanny`."""
    parser = argparse.ArgumentParser(description="Supervise workers of one machine.")
    parser.add_argument("--connection-file", type=Path, required=True)
    parser.add_argument("--collectors", type=int, default=0)
    parser.add_argument("--evaluators", type=int, default=0)
    parser.add_argument("--learners", type=int, default=0)
    parser.add_argument("--lifeline", type=int, default=None, help="file descriptor whose end means: stop")
    arguments = parser.parse_args()
    warm_up()
    counts = {"learner": arguments.learners, "collector": arguments.collectors, "evaluator": arguments.evaluators}
    sys.exit(Nanny(make_slots(counts), arguments.connection_file, arguments.lifeline).run())


if __name__ == "__main__":
    main()
