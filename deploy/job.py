"""Runs the processes of an engine's job, the coordinator with its learner or workers, and ends them with the job.

    python -m remuda.deploy.job head --own-dir DIR --runs-dir RUNS
    python -m remuda.deploy.job collector --own-dir DIR --count 2

SIGTERM ends this job; SIGUSR1 is an early notice. Both end the processes in order: the coordinator saves all runs and
leaves them to the next start; workers hand in their work. An engine with special jobs has a module beside the launcher,
with `new_parser`, `run_job` and `run_apart`.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from uuid import uuid4

from remuda.deploy.supervision import KeptProcess
from remuda.storage.atomic import write_bytes
from remuda.storage.existing_folder import make_private
from remuda.storage.held_folder import HeldFolder
from remuda.wire.child_end import end_within, ended
from remuda.wire.keys.folder import FOLDER, SERVER
from remuda.wire.keys.secret_file import MODE
from remuda.wire.patience import COORDINATOR_TIMEOUT_S
from remuda.worker.process import child_environment

CONNECTION_FILE = "connection.json"
"""In the folder of the launch."""
COORDINATOR = "coordinator"
EXIT_PREEMPTED = 75
"""Exit code of an unfinished job that the engine must start again."""
EXIT_FAILED = 1
IDLE_END_S = 600.0
"""Seconds without a run after which the coordinator ends: the launch may be gone."""
TERM_S = 25.0
"""Time from SIGTERM until everything has ended; Slurm and Kubernetes kill the job after 30 s by default."""
HEAD_DELAY_S = 5.0
"""Delay of the coordinator's end after a notice: workers with a notice at the same moment still hand in."""
LATER_S = 10.0
"""Seconds of the time to end, reserved for each later process."""
ENDING_S = 8.0
"""Seconds of a worker job's time to end, reserved for work other than handing in."""
COMPANION_S = 30.0
"""Seconds for the remaining processes to end, after the first orderly end."""
POLL_S = 0.05
_ROLES = ("collector", "evaluator", "reanalyzer", "inference")


