"""The launch's side of jobs whose nodes do not see its folder: lets them in, and tells them of the coordinator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from remuda.deploy.herd_keys import HerdKeys
from remuda.deploy.slurm.commands import note
from remuda.deploy.slurm.introduction import Answer, answered, answering, asks
from remuda.deploy.slurm.states import JobState, SlurmError
from remuda.wire.connection_file import ConnectionFileError, read
from remuda.wire.keys.folder import FOLDER
from remuda.wire.keys.secret_file import KeyFileError

_PREFIX = "slurm-"
"""What the names of jobs begin with in the coordinator's list of keys."""


class Guests:
    """Looks at the comments of all jobs whenever Slurm has told how they stand."""

    def __init__(self, connection_file: Path, say: Callable[[str], None]) -> None:
        self._connection_file = connection_file
        self._say = say
        self._keys: HerdKeys | None = None
        self._told = ""

    def look(self, jobs: Mapping[str, JobState]) -> None:
        """Answer the jobs that ask, and those whose answer names a coordinator that has moved. What cannot be done now
        is told once, and done at another look."""
        running = [job for job in jobs.values() if job.state == "RUNNING"]
        self._let_out(jobs)
        waiting = [job for job in running if asks(job.comment) or answered(job.comment)]
        if not waiting:
            return
        trouble = ""
        try:
            read(self._connection_file)
            connection = self._connection_file.read_bytes()
            for job in waiting:
                try:
                    self._answer(job, connection)
                except (SlurmError, KeyFileError) as error:  # it may have ended meanwhile; the others are answered
                    trouble = f"job {job.id} cannot be told where the coordinator is: {error}"
        except (ConnectionFileError, OSError) as error:  # the coordinator is about to start again, or its disk is away
            trouble = f"jobs that do not see {self._connection_file.parent} wait: {error}"
        if trouble not in ("", self._told):
            self._say(trouble)
        self._told = trouble

    def _let_out(self, jobs: Mapping[str, JobState]) -> None:
        """A key of a job that has ended opens nothing any more: a job that was killed has left it on its node."""
        if self._keys is None:
            return
        for name in self._keys.names:
            job = jobs.get(name.removeprefix(_PREFIX))
            if job is not None and job.fate != "alive":
                self._keys.let_out(name)

    def _answer(self, job: JobState, connection: bytes) -> None:
        public = asks(job.comment)
        if public is not None:
            self._keys = self._keys or HerdKeys(self._connection_file.parent / FOLDER)
            self._keys.let_in(f"{_PREFIX}{job.id}", public)
            self._say(f"job {job.id}{f' on {job.nodes}' if job.nodes else ''} works without the shared folder")
        elif (former := answered(job.comment)) is not None and former.connection != connection:
            public = former.public
        else:
            return
        note(job.id, answering(Answer(public, connection)))
