"""A job of Slurm, as `python -m remuda.deploy.slurm.job`, also on a node without the folder of the launch.

Slurm starts a job again after a notice. Without the folder, job and launch find each other by the comment of the job.
Other users can read comments, so they hold no secret: first the job's public key, then the same key with the address
and the public key of the coordinator. Only the job's owner and administrators of Slurm can write them.
"""

from __future__ import annotations

import argparse
import base64
import os
import re
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import zmq

from remuda.deploy.job import CONNECTION_FILE, EXIT_FAILED, EXIT_PREEMPTED, new_parser, run_apart, run_job, say
from remuda.deploy.slurm.commands import JobState, SlurmError, comment_of, note, own_job, requeue
from remuda.storage.atomic import write_bytes
from remuda.storage.held_folder import HeldFolder
from remuda.wire.connection_file import ConnectionFileError, read
from remuda.wire.keys.folder import FOLDER, KEY_FILE, HerdKeys, caller_keys
from remuda.wire.keys.pair import new_pair
from remuda.wire.keys.secret_file import MODE, KeyFileError, write_secret
from remuda.wire.sockets import DealerSocket

_ASKS, _ANSWER = "remuda-key:", "remuda-connection:"
_PUBLIC = re.compile(r"[0-9a-f]{64}")
_PREFIX = "slurm-"
"""Prefix of jobs' names in the coordinator's list of keys."""
FIRST_LOOK_S, LONGEST_LOOK_S = 1.0, 10.0
"""Seconds between two questions to Slurm for the answer; doubled each time up to the second number."""
CHECK_S = 10.0
"""Seconds between two attempts to reach the coordinator. Slurm is asked only after a failed attempt."""
KNOCK_S = 2.0
"""Seconds for the coordinator to accept a connection."""


@dataclass(frozen=True)
class Answer:
    """Access for a job."""

    public: str
    """The authorized key. A restarted job has another key, and ignores this answer."""
    connection: bytes
    """The content of the connection file."""


def key_comment(public: str) -> str:
    """Return the comment of a job that requests access for this key."""
    return _ASKS + public


def key_in(comment: str) -> str | None:
    """Return the public key in a job's comment; None if the comment contains no key."""
    public = comment.removeprefix(_ASKS)
    return public if comment.startswith(_ASKS) and _PUBLIC.fullmatch(public) else None


def answer_comment(answer: Answer) -> str:
    """Return the comment of a job with access."""
    return f"{_ANSWER}{answer.public}:{base64.urlsafe_b64encode(answer.connection).decode('ascii')}"


def answer_in(comment: str) -> Answer | None:
    """Return the answer in a job's comment; None if the comment contains no answer."""
    public, _, connection = comment.removeprefix(_ANSWER).partition(":")
    if not (comment.startswith(_ANSWER) and _PUBLIC.fullmatch(public)):
        return None
    try:
        return Answer(public, base64.b64decode(connection, altchars=b"-_", validate=True))
    except ValueError:  # binascii.Error is one, too
        return None


class RemoteJobs:
    """Answers jobs through their comments, after each query of Slurm."""

    def __init__(self, connection_file: Path, say: Callable[[str], None]) -> None:
        self._connection_file = connection_file
        self._say = say
        self._keys: HerdKeys | None = None
        self._told = ""

    def look(self, jobs: Mapping[str, JobState]) -> None:
        """Answer new requests, and update answers after a move of the coordinator. A problem is reported once, and the
        work is tried again at the next call."""
        running = [job for job in jobs.values() if job.state == "RUNNING"]
        self._let_out(jobs)
        waiting = [job for job in running if key_in(job.comment) or answer_in(job.comment)]
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
        except (ConnectionFileError, OSError) as error:  # the coordinator is restarting, or its disk does not answer
            trouble = f"jobs that do not see {self._connection_file.parent} wait: {error}"
        if trouble not in ("", self._told):
            self._say(trouble)
        self._told = trouble

    def _let_out(self, jobs: Mapping[str, JobState]) -> None:
        """Revoke the keys of ended jobs: a killed job leaves its key on the node."""
        if self._keys is None:
            return
        for name in self._keys.names:
            job = jobs.get(name.removeprefix(_PREFIX))
            if job is not None and job.fate != "alive":
                self._keys.let_out(name)

    def _answer(self, job: JobState, connection: bytes) -> None:
        public = key_in(job.comment)
        if public is not None:
            self._keys = self._keys or HerdKeys(self._connection_file.parent / FOLDER)
            self._keys.let_in(f"{_PREFIX}{job.id}", public)
            self._say(f"job {job.id}{f' on {job.nodes}' if job.nodes else ''} works without the shared folder")
        elif (former := answer_in(job.comment)) is not None and former.connection != connection:
            public = former.public
        else:
            return
        note(job.id, answer_comment(Answer(public, connection)))


class NotLetInError(Exception):
    """No answer came in time; the text names the remedy."""