class Job:
    """Runs processes until they end, or until the engine ends this job; then ends them one after another.

    A killed coordinator is restarted, and the run continues, unless the coordinator keeps dying.
    """

    def __init__(self, commands: Mapping[str, Sequence[str]], *, notice_s: float, delay_s: float = 0.0) -> None:
        """`commands` by name, in the order of ending. `notice_s`: time from a notice until everything must have ended;
        the first `delay_s` pass without action."""
        self._commands = commands
        self._notice_s = notice_s
        self._delay_s = delay_s
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._coordinator = KeptProcess(COORDINATOR)
        self._lifeline = -1
        self._signal: signal.Signals | None = None

    @property
    def noticed(self) -> bool:
        """True if the job ends because of a notice."""
        return self._signal == signal.SIGUSR1

    def run(self) -> int:
        """Start the processes and wait. Returns 0 once all have ended in order, EXIT_PREEMPTED if the job is taken
        away, and otherwise the exit code of the process that failed."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, self._on_signal)
        self._lifeline, own_end = os.pipe()  # breaks with this process, however it ends: then the others end, too
        try:
            for name in self._commands:
                self._start(name)
            return self._wait()
        finally:
            self._end_all(0.0)
            os.close(self._lifeline)
            os.close(own_end)

    def _start(self, name: str) -> None:
        command = [*self._commands[name], "--lifeline", str(self._lifeline)]
        self._processes[name] = subprocess.Popen(command, pass_fds=(self._lifeline,), env=child_environment(os.environ))
        if name == COORDINATOR:
            self._coordinator.started(time.monotonic())

    def _wait(self) -> int:
        while self._signal is None:
            over = [one for one in self._processes.items() if one[1].poll() is not None]
            gone = next((one for one in over if not self._restarts(*one)), None)
            if gone is not None:
                return self._handle_exit(*gone)
            time.sleep(POLL_S)
        say(f"{self._signal.name}: handing in, then ending")
        if self.noticed:
            time.sleep(self._delay_s)
        self._end_all(self._notice_s - self._delay_s if self.noticed else TERM_S)
        say("handed in, and ended")
        return EXIT_PREEMPTED

    def _restarts(self, name: str, process: subprocess.Popen[bytes]) -> bool:
        """True if an ended process is started again, now or after a pause."""
        if name != COORDINATOR:
            return False
        to_do = self._coordinator.after(process.returncode, time.monotonic(), say)
        if to_do == "start":
            self._start(name)
        return to_do != "give up"

    def _handle_exit(self, name: str, process: subprocess.Popen[bytes]) -> int:
        """Wait for the remaining processes after an orderly end; otherwise end them."""
        if process.returncode:
            say(f"the {name} process ended with exit code {process.returncode}")
            self._end_all(TERM_S)
            return max(process.returncode, EXIT_FAILED)
        end_s = time.monotonic() + COMPANION_S
        while time.monotonic() < end_s and any(each.poll() is None for each in self._processes.values()):
            time.sleep(POLL_S)
        late = [name for name, each in self._processes.items() if each.poll() is None]
        if late:
            say(f"the {name} process has ended and {', '.join(late)} has not")
            self._end_all(TERM_S)
        return max((abs(each.returncode) for each in self._processes.values()), default=0) if not late else EXIT_FAILED

    def _end_all(self, within_s: float) -> None:
        """End the running processes one after another by SIGTERM, and by SIGKILL after the deadline."""
        end_s = time.monotonic() + within_s
        for later, (name, process) in zip(
            range(len(self._processes) - 1, -1, -1), self._processes.items(), strict=True
        ):
            if process.poll() is not None:
                continue
            process.terminate()
            if ended(process, end_s - later * LATER_S - time.monotonic()):
                if process.returncode < 0:
                    say(f"the {name} process ended with exit code {process.returncode}")
            elif end_within(process, 0.0) is None:
                say(f"the {name} process (pid {process.pid}) does not end, even by SIGKILL")
            elif within_s:
                say(f"the {name} process did not end in time, and was killed")

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signal = self._signal or signal.Signals(number)


def head_commands(arguments: argparse.Namespace) -> dict[str, list[str]]:
    """Return the commands of the coordinator and of the learners, in this order."""
    own_dir: Path = arguments.own_dir
    limits = [part for limit in arguments.limit for part in ("--limit", limit)]
    service = ["--persistent", "--hand-over", "--idle-end", str(IDLE_END_S)]
    limits += [] if arguments.http is None else ["--http", arguments.http]
    limits += [] if arguments.stream_port is None else ["--stream-port", arguments.stream_port]
    places = ["--runs-dir", str(arguments.runs_dir), "--own-dir", str(own_dir), "--bind", arguments.bind]
    python = [sys.executable, "-P", "-m"]
    coordinator = [*python, "remuda.coordinator", *service, *places, *limits]
    return {
        COORDINATOR: [*coordinator, *_common(arguments)],
        "learner": _nanny(arguments, "learner", arguments.learners),
    }


def copy_keys(given: Path, folder: Path) -> None:
    """Copy keys from an engine's folder to the coordinator's folder of keys; existing keys stay. The coordinator's own
    key is copied last and marks a complete folder."""
    make_private(folder)
    names = [path.name for path in given.iterdir() if path.is_file() and path.name != SERVER]
    for name in (*sorted(names), SERVER):
        if not (folder / SERVER).exists():
            write_bytes(folder / name, (given / name).read_bytes(), durable=True, mode=MODE)


def _nanny(arguments: argparse.Namespace, role: str, count: int) -> list[str]:
    patience = ["--coordinator-timeout", str(arguments.coordinator_timeout)]
    nanny = [sys.executable, "-P", "-m", "remuda.deploy.nanny"]
    place = ["--runs-dir", str(arguments.runs_dir)]
    return [*nanny, f"--{role}s", str(count), *place, *patience, *_common(arguments)]


def _common(arguments: argparse.Namespace) -> list[str]:
    profile: Path | None = arguments.profile
    connection_file = ["--connection-file", str(arguments.own_dir / CONNECTION_FILE)]
    return connection_file if profile is None else [*connection_file, "--profile", str(profile)]


def say(text: str) -> None:
    """Print a line with the time."""
    print(f"{time.time():.3f} {text}", file=sys.stderr, flush=True)


def new_parser() -> argparse.ArgumentParser:
    """Return the parser of a job's arguments; an engine may add more."""
    parser = argparse.ArgumentParser(description="Run the processes of an engine's job.")
    parser.add_argument("kind", choices=("head", *_ROLES), help="coordinator and learners, or workers of a role")
    parser.add_argument("--own-dir", type=Path, required=True, help="the folder of the launch, which all jobs see")
    parser.add_argument("--runs-dir", type=Path, required=True, help="the folder of run folders")
    parser.add_argument("--bind", default="tcp://0.0.0.0:0", help="head: the coordinator's address")
    parser.add_argument("--stream-port", default=None, help="head: the port for files of workers without the folder")
    parser.add_argument("--http", default=None, help="head: address of health and metrics")
    parser.add_argument("--keys", type=Path, default=None, help="head: a folder of keys to take at the first start")
    parser.add_argument("--learners", type=int, default=1, help="head: learners, one for each policy")
    parser.add_argument("--limit", action="append", default=[], help="head: see `remuda coordinator --limit`")
    parser.add_argument(
        "--brought",
        type=Path,
        default=None,
        metavar="DIR",
        help="this node does not see the folder of the launch: a connection file with a key is in DIR",
    )
    parser.add_argument("--count", type=int, default=1, help="workers in this job")
    parser.add_argument("--coordinator-timeout", type=float, default=COORDINATOR_TIMEOUT_S)
    parser.add_argument("--notice", type=float, default=TERM_S, help="seconds from SIGUSR1 until all must have ended")
    parser.add_argument("--profile", type=Path, default=None, help="folder for a profile of each process")
    return parser


