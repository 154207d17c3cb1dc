"""The jobs of a launch, and jobs to submit again. Pure: the inputs are Slurm's job states and a clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from remuda.deploy.slurm.commands import Fate, JobState

FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 300.0
STABLE_AFTER_S = 60.0
"""Jobs that ran for this long do not lengthen the pause before the next ones: their end has another cause than a
failure of every job at its start."""


@dataclass
class _Job:
    role: str
    fate: Fate = "alive"
    running_since_s: float | None = None


@dataclass
class _Role:
    lost: int = 0
    """Jobs to submit again."""
    early: int = 0
    """Number of losses in a row soon after a start."""
    due_s: float = 0.0


@dataclass
class WorkerJobs:
    """The jobs of all workers of a launch."""

    max_replacements: int
    replaced: int = 0
    _jobs: dict[str, _Job] = field(default_factory=dict[str, _Job])
    _roles: dict[str, _Role] = field(default_factory=dict[str, _Role])
    _told: bool = False

    def add(self, role: str, id: str) -> None:
        """A job has been submitted."""
        self._jobs[id] = _Job(role)
        self._roles.setdefault(role, _Role())

    @property
    def alive(self) -> list[str]:
        """Ids of unfinished jobs."""
        return [id for id, job in self._jobs.items() if job.fate == "alive"]

    def count(self, role: str) -> int:
        """Return the number of a role's unfinished jobs."""
        return sum(job.role == role and job.fate == "alive" for job in self._jobs.values())

    def note(self, states: Mapping[str, JobState], now_s: float) -> list[str]:
        """Note Slurm's job states; returns a line for each job that has ended out of order."""
        said: list[str] = []
        for id, found in states.items():
            job = self._jobs.get(id)
            if job is None or job.fate != "alive":
                continue
            job.fate = found.fate
            if found.state == "RUNNING" and job.running_since_s is None:
                job.running_since_s = now_s
            elif found.state == "PENDING":
                job.running_since_s = None  # Slurm starts it again
            if job.fate not in ("alive", "done"):
                said.append(f"{job.role} job {id} ended: {found}")
                self._lose(job, now_s)
        return said

    def _lose(self, job: _Job, now_s: float) -> None:
        role = self._roles[job.role]
        role.lost += 1
        if job.running_since_s is not None and now_s - job.running_since_s >= STABLE_AFTER_S:
            role.early, role.due_s = 0, max(role.due_s, now_s)
            return
        if role.lost == 1:  # several that are lost together count once
            role.due_s = now_s + min(FIRST_PAUSE_S * 2**role.early, LONGEST_PAUSE_S)
            role.early += 1

    def due(self, now_s: float) -> dict[str, int]:
        """Return the number of jobs of each role to submit now in place of lost ones."""
        left = self.max_replacements - self.replaced
        found: dict[str, int] = {}
        for name, role in self._roles.items():
            if role.lost and role.due_s <= now_s and left:
                found[name] = min(role.lost, left)
                left -= found[name]
        return found

    def submitted(self, role: str, ids: list[str]) -> None:
        """Note jobs that were submitted in place of lost ones."""
        for id in ids:
            self.add(role, id)
        self._roles[role].lost -= len(ids)
        self.replaced += len(ids)

    def exhausted(self) -> str | None:
        """Return a line, once, if jobs are missing that may not be replaced."""
        missing = {name: role.lost for name, role in self._roles.items() if role.lost}
        if self._told or not missing or self.replaced < self.max_replacements:
            return None
        self._told = True
        lost = ", ".join(f"{count} {name}" for name, count in missing.items())
        return f"jobs are missing that are not submitted again ({lost}): {self.replaced} have been (max_replacements)"

    @property
    def hopeless(self) -> str | None:
        """A role that the run needs and that has no job left and gets none; None without one."""
        if self.replaced < self.max_replacements:
            return None
        needed = (name for name in self._roles if name != "reanalyzer")
        return next((name for name in needed if self._roles[name].lost and not self.count(name)), None)
