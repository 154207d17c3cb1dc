"""What Slurm says about jobs, read from the text that its commands print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

SQUEUE_FORMAT = "%i|%T|%r|%N|%k"
SACCT_FORMAT = "JobID,State,Reason,NodeList"
Fate = Literal["alive", "done", "failed", "cancelled", "lost"]
"""alive: waits, runs or is about to end; done: ended in order; failed: by its own exit code or for its memory;
cancelled: somebody did that; lost: the cluster took it away."""
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
"""By Slurm's word for the state; every other one is alive."""
UNKNOWN = "UNKNOWN"
"""The state of a job that Slurm does not know any more."""


class SlurmError(Exception):
    """A command of Slurm has failed or says what nobody understands; the text has its own words."""


@dataclass(frozen=True)
class JobState:
    """One job, or one task of an array, at a moment."""

    id: str
    """`12`, or `12_3` for a task."""
    state: str
    """Slurm's word, such as PENDING."""
    reason: str = ""
    """Why it waits, where it does."""
    nodes: str = ""
    """Where it runs."""
    comment: str = ""
    """What the job, or somebody who owns it, has noted."""

    @property
    def fate(self) -> Fate:
        """What that means for whoever needs the job."""
        return _FATES.get(self.state, "alive")

    def __str__(self) -> str:
        if self.state == "PENDING":
            return f"waits ({self.reason})" if self.reason else "waits"
        where = f" on {self.nodes}" if self.nodes else ""
        return f"{self.state.lower().replace('_', ' ')}{where}"


def parse(text: str) -> list[JobState]:
    """The lines of `squeue --format` or `sacct --parsable2`, one job each. Raises SlurmError."""
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
    """The id of a job as `sbatch --parsable` prints it, `12` or `12;cluster`. Raises SlurmError."""
    id = text.strip().partition(";")[0]
    if not id.isdigit():
        raise SlurmError(f"sbatch printed {text.strip()[:200]!r} instead of the id of a job")
    return id


def tasks_of(id: str, jobs: int) -> Sequence[str]:
    """The ids of the tasks of an array."""
    return [f"{id}_{number}" for number in range(jobs)]