def run_job(arguments: argparse.Namespace) -> tuple[int, bool]:
    """Run the job; returns the exit code, and True if the job ends because of a notice."""
    if arguments.brought is not None:
        folder = HeldFolder("remuda-job-", str(uuid4()))  # the engine's file may belong to another user
        try:
            content = (arguments.brought / CONNECTION_FILE).read_bytes()
            write_bytes(folder.path / CONNECTION_FILE, content, durable=False, mode=MODE)
            return run_apart(folder.path, arguments)
        finally:
            folder.remove()
    if arguments.kind != "head":
        return _run_workers(arguments)
    if arguments.keys is not None:
        copy_keys(arguments.keys, arguments.own_dir / FOLDER)
    job = Job(head_commands(arguments), notice_s=arguments.notice, delay_s=HEAD_DELAY_S)
    return job.run(), job.noticed


def run_apart(folder: Path, arguments: argparse.Namespace) -> tuple[int, bool]:
    """Run workers that see only a connection file of the launch, in a separate folder; see run_job."""
    arguments.own_dir, arguments.runs_dir, arguments.profile = folder, folder, None
    return _run_workers(arguments)


def _run_workers(arguments: argparse.Namespace) -> tuple[int, bool]:
    hand_in = ["--hand-in", str(min(arguments.notice, TERM_S) - ENDING_S)]  # fits after either signal
    nanny = _nanny(arguments, arguments.kind, arguments.count)
    job = Job({"workers": [*nanny, *hand_in]}, notice_s=arguments.notice)
    return job.run(), job.noticed


if __name__ == "__main__":
    sys.exit(run_job(new_parser().parse_args())[0])
