"""Coordinator and workers as processes of this machine, which end with the starting process."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from remuda.deploy.launcher import Launcher, LaunchError, LaunchRequest, WorkerCounts
from remuda.deploy.nanny_process import NannyProcess
from remuda.wire.child_end import end_within, ended
from remuda.wire.connection_file import wait_for
from remuda.worker.process import child_environment

START_DEADLINE_S = 30.0
MEASURE_DEADLINE_S = 120.0
"""Longer than the nanny's own limit for the measuring process."""
STOP_DEADLINE_S = 15.0
ORPHANS_DEADLINE_S = 10.0
"""Seconds for workers of a killed nanny to end by themselves, after the lifeline was broken."""
TAIL_LINES = 30
"""Lines of output of each process in an error message."""


class LocalLauncher(Launcher):
    """Starts `remuda.coordinator` and `remuda.deploy.nanny`; whoever asks for the launch may have started the nanny
    already.

    Each child holds the reading end of a pipe; only this process has the writing end. When this process ends, even by
    SIGKILL, the pipe breaks and the children end, too.
    """

    def __init__(self, request: LaunchRequest) -> None:
        """Nothing is started or written."""
        self._request = request
        self._folder: Path | None = None
        self._lifeline: tuple[int, int] | None = None
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._nanny: NannyProcess | None = None

    @property
    def connection_file(self) -> Path:
        """Connection file in a folder used by this launch only: no other coordinator's file."""
        assert self._folder is not None, "nothing has been started"
        return self._folder / "connection.json"

    def planned(self, workers: WorkerCounts) -> str:
        """Return the two commands, without lifeline and temporary folder. The nanny receives
        arguments through a pipe."""
        nanny = [sys.executable, "-P", "-m", "remuda.deploy.nanny", *self._nanny_arguments(workers)]
        return "".join(f"{shlex.join(command)}\n" for command in (self._coordinator_command(), nanny))

    def start(self, workers: WorkerCounts, *, given_up: Callable[[], bool] = lambda: False) -> None:
        """Start everything; returns once the coordinator can be reached, and a requested measurement is done."""
        self._folder = Path(tempfile.mkdtemp(prefix="remuda-"))
        self._lifeline = os.pipe()
        if self._request.sizes is not None:
            self._request.sizes.write(self._folder)
        self._start_processes(workers, given_up)
        self._await(self.connection_file, START_DEADLINE_S, given_up, "the coordinator did not start")
        if self._request.sizes is not None:
            self._await(
                self._request.sizes.answer_file(self._folder), MEASURE_DEADLINE_S, given_up, "nothing was measured"
            )
        wait_for(self.connection_file, deadline_s=1.0)

    def check(self) -> None:
        """Raise LaunchError if the coordinator or the nanny has ended."""
        for name, process in self._processes.items():
            exit_code = process.poll()
            if exit_code is not None:
                self._has_ended(name, exit_code)

    def wait(self, deadline_s: float) -> bool:
        """Wait until everything has ended by itself (after a shutdown); False when the deadline passes first."""
        end_s = time.monotonic() + deadline_s
        return all(ended(process, end_s - time.monotonic()) for process in self._processes.values())

    def wait_for_coordinator(self, deadline_s: float) -> bool:
        """Wait until the coordinator has ended by itself (after a shutdown); False when the deadline passes first.

        Workers need not be waited for: the run is over, and `stop` ends them."""
        return ended(self._processes["coordinator"], deadline_s)

    def kill(self) -> None:
        """End everything at once, also workers and processes of environments, and remove the temporary folder."""
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        self._remove_folder()

    def stop(self) -> None:
        """End running processes, first by SIGTERM, then by force, and remove the temporary folder."""
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        in_order = self.wait(STOP_DEADLINE_S)
        self._break_lifeline()
        deadline_s = time.monotonic() + (ORPHANS_DEADLINE_S if in_order else 0.0)
        for process in self._processes.values():
            _end_group(process.pid, deadline_s)
            end_within(process, 0.0)
        if self._nanny is not None:
            self._nanny.end()
        self._processes.clear()
        self._remove_folder()

    def _start_processes(self, workers: WorkerCounts, given_up: Callable[[], bool]) -> None:
        self._spawn("coordinator", self._coordinator_command())
        self._nanny = self._request.nanny or NannyProcess()
        self._processes["workers"] = self._nanny.process
        self._nanny.tell([*self._nanny_arguments(workers), "--connection-file", str(self.connection_file)])

    def _await(self, file: Path, deadline_s: float, given_up: Callable[[], bool], otherwise: str) -> None:
        """Wait for a file of the processes. Raises LaunchError."""
        end_s = time.monotonic() + deadline_s
        while not file.exists():
            self.check()
            if given_up():
                raise LaunchError("asked to end before the coordinator had started")
            if time.monotonic() > end_s:
                raise LaunchError(f"{otherwise} within {deadline_s:.0f} s\n{self._tails()}")
            time.sleep(0.01)

    def _has_ended(self, name: str, exit_code: int) -> None:
        """Handle the end of a process; called by `check`. Raises LaunchError unless the run continues."""
        raise LaunchError(f"the {name} process ended with exit code {exit_code}\n{self._tails()}")

    def _coordinator_command(self) -> list[str]:
        """Return the command without this launch's folder and lifeline."""
        limits = [part for limit in self._request.limits for part in ("--limit", limit)]
        return [sys.executable, "-P", "-m", "remuda.coordinator", *self._common(), *limits]

    def _nanny_arguments(self, workers: WorkerCounts) -> list[str]:
        """Likewise."""
        counts = {
            "--collectors": workers.collectors,
            "--evaluators": workers.evaluators,
            "--learners": workers.learners,
            "--reanalyzers": workers.reanalyzers,
            "--inference": workers.inference,
            "--coordinator-timeout": self._request.settings.coordinator_timeout_s,
        }
        if self._request.sizes is not None:
            del counts["--collectors"]
        numbers = [str(part) for option in counts.items() for part in option]
        numbers += [] if self._request.sizes is None else ["--measure"]
        return ["--give-up", *numbers, *self._common()]

    def _common(self) -> list[str]:
        profile = self._request.profile
        return ["--runs-dir", str(self._request.runs_dir), *([] if profile is None else ["--profile", str(profile)])]

    def _spawn(self, name: str, command: Sequence[str]) -> None:
        assert self._folder is not None
        assert self._lifeline is not None
        reading_end = self._lifeline[0]
        with (self._folder / f"{name}.log").open("ab") as output:
            self._processes[name] = subprocess.Popen(
                [*command, "--connection-file", str(self.connection_file), "--lifeline", str(reading_end)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=child_environment(os.environ),
                pass_fds=(reading_end,),
                start_new_session=True,  # Ctrl-C reaches only this process, which then ends the others in order
            )

    def _break_lifeline(self) -> None:
        if self._lifeline is not None:
            for end in self._lifeline:
                os.close(end)
            self._lifeline = None
        if self._nanny is not None:
            self._nanny.break_lifeline()

    def _remove_folder(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _tails(self) -> str:
        """Return the last lines of output of each process, to explain a crash before a run folder exists."""
        parts: list[str] = []
        for name, process in self._processes.items():
            parts += [f"--- {name} ---", *self._said(name, process).splitlines()[-TAIL_LINES:]]
        return "\n".join(parts)

    def _said(self, name: str, process: subprocess.Popen[bytes]) -> str:
        if self._nanny is not None and process is self._nanny.process:
            return self._nanny.said()
        assert self._folder is not None
        return (self._folder / f"{name}.log").read_text(errors="replace")


def _end_group(group: int, deadline_s: float) -> None:
    """Wait until a process group is empty; kill remaining processes after the deadline."""
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline_s:
            os.killpg(group, 0)
            time.sleep(0.01)
        os.killpg(group, signal.SIGKILL)
