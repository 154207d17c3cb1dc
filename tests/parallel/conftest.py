"""The runs that tests look at: each is made once and read many times."""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from remuda.tests.parallel.command import Command, Ended
from remuda.tests.parallel.user_folder import UserFolder


@dataclass(frozen=True)
class Finished:
    """A run that went from start to end undisturbed."""

    run: Path
    user: UserFolder
    command: Command
    ended: Ended


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """One short run, started inside a git repository with a change that is not committed."""
    place = tmp_path_factory.mktemp("finished")
    user = UserFolder.make(place / "user")
    _commit(user.root)
    user.config.write_text(user.config.read_text() + "# not committed\n")
    run = place / "runs" / "horse"
    command = Command(place / "scratch", user.root, "launch", user.config, "--run-dir", run)
    try:
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


@dataclass(frozen=True)
class Launcher:
    """Starts commands in scratch folders below `place`."""

    place: Path
    commands: list[Command]

    def __call__(self, cwd: Path, *arguments: object) -> Command:
        command = Command(self.place / f"scratch{len(self.commands)}", cwd, *arguments)
        self.commands.append(command)
        return command


def _commit(root: Path) -> None:
    who = ("-c", "user.name=A User", "-c", "user.email=user@example.com", "-c", "commit.gpgsign=false")
    for arguments in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "my horse")):
        subprocess.run(["git", *who, *arguments], cwd=root, check=True, timeout=20)
