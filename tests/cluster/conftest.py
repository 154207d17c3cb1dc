"""A cluster for all tests of this folder, and what runs on it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from remuda.tests.cluster.slurm_cluster import SlurmCluster, missing_programs, slurm_cluster
from remuda.tests.parallel.command import Command
from remuda.tests.parallel.user_folder import UserFolder


@pytest.fixture(scope="session")
def cluster() -> Generator[SlurmCluster]:
    """Four nodes on this machine, of which one does not see the runs folder. Where Slurm is not installed the tests are
    skipped, and say what is missing."""
    missing = missing_programs()
    if missing:
        pytest.skip(f"{', '.join(missing)}: apt-get install slurmctld slurmd slurm-client munge")
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))  # short: sockets have at most 107 characters
    folder.chmod(0o755)
    try:
        with slurm_cluster(folder / "c") as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class SlurmRun:
    """A run that `remuda launch` has started on the cluster."""

    cluster: SlurmCluster
    user: UserFolder
    run: Path
    command: Command

    @property
    def launches(self) -> Path:
        """The folder with a folder for each launch."""
        return self.run.parent / ".launches"

    @property
    def own_dir(self) -> Path:
        """The folder of this launch."""
        [found] = self.launches.iterdir()
        return found

    def going_on(self) -> bool:
        """Raises AssertionError with what was printed if the command has ended."""
        if self.command.process.poll() is not None:
            ended = self.command.ended()
            raise AssertionError(
                f"it has ended with {ended.code}:\n{ended.out}\n{ended.err}\n{self.cluster.describe()}"
            )
        return True


class Starter:
    """Starts runs, and ends what a test has left running."""

    def __init__(self, cluster: SlurmCluster, place: Path) -> None:
        self._cluster, self._place, self._runs = cluster, place, list[SlurmRun]()

    def __call__(self, user: UserFolder, *options: str, runs: Path | None = None) -> SlurmRun:
        """`options` go to `remuda launch`, after those that make the tests quick; `runs` is the runs folder."""
        number = len(self._runs)
        run = (runs or self._place / "runs") / f"horse{number}"
        quick = ("--set", "launch.slurm.poll_interval_s=0.5")
        arguments = ("launch", user.config, "--run-dir", run, *quick, *options)
        command = Command(self._place / f"scratch{number}", user.root, *arguments)
        self._runs.append(SlurmRun(self._cluster, user, run, command))
        return self._runs[-1]

    def end(self) -> None:
        """Whatever is left."""
        for run in self._runs:
            run.command.end()
        self._cluster.says("scancel", "--state=PENDING", "--user", str(os.geteuid()))
        self._cluster.says("scancel", "--user", str(os.geteuid()))


@pytest.fixture
def launched(cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Starter]:
    """Starts runs; the commands of Slurm are found by them."""
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, cluster.environment[name])
    starter = Starter(cluster, tmp_path)
    try:
        yield starter
    finally:
        starter.end()
