"""The scripts of a launch on Slurm: from settings to text. Reads only its template."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from remuda.config.launching import SlurmConfig
from remuda.deploy.launcher import LaunchError, LaunchRequest

HANDING_IN_ENDS_S = 10
"""Seconds before the end of the walltime at which everything must have ended, for the job to be requeued."""
SUBMIT = ("sbatch", "--parsable", "--export=NIL")
"""Command to submit a job. With NIL, Slurm does not keep the user's environment, with possible secrets."""
_FOLDER = Path(__file__).parent / "templates"
_PLACE = re.compile(r"@\{([a-z_]+)\}")


@dataclass(frozen=True)
class SlurmPlan:
    """Inputs for the scripts of a launch."""

    request: LaunchRequest
    own_dir: Path
    """Folder of this launch, visible on all nodes: scripts, connection file, keys, and output of jobs."""
    profile: Path | None = None
    """Folder for profiles, if any."""
    python: str = sys.executable

    def __post_init__(self) -> None:
        """Raises LaunchError for a folder whose name cannot stand in a script."""
        if any(mark in str(self.own_dir) for mark in '"\\\n'):
            raise LaunchError(f"{self.own_dir} cannot be named in a script of Slurm: choose another --runs-dir")

    @property
    def _settings(self) -> SlurmConfig:
        return self.request.settings.slurm

    def output(self, kind: str) -> Path:
        """Return the output file of jobs of this kind, with Slurm's %j in place of the job's id; for workers, where
        visible."""
        return self.own_dir / f"{kind}_%j.txt"

    def _slurms_output(self, kind: str) -> str:
        """Return Slurm's own output file. Slurm fails a job whose node lacks this folder, so workers' scripts open the
        file themselves."""
        path = self.output(kind)
        return f'"{str(path.parent).replace("%", "%%")}/{path.name}"' if kind == "head" else "/dev/null"

    def _opening(self, kind: str) -> str:
        """Return the lines of a workers' script that choose the output and report a missing folder."""
        if kind == "head":
            return ""
        return filled(
            "slurm_output.sh",
            folder=shlex.quote(str(self.own_dir)),
            seen=shlex.quote(str(self.own_dir / f"{kind}_")),
            unseen=f"remuda-{kind}_",
        )

    def submit(self, kind: str, *, jobs: int = 1, after: str = "HEAD") -> list[str]:
        """Return the command that submits a script. `jobs`: the length of the array; `after`: the
        id of the head's job."""
        path = str(self.own_dir / f"{kind}.sh")
        if kind == "head":
            return [*SUBMIT, path]
        return [*SUBMIT, f"--array=0-{jobs - 1}", f"--dependency=after:{after}", path]

    def head_script(self, learners: int) -> str:
        """Return the script of the job with the coordinator and this number of learners."""
        settings = self._settings
        own = [
            f"--cpus-per-task={settings.learner_cores}",
            *([f"--mem={settings.learner_memory_mib}M"] if settings.learner_memory_mib else []),
            *([f"--gres=gpu:{settings.learner_gpus}"] if settings.learner_gpus else []),
        ]
        limits = [part for limit in self.request.limits for part in ("--limit", limit)]
        bind = f"tcp://0.0.0.0:{settings.port}"
        command = ["--bind", bind, "--learners", str(learners), *limits]
        return self._script("head", "coordinator and learner", own, command)

    def worker_script(self, role: str) -> str:
        """Return the script of each job of an array."""
        settings = self._settings
        count = settings.workers_per_job
        memory = settings.memory_mib_per_worker
        own = [
            f"--cpus-per-task={settings.cores_per_worker * count}",
            *([f"--mem={memory * count}M"] if memory else []),
        ]
        whom = f"one {role}" if count == 1 else f"{count} {role}s"
        return self._script(role, whom, own, ["--count", str(count)])

    def _script(self, kind: str, what: str, own: Sequence[str], command: Sequence[str]) -> str:
        options = [
            f"--job-name=remuda-{self.request.name}-{kind}",
            f"--output={self._slurms_output(kind)}",
            "--open-mode=append",
            "--nodes=1",
            "--ntasks=1",
            *own,
            *self._common_options(kind),
        ]
        settings = self._settings
        notice = ["--requeue", "--notice", str(settings.notice_s - HANDING_IN_ENDS_S)]
        patience = ["--coordinator-timeout", f"{self.request.settings.coordinator_timeout_s:g}"]
        profile = [] if self.profile is None else ["--profile", str(self.profile)]
        places = ["--own-dir", str(self.own_dir), "--runs-dir", str(self.request.runs_dir)]
        job = [
            self.python,
            "-P",
            "-m",
            "remuda.deploy.slurm.job",
            kind,
            *places,
            *command,
            *patience,
            *notice,
            *profile,
        ]
        return filled(
            "slurm_job.sh",
            what=f"{what} of {self.request.name}",
            options="\n".join(f"#SBATCH {option}" for option in options),
            opening=self._opening(kind),
            setup="".join(f"{line}\n" for line in settings.setup),
            command=shlex.join(job) + (' "$@"' if kind != "head" else ""),
        )

    def _common_options(self, kind: str) -> list[str]:
        settings = self._settings
        partition = (settings.learner_partition if kind == "head" else None) or settings.partition
        named = {
            "partition": partition,
            "account": settings.account,
            "qos": settings.qos,
            "time": settings.walltime_min,
        }
        return [
            *(f"--{name}={value}" for name, value in named.items() if value is not None),
            f"--signal=B:USR1@{settings.notice_s}",
            "--requeue",
            *settings.options,
        ]


def filled(name: str, **values: str) -> str:
    """Return the text of the template `name` with these values. Raises KeyError for a missing value, ValueError for an
    unused one."""
    template = (_FOLDER / name).read_text(encoding="utf-8")
    unknown = sorted(values.keys() - set(_PLACE.findall(template)))
    if unknown:
        raise ValueError(f"{name} has no place for {', '.join(unknown)}")
    return _PLACE.sub(lambda place: values[place[1]], template)
