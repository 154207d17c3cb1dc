"""The commands of Slurm, each with a deadline."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence

from remuda.deploy.slurm.states import SACCT_FORMAT, SQUEUE_FORMAT, UNKNOWN, JobState, SlurmError, parse, submitted

DEADLINE_S = 30.0
_NO_SUCH_JOB = "Invalid job id specified"
"""What squeue says if it knows none of the jobs that it is asked about."""


def submit(command: Sequence[str]) -> str:
    """Submit a script; returns the id of the job. Raises SlurmError."""
    return submitted(_said(command))


def states(ids: Sequence[str]) -> dict[str, JobState]:
    """How these jobs stand, each in the answer; UNKNOWN for what even the accounting does not know. Raises
    SlurmError."""
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
    """Cancel these jobs; those that are over are left alone. Raises SlurmError."""
    if ids:
        _said(["scancel", "--quiet", *ids])


def comment_of(id: str) -> str:
    """What is noted at a job; empty if nothing is. Raises SlurmError."""
    said = _said(["squeue", "--array", "--noheader", f"--jobs={id}", f"--format={SQUEUE_FORMAT}"])
    return next((job.comment for job in parse(said) if job.id == id), "")


def note(id: str, comment: str) -> None:
    """Note something at a job, in place of what was noted before. Raises SlurmError."""
    _said(["scontrol", "update", f"JobId={id}", f"Comment={comment}"])


def _accounted(ids: Sequence[str]) -> dict[str, JobState]:
    """Jobs that squeue has forgotten, from the accounting database. Many clusters have none."""
    sacct = ["sacct", "--allocations", "--noheader", "--parsable2", f"--jobs={','.join(ids)}"]
    with contextlib.suppress(SlurmError):
        return {job.id: job for job in parse(_said([*sacct, f"--format={SACCT_FORMAT}"]))}
    return {}


def _said(command: Sequence[str]) -> str:
    """What the command prints. Raises SlurmError with its own words if it fails."""
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
