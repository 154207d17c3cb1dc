"""A run as jobs of a Slurm cluster: one job for coordinator and learner, and an array of jobs for each other role."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from remuda.deploy.job import CONNECTION_FILE
from remuda.deploy.launcher import Launcher, LaunchError, LaunchRequest, WorkerCounts
from remuda.deploy.slurm.commands import Fate, JobState, SlurmError, cancel, states, submit, tasks_of
from remuda.deploy.slurm.job import RemoteJobs
from remuda.deploy.slurm.script import SlurmPlan
from remuda.storage.existing_folder import make_private
from remuda.wire.connection_file import ConnectionFileError, read

FOLDER = ".launches"
"""Name of the folder, in the runs folder, with a folder for each launch, visible on all nodes."""
STOP_DEADLINE_S = 60.0
"""Seconds for the end of cancelled jobs; Slurm kills the rest after its KillWait (30 s by default)."""
LOOK_S = 0.2
"""Between two looks for the connection file."""
ENDING_LOOK_S = 1.0
"""Between two questions to Slurm while jobs end."""
TAIL_LINES = 30


class SlurmLauncher(Launcher):
    """Submits the jobs, replaces lost jobs, and cancels the rest at the end.

    Slurm itself restarts jobs after preemption or a node's failure, and a job at the end of its walltime asks for a
    restart. If this process dies, the jobs continue, and the run ends in order.
    """

    def __init__(self, request: LaunchRequest) -> None:
        """Nothing is submitted or written."""
        self._request = request
        self._settings = request.settings.slurm
        own_dir = request.runs_dir / FOLDER / f"{request.name}-{uuid4().hex[:8]}"
        profile = None if request.profile is None else own_dir / "profile"
        self._plan = SlurmPlan(request, own_dir, profile)
        self._workers = WorkerJobs(self._settings.max_replacements)
        self._guests = RemoteJobs(self.connection_file, request.say)
        self._head: JobState | None = None
        self._heads = 0
        """Number of submissions of the coordinator's job."""
        self._next_look_s = 0.0
        self._trouble = ""

    @property
    def connection_file(self) -> Path:
        """Connection file, in a folder visible on all nodes."""
        return self._plan.own_dir / CONNECTION_FILE

    def planned(self, workers: WorkerCounts) -> str:
        """Return each command with the submitted script."""
        commands = {"head": self._plan.submit("head")}
        commands |= {role: self._plan.submit(role, jobs=jobs) for role, jobs in self._arrays(workers).items()}
        return "\n".join(
            f"$ {shlex.join(command)}\n{self._script(kind, workers)}" for kind, command in commands.items()
        )

    def start(self, workers: WorkerCounts, *, given_up: Callable[[], bool]) -> None:
        """Submit everything, and wait in the queue until the coordinator can be reached."""
        arrays = self._arrays(workers)
        make_private(self._plan.own_dir)
        for kind in ("head", *arrays):
            (self._plan.own_dir / f"{kind}.sh").write_text(self._script(kind, workers), encoding="utf-8")
        try:
            self._submit_head()
            for role, jobs in arrays.items():
                for id in self._submit_workers(role, jobs):
                    self._workers.add(role, id)
        except SlurmError as error:
            raise LaunchError(str(error)) from error
        while not self._can_be_reached():
            if given_up():
                raise LaunchError("asked to end before the coordinator had started; its jobs are cancelled")
            self.check()
            time.sleep(LOOK_S)

    def check(self) -> None:
        """Ask Slurm from time to time for the jobs' states, and submit lost jobs again. Raises LaunchError."""
        now_s = time.monotonic()
        if now_s < self._next_look_s:
            return
        try:
            self._look(now_s)
            self._trouble = ""
        except SlurmError as error:  # the run may be fine; Slurm is asked again
            if str(error) != self._trouble:
                self._trouble = str(error)
                self._request.say(f"the jobs are not looked after at the moment: {error}")
        self._next_look_s = time.monotonic() + self._settings.poll_interval_s

    def wait_for_coordinator(self, deadline_s: float) -> bool:
        """Wait until the coordinator's job has ended by itself; False when the deadline passes first."""
        end_s = time.monotonic() + deadline_s
        while self._head is not None and self._head.fate == "alive" and self._head.state != "COMPLETING":
            if time.monotonic() > end_s:
                return False
            with contextlib.suppress(SlurmError):
                self._head = states([self._head.id])[self._head.id]
            time.sleep(ENDING_LOOK_S)
        return True

    def kill(self) -> None:
        """Cancel everything, without waiting."""
        with contextlib.suppress(SlurmError):
            cancel(self._alive())

    def stop(self) -> None:
        """Cancel the remaining jobs, wait for them, and remove the folder of the launch unless needed to explain a
        failure."""
        if self._head is None:
            shutil.rmtree(self._plan.own_dir, ignore_errors=True)
            return
        with contextlib.suppress(SlurmError):
            cancel(self._alive())
        end_s = time.monotonic() + STOP_DEADLINE_S
        while self._alive() and time.monotonic() < end_s:
            with contextlib.suppress(SlurmError):
                self._note(states(self._alive()))
            time.sleep(ENDING_LOOK_S if self._alive() else 0.0)
        left, head, self._head = self._alive(), self._head, None
        if left:
            self._request.say(f"jobs have not ended yet, although they were cancelled: {', '.join(left)}")
        self._keep_profiles()
        if head.fate == "done" or not any(self._plan.own_dir.glob("*.txt")):
            shutil.rmtree(self._plan.own_dir, ignore_errors=True)
        else:
            self._request.say(f"what the jobs printed is in {self._plan.own_dir}")

    # --- submitting ---

    def _arrays(self, workers: WorkerCounts) -> dict[str, int]:
        """Return the number of jobs of each role."""
        return {role: -(-count // self._settings.workers_per_job) for role, count in workers.of_roles.items() if count}

    def _script(self, kind: str, workers: WorkerCounts) -> str:
        return self._plan.head_script(workers.learners) if kind == "head" else self._plan.worker_script(kind)

    def _submit_head(self) -> None:
        self._head = JobState(submit(self._plan.submit("head")), "SUBMITTED")
        self._heads += 1
        self._request.say(f"submitted the coordinator and its learner as job {self._head.id}")

    def _submit_workers(self, role: str, jobs: int) -> list[str]:
        assert self._head is not None
        array = submit(self._plan.submit(role, jobs=jobs, after=self._head.id))
        self._request.say(f"submitted {jobs} {role} job{'s' * (jobs > 1)} as array {array}")
        return [*tasks_of(array, jobs)]

    # --- looking after ---

    def _alive(self) -> list[str]:
        head = [self._head.id] if self._head is not None and self._head.fate == "alive" else []
        return [*head, *self._workers.alive]

    def _look(self, now_s: float) -> None:
        found = states(self._alive())
        for line in self._note(found):
            self._request.say(line)
        head = self._head
        assert head is not None
        if head.fate != "alive":
            self._head_has_ended(head)
        elif head.state == "RUNNING":  # workers without a coordinator would wait at the cluster's expense
            self._guests.look({id: job for id, job in found.items() if id != head.id})
            for role, jobs in self._workers.due(now_s).items():
                self._workers.submitted(role, self._submit_workers(role, jobs))
        if (said := self._workers.exhausted()) is not None:
            self._request.say(said)
        if (missing := self._workers.hopeless) is not None:
            raise LaunchError(f"no {missing} job is left, and none may be submitted again\n{self._tail(missing)}")

    def _note(self, found: dict[str, JobState]) -> list[str]:
        """Note Slurm's job states; returns lines for the user."""
        before, said = self._head, list[str]()
        if before is not None and before.id in found:
            self._head = found[before.id]
            if (before.state, before.reason) != (self._head.state, self._head.reason):
                said = [f"coordinator's job {before.id}: {self._head}"]
        return said + self._workers.note(found, time.monotonic())

    def _head_has_ended(self, head: JobState) -> None:
        """Submit the job again if the cluster took it away; else raise LaunchError."""
        if head.fate == "lost" and self._heads <= self._settings.max_replacements:
            self._submit_head()
            return
        how = "has ended" if head.fate == "done" else str(head)
        raise LaunchError(f"the coordinator's job {head.id}: {how}\n{self._tail('head')}")

    def _can_be_reached(self) -> bool:
        with contextlib.suppress(ConnectionFileError):
            read(self.connection_file)
            return True
        return False

    def _tail(self, kind: str) -> str:
        """Return the last printed lines of the newest job of this kind."""
        outputs = sorted(self._plan.own_dir.glob(f"{kind}_*.txt"), key=lambda path: path.stat().st_mtime)
        if not outputs:
            return "it has printed nothing"
        lines = outputs[-1].read_text(errors="replace").splitlines()[-TAIL_LINES:]
        return "\n".join([f"--- {outputs[-1]} ---", *lines])

    def _keep_profiles(self) -> None:
        written, wanted = self._plan.profile, self._request.profile
        if written is not None and wanted is not None and written.is_dir():
            shutil.copytree(written, wanted, dirs_exist_ok=True)


FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 300.0
STABLE_AFTER_S = 60.0
"""Age in seconds of a job whose end does not lengthen the pause before the next job: the cause is no failure at the
start."""


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
        """Note Slurm's job states; return a line for each disorderly end."""
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
        """Return the number of jobs of each role to submit now in place of lost jobs."""
        left = self.max_replacements - self.replaced
        found: dict[str, int] = {}
        for name, role in self._roles.items():
            if role.lost and role.due_s <= now_s and left:
                found[name] = min(role.lost, left)
                left -= found[name]
        return found

    def submitted(self, role: str, ids: list[str]) -> None:
        """Note jobs submitted in place of lost jobs."""
        for id in ids:
            self.add(role, id)
        self._roles[role].lost -= len(ids)
        self.replaced += len(ids)

    def exhausted(self) -> str | None:
        """Return a line, once, if jobs are missing beyond the allowed replacements."""
        missing = {name: role.lost for name, role in self._roles.items() if role.lost}
        if self._told or not missing or self.replaced < self.max_replacements:
            return None
        self._told = True
        lost = ", ".join(f"{count} {name}" for name, count in missing.items())
        return f"jobs are missing that are not submitted again ({lost}): {self.replaced} have been (max_replacements)"

    @property
    def hopeless(self) -> str | None:
        """Return the name of a required role without present or future jobs; None if every role can continue."""
        if self.replaced < self.max_replacements:
            return None
        needed = (name for name in self._roles if name != "reanalyzer")
        return next((name for name in needed if self._roles[name].lost and not self.count(name)), None)
