"""The `remuda` command as a user types it, and every process that comes of it."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from remuda.tests.patience import HANG_S, until
from remuda.tests.warm.forking import NAME
from remuda.tests.warm.popen import Popen
from remuda.tests.warm.program import REMUDA


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str


class Command:
    """A `remuda` command that runs; its temporary files have their own folder, by which its processes are known."""

    def __init__(
        self, scratch: Path, cwd: Path, *arguments: object, start: type[subprocess.Popen[bytes]] = Popen
    ) -> None:
        """`start`: subprocess.Popen where it must be the real command, not one that is forked."""
        scratch.mkdir(parents=True)
        self.scratch = scratch
        self._out, self._err = scratch.with_suffix(".out"), scratch.with_suffix(".err")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("REMUDA_")}
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = start(
                [REMUDA, *map(str, arguments)],
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**environment, "REMUDA_PAGE": "0", "TMPDIR": str(scratch), "COLUMNS": "200"},
            )

    def said(self) -> str:
        """What it has told so far, beside its results."""
        return self._err.read_text()

    def ended(self) -> Ended:
        """Wait until the command is over."""
        code = self.process.wait(HANG_S)
        return Ended(code, self._out.read_text(), self._err.read_text())

    @property
    def coordinator_pid(self) -> int:
        """Of the coordinator of a `launch`, as its connection file says."""
        (file,) = self.scratch.glob("remuda-????????/connection.json")
        pid: int = json.loads(file.read_text())["pid"]
        return pid

    def family(self) -> list[psutil.Process]:
        """The processes it started that live, and those that they started: temporary files of all go to its folder."""
        everybody = psutil.process_iter()
        return [each for each in everybody if each.pid != self.process.pid and _uses(each, str(self.scratch))]

    def family_of(self, module: str) -> list[psutil.Process]:
        """Those that run a module of Remuda."""
        return [each for each in self.family() if module in _words(each)]

    def leftovers(self) -> list[Path]:
        """Temporary files of Remuda's (torch keeps a cache there for the next time)."""
        return [path for path in self.scratch.iterdir() if not path.name.startswith("torchinductor_")]

    def kill_all(self) -> None:
        """SIGKILL for the command and everybody whom it has started; returns once they are dead."""
        self.end()
        until(lambda: not self.family(), "everything is dead")

    def end(self) -> None:
        """Whatever a test has left running."""
        for process in self.family():
            with suppress(psutil.NoSuchProcess):  # the command ends them all when it sees that one of them is dead
                process.kill()
        self.process.kill()
        self.process.wait()


def _words(process: psutil.Process) -> list[str]:
    """The command of a process; nothing of one that is gone."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def _uses(process: psutil.Process, scratch: str) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE or NAME in process.cmdline():
            return False
        return process.environ().get("TMPDIR") == scratch
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False