class RemoteJob:
    """A private folder on this node (mode 0700) with a connection file and a key; removed at the end."""

    def __init__(self, job: str, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        """`job`: Slurm's id of this job."""
        self._job = job
        self._say = say
        self._clock = clock
        self._over = threading.Event()
        self._watch: threading.Thread | None = None
        self._public = ""
        """Public key, once requested."""
        self._held = HeldFolder("remuda-job-", job)
        self.folder = self._held.path

    @property
    def connection_file(self) -> Path:
        """Connection file of the coordinator, once `ask` has returned."""
        return self.folder / CONNECTION_FILE

    def ask(self, within_s: float, given_up: Callable[[], bool], pause: Callable[[float], None] = time.sleep) -> None:
        """Make a key, publish its public part for the launch, and wait for the answer. Raises NotLetInError."""
        pair = new_pair(f"job-{self._job}")
        write_secret(self.folder / "key", pair)
        os.environ[KEY_FILE] = str(self.folder / "key")  # a path; the processes of this job read it
        self._public = pair.public
        end_s, look_s, trouble = self._clock() + within_s, FIRST_LOOK_S, ""
        while self._clock() < end_s and not given_up():
            try:
                comment = comment_of(self._job)
                if self._take_answer(comment):
                    return
                if key_in(comment) != self._public:  # no request yet, or an answer to this job before its restart
                    note(self._job, key_comment(self._public))
            except SlurmError as error:
                if str(error) != trouble:
                    trouble = str(error)
                    self._say(f"waiting to be let in: {trouble}")
            pause(look_s)
            look_s = min(2 * look_s, LONGEST_LOOK_S)
        raise NotLetInError(
            "this node does not see the folder of the launch, and no answer gave this job access: keep `remuda launch` "
            "running, which answers jobs on such nodes"
        )

    def watch(self) -> None:
        """From now on look, in the background, whether the coordinator has moved."""
        self._watch = threading.Thread(target=self._keep_looking, name="remuda-guest", daemon=True)
        self._watch.start()

    def look(self) -> None:
        """Look for a moved coordinator, if the known address no longer answers."""
        if not _answers(self.connection_file):
            try:
                self._take_answer(comment_of(self._job))
            except (SlurmError, OSError) as error:
                if not self._over.is_set():
                    self._say(f"it is not known whether the coordinator has moved: {error}")

    def _keep_looking(self) -> None:
        while not self._over.wait(CHECK_S):
            self.look()

    def _take_answer(self, comment: str) -> bool:
        """Write an answer to the job's request to the connection file; returns False for another comment."""
        found = answer_in(comment)
        if found is None or found.public != self._public:
            return False
        if not self.connection_file.exists() or self.connection_file.read_bytes() != found.connection:
            write_bytes(self.connection_file, found.connection, durable=False, mode=MODE)
        return True

    def __enter__(self) -> RemoteJob:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._watch is not None:
            self._watch.join(KNOCK_S)
        self._held.remove()


def _answers(connection_file: Path) -> bool:
    """True if the coordinator listens at its address, and accepts this job."""
    try:
        found = read(connection_file)
        identity = f"knock-{secrets.token_hex(8)}".encode()
        with closing(DealerSocket(found.address, identity, caller_keys(found, "worker"))) as door:
            end_s = time.monotonic() + KNOCK_S
            while not door.times_let_in and time.monotonic() < end_s:
                door.wait(KNOCK_S / 10)
            return door.times_let_in > 0
    except (ConnectionFileError, OSError, zmq.ZMQError):
        return False


def main() -> None:
    """Entry point."""
    parser = new_parser()
    parser.add_argument(
        "--guest", type=Path, metavar="FILE", help="this node does not see the folder of the launch; output is in FILE"
    )
    parser.add_argument("--requeue", action="store_true", help="after SIGUSR1 have Slurm start this job again")
    arguments = parser.parse_args()
    exit_code, noticed = run_job(arguments) if arguments.guest is None else _run_guest(arguments)
    if noticed and arguments.requeue:
        say(requeue(os.environ))
    if arguments.guest is not None and exit_code in (0, EXIT_PREEMPTED):
        arguments.guest.unlink(missing_ok=True)
    sys.exit(exit_code)


def _run_guest(arguments: argparse.Namespace) -> tuple[int, bool]:
    """Wait for access, then run the workers; see run_job."""
    taken: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, lambda number, frame: taken.append(number))
    with RemoteJob(own_job(os.environ), say) as guest:
        try:
            guest.ask(arguments.coordinator_timeout, lambda: bool(taken))
        except NotLetInError as error:
            say(str(error))
            return (EXIT_PREEMPTED, signal.SIGUSR1 in taken) if taken else (EXIT_FAILED, False)
        if taken:  # a signal came while this job waited for the answer
            return EXIT_PREEMPTED, signal.SIGUSR1 in taken
        guest.watch()
        return run_apart(guest.folder, arguments)


if __name__ == "__main__":
    main()
