"""The commands of Slurm, each with a deadline, and the printed states of jobs."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

SQUEUE_FORMAT = "%i|%T|%r|%N|%k"
SACCT_FORMAT = "JobID,State,Reason,NodeList"
Fate = Literal["alive", "done", "failed", "cancelled", "lost"]
"""alive: waits, runs or is about to end; done: ended in order; failed: by exit code or for lack of memory; cancelled:
by a user; lost: taken away by the cluster."""
_FATES: dict[str, Fate] = {
    "COMPLETED": "done",
    "FAILED": "failed",
    "OUT_OF_MEMORY": "failed",
    "DEADLINE": "failed",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
    "TIMEOUT": "lost",
    "PREEMPTED": "lost",
    "NODE_FAIL": "lost",
    "BOOT_FAIL": "lost",
    "UNKNOWN": "lost",
}
"""Fate of a job by Slurm's name of its state; any other state is alive."""
UNKNOWN = "UNKNOWN"
"""State of a job forgotten by Slurm."""
DEADLINE_S = 30.0
_NO_SUCH_JOB = "Invalid job id specified"
"""squeue's message if it knows none of the requested jobs."""


class SlurmError(Exception):
    """A command of Slurm failed, or printed unknown output, quoted in the text."""


@dataclass(frozen=True)
class JobState:
    """State of a job, or one task of an array."""

    id: str
    """`12`, or `12_3` for a task."""
    state: str
    """Slurm's word, such as PENDING."""
    reason: str = ""
    """Reason of a wait."""
    nodes: str = ""
    """Nodes of a running job."""
    comment: str = ""
    """Comment from the job or its owner."""

    @property
    def fate(self) -> Fate:
        """Meaning of the state for the launch."""
        return _FATES.get(self.state, "alive")

    def __str__(self) -> str:
        if self.state == "PENDING":
            return f"waits ({self.reason})" if self.reason else "waits"
        where = f" on {self.nodes}" if self.nodes else ""
        return f"{self.state.lower().replace('_', ' ')}{where}"


def parse(text: str) -> list[JobState]:
    """Return the jobs in the lines of `squeue --format` or `sacct --parsable2`. Raises SlurmError."""
    return [_job(line) for line in text.splitlines() if line.strip()]


def _job(line: str) -> JobState:
    fields = [field.strip() for field in line.split("|", 4)]
    if len(fields) not in (4, 5) or not fields[0][:1].isdigit() or not fields[1]:
        raise SlurmError(f"Slurm describes a job in a way that is not understood: {line[:200]!r}")
    state = fields[1].split()[0]  # sacct has `CANCELLED by 1000`
    return JobState(
        fields[0], state, *("" if field in ("None", "(null)", "None assigned") else field for field in fields[2:])
    )


def submitted(text: str) -> str:
    """Return the job id from the output of `sbatch --parsable`, `12` or `12;cluster`. Raises SlurmError."""
    id = text.strip().partition(";")[0]
    if not id.isdigit():
        raise SlurmError(f"sbatch printed {text.strip()[:200]!r} instead of the id of a job")
    return id


def tasks_of(id: str, jobs: int) -> Sequence[str]:
    """The ids of the tasks of an array."""
    return [f"{id}_{number}" for number in range(jobs)]


def submit(command: Sequence[str]) -> str:
    """Submit a script; returns the id of the job. Raises SlurmError."""
    return submitted(_said(command))


def states(ids: Sequence[str]) -> dict[str, JobState]:
    """Return the state of each job; UNKNOWN for jobs forgotten even by the accounting. Raises SlurmError."""
    if not ids:
        return {}
    jobs = ",".join(sorted({id.partition("_")[0] for id in ids}))
    squeue = ["squeue", "--array", "--states=all", "--noheader", f"--jobs={jobs}", f"--format={SQUEUE_FORMAT}"]
    try:
        known = {job.id: job for job in parse(_said(squeue))}
    except SlurmError as error:
        if _NO_SUCH_JOB not in str(error):
            raise
        known = {}
    missing = [id for id in ids if id not in known]
    if missing:
        known |= _accounted(missing)
    return {id: known.get(id, JobState(id, UNKNOWN)) for id in ids}


def cancel(ids: Sequence[str]) -> None:
    """Cancel these jobs; finished jobs are left alone. Raises SlurmError."""
    if ids:
        _said(["scancel", "--quiet", *ids])


def comment_of(id: str) -> str:
    """Return the comment of a job; empty without one. Raises SlurmError."""
    said = _said(["squeue", "--array", "--noheader", f"--jobs={id}", f"--format={SQUEUE_FORMAT}"])
    return next((job.comment for job in parse(said) if job.id == id), "")


def note(id: str, comment: str) -> None:
    """Replace the comment of a job. Raises SlurmError."""
    _said(["scontrol", "update", f"JobId={id}", f"Comment={comment}"])


def _accounted(ids: Sequence[str]) -> dict[str, JobState]:
    """Return jobs forgotten by squeue, from the accounting database. Many clusters have none."""
    sacct = ["sacct", "--allocations", "--noheader", "--parsable2", f"--jobs={','.join(ids)}"]
    with contextlib.suppress(SlurmError):
        return {job.id: job for job in parse(_said([*sacct, f"--format={SACCT_FORMAT}"]))}
    return {}


def _said(command: Sequence[str]) -> str:
    """Return the output of the command. Raises SlurmError with the output on failure."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    except FileNotFoundError:
        raise SlurmError(
            f"{command[0]} is not found: type this on a machine from which jobs of the Slurm cluster are submitted"
        ) from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{command[0]} has not answered for {DEADLINE_S:g} s") from None
    except OSError as error:
        raise SlurmError(f"{command[0]} cannot be run: {error.strerror}") from error
    if ended.returncode:
        said = ended.stderr.strip() or ended.stdout.strip() or f"exit code {ended.returncode}"
        raise SlurmError(f"{command[0]} says: {said}")
    return ended.stdout


def own_job(environment: Mapping[str, str]) -> str:
    """Return the id of the job with this environment, `<array>_<task>` for a task of an array: the plain id of the
    last task is also the id of the array. Raises KeyError outside a job."""
    array, task = environment.get("SLURM_ARRAY_JOB_ID"), environment.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else environment["SLURM_JOB_ID"]


def requeue(environment: Mapping[str, str]) -> str:
    """Ask for a restart of this job; returns the result, for the job's output. Slurm then ends the job."""
    try:
        job = own_job(environment)
    except KeyError:
        return "not requeued: this is no job of Slurm"
    try:
        _said(["scontrol", "requeue", job])
    except SlurmError as error:
        return f"job {job} is not requeued: {error}"
    return f"job {job} is requeued"
