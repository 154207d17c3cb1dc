"""Keeps the workers of one machine alive: forks them from one process, and restarts dead workers.

The nanny imports the modules of all roles once, and never starts a thread. Children therefore begin to work within
milliseconds and share the memory of torch. At the end of the lifeline (the parent process is gone) or at a signal, the
nanny ends every child: first by SIGTERM, and after a grace period by SIGKILL.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from uuid import uuid4

from remuda.deploy.nanny_process import PIPE_OPTION, read_arguments
from remuda.deploy.supervision import EXIT_DONE, EXIT_FAILED, SupervisedWorker, a_role_keeps_dying, worst_exit_code
from remuda.wire.patience import COORDINATOR_TIMEOUT_S
from remuda.worker.link import WorkerIdentity
from remuda.worker.process import exit_now, gc_frozen
from remuda.worker.serve import HAND_IN_S

LONGEST_WAIT_S = 1.0
"""Between two looks at the workers; signals, ended children and the lifeline end a wait at once."""
GRACE_S = 10.0
"""Seconds for children to end in order before they are killed, if handing in may take HAND_IN_S."""
KILL_DEADLINE_S = 5.0
"""Seconds for the end of a killed child: a process ends only after the current disk operation."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Nanny:
    """Supervises one process for each worker. Runs in a single thread, for safe forking."""

    def __init__(
        self,
        workers: Sequence[SupervisedWorker],
        be_worker: Callable[[SupervisedWorker], int],
        *,
        lifeline: int | None = None,
        grace_s: float = GRACE_S,
        gives_up: bool = False,
    ) -> None:
        """`be_worker` is called in every child and returns the exit code. `lifeline` is the reading end of a pipe.
        `gives_up`: end if every worker of a role keeps dying, since the remaining roles cannot work alone."""
        self._workers = list(workers)
        self._be_worker = be_worker
        self._lifeline = lifeline
        self._grace_s = grace_s
        self._gives_up = gives_up
        self._alive: dict[int, SupervisedWorker] = {}
        self._stopping = False
        self._woken, self._wakes = -1, -1

    def run(self) -> int:
        """Supervise until a signal, or until no worker is left. Returns the worst exit code of the workers: EXIT_FAILED
        if a role kept dying, EXIT_REFUSED, EXIT_ORPHANED or EXIT_DONE."""
        with self._woken_by_signals():
            while not (self._stopping or self._hopeless or all(worker.given_up for worker in self._workers)):
                now_s = time.monotonic()
                for worker in self._workers:
                    if worker.due_s is not None and worker.due_s <= now_s:
                        self._start(worker, now_s)
                self._wait()
                self._reap()
            self._end_all()
        if self._hopeless:
            return EXIT_FAILED
        return worst_exit_code(self._workers)

    @contextlib.contextmanager
    def _woken_by_signals(self) -> Generator[None]:
        """Let every signal within the body end a wait: Python writes each signal into a pipe."""
        self._woken, self._wakes = os.pipe()
        for end in (self._woken, self._wakes):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGCHLD, _noted)  # ignored, as some parents do, dead children would go unnoticed
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)
            os.close(self._woken)
            os.close(self._wakes)

    @property
    def _hopeless(self) -> bool:
        """True if every worker of a role keeps dying, and this nanny then gives up."""
        return self._gives_up and a_role_keeps_dying(self._workers)

    def _start(self, worker: SupervisedWorker, now_s: float) -> None:
        worker.started(now_s)
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            pid = os.fork()
        except OSError as error:  # no memory or no process number: counts as an early death
            print(f"{worker.role} {worker.uuid} could not be started: {error}", file=sys.stderr)
            self._note_end(worker, EXIT_FAILED)
            return
        if pid == 0:
            exit_code = EXIT_FAILED
            try:
                exit_code = self._be_worker_here(worker)
            finally:  # whatever happened, the child must not continue as a second nanny
                os._exit(exit_code)
        self._alive[pid] = worker

    def _be_worker_here(self, worker: SupervisedWorker) -> int:
        """Run the worker, in the child process."""
        signal.set_wakeup_fd(-1)
        for number in (*_SIGNALS, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.close(self._woken)
        os.close(self._wakes)
        if self._stopping:  # a signal between the fork and here was handled by the nanny's handler
            return EXIT_DONE
        try:
            return self._be_worker(worker)
        except BaseException:
            print(f"{worker.role} {worker.uuid} incarnation {worker.incarnation}:", file=sys.stderr)
            traceback.print_exc()
            return EXIT_FAILED
        finally:
            sys.stdout.flush()
            sys.stderr.flush()

    def _reap(self) -> None:
        for pid, exit_code in self._ended():
            self._note_end(self._alive.pop(pid), exit_code)

    def _note_end(self, worker: SupervisedWorker, exit_code: int) -> None:
        """Note the end of a process, and print the decision about a restart."""
        said = worker.ended(exit_code, time.monotonic())
        if exit_code != EXIT_DONE:
            print(f"{worker.role} {worker.uuid} {said}", file=sys.stderr, flush=True)

    def _ended(self) -> list[tuple[int, int]]:
        """Reap ended children, and return them with their exit codes.

        Reaps orphans, too: the first process of a container inherits them.
        """
        ended: list[tuple[int, int]] = []
        with contextlib.suppress(ChildProcessError):  # there are no children
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = found
                if pid in self._alive:
                    ended.append((pid, os.waitstatus_to_exitcode(status)))
        return ended

    def _wait(self) -> None:
        """Wait until something has happened, or a worker is due."""
        due_s = min((worker.due_s for worker in self._workers if worker.due_s is not None), default=math.inf)
        watched = [] if self._lifeline is None else [self._lifeline]
        if self._sleep(min(due_s - time.monotonic(), LONGEST_WAIT_S), watched):
            self._stopping = True

    def _sleep(self, longest_s: float, watched: Sequence[int] = ()) -> bool:
        """Wait for a signal; return True if one of the `watched` descriptors ended the wait."""
        readable, _, _ = select.select([self._woken, *watched], [], [], max(longest_s, 0.0))
        if self._woken in readable:
            os.read(self._woken, 4_096)
        return any(descriptor in readable for descriptor in watched)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True

    def _end_all(self) -> None:
        for number, deadline_s in ((signal.SIGTERM, self._grace_s), (signal.SIGKILL, KILL_DEADLINE_S)):
            for pid in self._alive:
                os.kill(pid, number)
            give_up_s = time.monotonic() + deadline_s
            while self._alive and time.monotonic() < give_up_s:
                for pid, _ in self._ended():
                    del self._alive[pid]
                if self._alive:
                    self._sleep(give_up_s - time.monotonic())
        for pid, worker in self._alive.items():
            print(f"{worker.role} {worker.uuid} (pid {pid}) does not end, even by SIGKILL", file=sys.stderr)


def _noted(number: int, frame: FrameType | None) -> None:
    """Do nothing: Python has written the number of the signal into the pipe."""


def new_workers(counts: Mapping[str, int]) -> list[SupervisedWorker]:
    """Return new workers to supervise, by role, with new UUIDs."""
    return [SupervisedWorker(role=role, uuid=str(uuid4())) for role, count in counts.items() for _ in range(count)]


def supervise(
    workers: Sequence[SupervisedWorker],
    connection_file: Path,
    *,
    runs_dirs: Sequence[Path] = (),
    lifeline: int | None = None,
    coordinator_timeout_s: float = COORDINATOR_TIMEOUT_S,
    gives_up: bool = False,
    hand_in_s: float = HAND_IN_S,
    profile: Path | None = None,
) -> int:
    """Supervise these workers in this process; return the exit code. See Nanny.

    Only this process holds the lifelines of the workers, so all workers end with this process.
    """
    for number in _SIGNALS:  # until the nanny handles them: there are no workers yet that must be ended
        signal.signal(number, _leave)
    with gc_frozen():  # keeps these pages shared: a garbage collection in a child would write to all of them
        from remuda.deploy.roles import run_worker  # once, before forking: it imports torch

    children_end, nannys_end = os.pipe()

    def be_worker(worker: SupervisedWorker) -> int:
        os.close(nannys_end)
        identity = WorkerIdentity(worker.uuid, worker.incarnation)
        return run_worker(
            worker.role,
            identity,
            connection_file,
            runs_dirs=runs_dirs,
            lifeline=children_end,
            coordinator_timeout_s=coordinator_timeout_s,
            former_exit=worker.former_exit,
            hand_in_s=hand_in_s,
            profile=profile,
        )

    try:
        grace_s = GRACE_S + hand_in_s - HAND_IN_S
        return Nanny(workers, be_worker, lifeline=lifeline, grace_s=grace_s, gives_up=gives_up).run()
    finally:
        os.close(children_end)
        os.close(nannys_end)


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(EXIT_DONE)  # an exception would be raised in the middle of an import


def main() -> None:
    """Entry point of `python -m remuda.deploy.nanny`: with all arguments, or with those of NannyProcess."""
    given = sys.argv[1:]
    if given[:1] == [PIPE_OPTION]:
        with gc_frozen():
            import remuda.deploy.roles  # noqa: F401  # pyright: ignore[reportUnusedImport]  # while nothing is known yet
        told = read_arguments(int(given[1]))
        if told is None:
            exit_now(EXIT_DONE)
        given = [*told, "--lifeline", given[1]]
    parser = argparse.ArgumentParser(description="Supervise the workers of one machine.")
    parser.add_argument("--connection-file", type=Path, required=True)
    parser.add_argument(
        "--runs-dir", type=Path, default=None, help="the runs folder (default: the folder of the connection file)"
    )
    parser.add_argument("--collectors", type=int, default=0)
    parser.add_argument(
        "--measure",
        action="store_true",
        help="measure first, as a file beside the connection file asks, and start as many collectors as the run needs",
    )
    parser.add_argument("--evaluators", type=int, default=0)
    parser.add_argument("--learners", type=int, default=0)
    parser.add_argument("--reanalyzers", type=int, default=0)
    parser.add_argument("--inference", type=int, default=0)
    parser.add_argument("--lifeline", type=int, default=None, help="file descriptor of a pipe; stop when it breaks")
    parser.add_argument(
        "--coordinator-timeout",
        type=float,
        default=COORDINATOR_TIMEOUT_S,
        help="seconds to wait for a silent coordinator",
    )
    parser.add_argument(
        "--hand-in",
        type=float,
        default=HAND_IN_S,
        metavar="SECONDS",
        help="how long workers that are to end may wait until others can find what they have collected",
    )
    parser.add_argument("--give-up", action="store_true", help="end if every worker of a role keeps dying")
    parser.add_argument("--profile", type=Path, default=None, help="folder for a profile of each worker")
    arguments = parser.parse_args(given)
    counts = {
        "learner": arguments.learners,
        "collector": arguments.collectors,
        "evaluator": arguments.evaluators,
        "reanalyzer": arguments.reanalyzers,
        "inference": arguments.inference,
    }
    if arguments.measure:
        from remuda.deploy.sizing import collectors_measured

        counts["collector"] = collectors_measured(arguments.connection_file.parent)
    workers = new_workers(counts)
    exit_code = supervise(
        workers,
        arguments.connection_file,
        runs_dirs=[] if arguments.runs_dir is None else [arguments.runs_dir.absolute()],
        lifeline=arguments.lifeline,
        coordinator_timeout_s=arguments.coordinator_timeout,
        gives_up=arguments.give_up,
        hand_in_s=arguments.hand_in,
        profile=arguments.profile,
    )
    exit_now(exit_code)


if __name__ == "__main__":
    main()
