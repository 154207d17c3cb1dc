"""The runs that tests look at: each is made once and read many times."""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from remuda.tests.parallel.command import Command, Ended
from remuda.tests.parallel.reading import pids, texts
from remuda.tests.parallel.user_folder import FILMED, HELD, UserFolder
from remuda.tests.patience import HANG_S, until
from remuda.tests.warm.popen import Popen


@dataclass(frozen=True)
class Finished:
    """A run that went from start to end undisturbed."""

    run: Path
    user: UserFolder
    command: Command
    ended: Ended


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """One short run, started inside a git repository with a change that is not committed; its evaluations are filmed.

    It is the real command, as a user starts it. It would be over in half a second, and whoever joins it later than the
    others would have no part in it. So its environments wait until both collectors have worked and the evaluator has
    evaluated the policy to start from.
    """
    place = tmp_path_factory.mktemp("finished")
    user = UserFolder.make(place / "user", HELD | FILMED)
    user.hold()
    _commit(user.root)
    user.config.write_text(user.config.read_text() + "# not committed\n")
    run = place / "runs" / "horse"
    launch = ("launch", user.config, "--run-dir", run)
    command = Command(place / "scratch", user.root, *launch, start=subprocess.Popen)
    try:
        wait_until_held(command, run, user)
        evaluated, log = "evaluation of iteration_0.pth.tar", run / "log" / "commander" / "commander_logger.txt"
        until(lambda: command.process.poll() is not None or texts(log, evaluated), "the initial policy is evaluated")
        user.release()
        ended = command.ended()
        assert ended.code == 0, ended.err
        return Finished(run, user, command, ended)
    finally:
        command.end()


@pytest.fixture
def launched(tmp_path: Path) -> Generator[Launcher]:
    """Starts runs, and ends what a test has left running."""
    launcher = Launcher(tmp_path, [])
    yield launcher
    for command in launcher.commands:
        command.end()


@pytest.fixture
def really_launched(launched: Launcher) -> Launcher:
    """As `launched`, and every process is started by its real command."""
    return replace(launched, start=subprocess.Popen)


@dataclass(frozen=True)
class Launcher:
    """Starts commands in scratch folders below `place`."""

    place: Path
    commands: list[Command]
    start: type[subprocess.Popen[bytes]] = Popen
    """See Command."""

    def __call__(self, cwd: Path, *arguments: object) -> Command:
        command = Command(self.place / f"scratch{len(self.commands)}", cwd, *arguments, start=self.start)
        self.commands.append(command)
        return command


def wait_until_held(command: Command, run: Path, user: UserFolder) -> None:
    """Until both collectors wait in their environments: each has worked, and the run cannot end."""

    def held() -> bool:
        collectors = pids(run, "collector")
        return command.process.poll() is not None or (len(collectors) == 2 and user.held(collectors))

    until(held, "both collectors wait in their environments")


def _commit(root: Path) -> None:
    who = ("-c", "user.name=A User", "-c", "user.email=user@example.com", "-c", "commit.gpgsign=false")
    for arguments in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "my horse")):
        subprocess.run(["git", *who, *arguments], cwd=root, check=True, timeout=HANG_S)
