"""The paths of all files of a run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

MODEL, MODEL_INFO = "model.pt", "model_info.json"
"""The files in model/."""
RUNS_LIST = "coordinator.sqlite"
"""The list of all runs in the runs folder of a coordinator."""
RUNS_OWNER = ".coordinator"
"""Names the coordinator that has the runs folder open; exists only meanwhile."""
_WORKER_NAME = re.compile(r"[A-Za-z0-9-]{1,64}")


def is_model(folder: Path) -> bool:
    """True for a model/ folder, in its run folder or copied elsewhere."""
    return (folder / MODEL).is_file() and (folder / MODEL_INFO).is_file()


def is_onnx(path: Path) -> bool:
    """True for an ONNX file of `remuda export`."""
    return path.suffix == ".onnx" and path.is_file()


def target_file(policy_file: str) -> str:
    """Return the name of the target network's file, beside this policy file. The learner writes the file, reanalyzers
    read."""
    return f"target_{policy_file.removeprefix('policy_')}"


class _In:
    """A path of a run: `parts` below the path `under` of the same run, and for `of_policy` the policy's name."""

    def __init__(self, *parts: str, under: str = "root", of_policy: bool = False) -> None:
        self._parts, self._under, self._of_policy = parts, under, of_policy

    def __get__(self, run: RunFolder, kind: type[RunFolder]) -> Path:
        below: Path = getattr(run, self._under)
        return below.joinpath(*self._parts, *((policy_of(run),) if self._of_policy else ()))


@dataclass(frozen=True)
class RunFolder:
    """Every path of a run. Touches no disk; see existing_folder.prepare."""

    root: Path

    # --- settings and provenance
    config_json = _In("config.json")
    """Every setting, resolved. A folder with this file is a run."""
    total_config = _In("total_config.py")
    """Resolved config as one Python literal."""
    formatted_total_config = _In("formatted_total_config.py")
    """The same, formatted for reading and editing."""
    git_log = _In("git_log.txt")
    """The commit the run was started from."""
    git_diff = _In("git_diff.txt")
    """Changes since the commit."""
    manifest = _In("manifest.json")
    """Code, packages and machine of each start."""
    env_spec = _In("env_spec.json")
    """The environment's spaces and settings."""
    vars_pkl = _In("vars.pkl")
    """Pickled copy of the environment, if it can be pickled."""
    notes = _In("notes.json")
    """Text and tags about the run from people. Missing until the first note."""

    # --- results
    @property
    def league(self) -> Path:
        """Members, ratings and games of a league; of the whole run."""
        return self.root / "league.json"

    progress = _In("progress.txt")
    """One tab-separated row per log interval."""
    progress_csv = _In("progress.csv")
    """The rows of the sink `csv`."""
    progress_jsonl = _In("progress.jsonl")
    """The rows of the sink `jsonl`."""
    model = _In("model")
    """Folder of the newest policy, loadable without the experiment's code."""

    def model_of(self, train_iter: int) -> Path:
        """Return the policy of a checkpoint in the same form; removed with the checkpoint."""
        return self.model / f"iteration_{train_iter}.pt"

    ckpt = _In("ckpt")
    """Folder of the checkpoints."""

    def checkpoint(self, train_iter: int) -> Path:
        """The checkpoint after `train_iter` gradient updates."""
        return self.ckpt / f"iteration_{train_iter}.pth.tar"

    best = _In("ckpt_best.pth.tar", under="ckpt")
    """The checkpoint with the highest mean evaluation return."""
    interrupt = _In("ckpt_interrupt.pth.tar", under="ckpt")
    """The checkpoint saved when the run was interrupted."""
    index = _In("index.json", under="ckpt")
    """A record per checkpoint."""

    # --- experience, and files that workers exchange
    @cached_property  # used for every chunk
    def data(self) -> Path:
        """Folder of the payload files."""
        return self.root / "data"

    steps = _In("steps")
    """Folder of the steps of all collectors, for playing episodes again."""
    counted_before = _In("counted_before.json", under="steps")
    """Which of their chunks were counted before the last resume."""
    journal = _In("journal.sqlite")
    """State from which a run continues after its process has died."""
    owner = _In(".owner")
    """Names the process that has the run open; exists only meanwhile."""

    def beginner(self, experiment: str) -> Path:
        """Return the mark of an experiment in a new folder, until the experiment is in the list of runs."""
        return self.root / f".begun_{experiment}"

    policy = _In("policy")
    """Folder of the policy file."""

    def policy_file(self, uuid: str, number: int) -> Path:
        """Return the file that the learner rewrites and the collectors read."""
        return self.policy / f"policy_{_signature(uuid, number)}"

    # --- logs
    log = _In("log")
    """Folder of all logs."""
    timers = _In("timers.json", under="log")
    """Time use of each process, as a tree."""
    series = _In("series.msgpack", under="log")
    """The run over time, as MessagePack records."""
    buffer_log = _In("buffer", "buffer_logger.txt", under="log")
    """Both modes."""
    learner_log = _In("learner", "learner_logger.txt", under="log")
    """Both modes."""
    serial_collector_log = _In("collector", "collector_logger.txt", under="log")
    """Log of serial mode's collector."""
    serial_evaluator_log = _In("evaluator", "evaluator_logger.txt", under="log")
    """Log of serial mode's evaluator."""

    def worker_log(self, role: str, uuid: str, incarnation: int) -> Path:
        """Return the log of a collector, evaluator or reanalyzer; parallel mode."""
        return self.log / role / f"{_signature(uuid, incarnation)}_logger.txt"

    coordinator_log = _In("coordinator_logger.txt", under="log")
    """Parallel mode."""
    commander_log = _In("commander", "commander_logger.txt", under="log")
    """Parallel mode: decisions, workers lost and back, why the run ended."""
    commander_collector_log = _In("commander", "commander_collector_logger.txt", under="log")
    """Parallel mode: the reports of all collectors."""
    commander_evaluator_log = _In("commander", "commander_evaluator_logger.txt", under="log")
    """Parallel mode: the reports of all evaluators."""
    serial_tb = _In("serial", under="log")
    """Folder of the event file of all roles in serial mode."""
    buffer_tb = _In("buffer", "buffer_tb_logger", under="log")
    """Parallel mode."""
    learner_tb = _In("learner", "learner_tb_logger", under="log")
    """Parallel mode."""
    commander_tb = _In("commander", "commander_tb_logger", under="log")
    """Parallel mode: collectors and evaluators."""

    def folders(self, *, serial: bool) -> tuple[Path, ...]:
        """Return the folders that a run of serial or parallel mode begins with."""
        own = (self.serial_tb,) if serial else (self.policy, self.buffer_tb, self.learner_tb, self.commander_tb)
        logs = self.log if serial else self.root / "log"  # the logs of workers are the run's
        common = (self.ckpt, self.model, self.data, self.buffer_log.parent, self.learner_log.parent)
        return (*common, logs / "collector", logs / "evaluator", *own)


def _signature(uuid: str, number: int) -> str:
    """Name a worker's file: its UUID and the last six digits of `number`."""
    if not _WORKER_NAME.fullmatch(uuid):
        raise ValueError(f"{uuid!r} cannot be part of a file name: letters, digits and hyphens only")
    return f"{uuid}_{number % 1_000_000:06d}"


@dataclass(frozen=True)
class PolicyFolder(RunFolder):
    """Paths of one of several policies of a run, as of a run with one policy. Settings, the environment and the journal
    are the run's."""

    policy_name: str

    ckpt = _In("ckpt", of_policy=True)
    """Folder of its checkpoints."""
    model = _In("model", of_policy=True)
    """Folder of its newest weights, loadable without the experiment's code."""

    @cached_property
    def data(self) -> Path:
        """Folder of its payload files."""
        return self.root / "data" / self.policy_name

    log = _In("log", of_policy=True)
    """Folder of its logs."""
    coordinator_log = _In("log", "coordinator_logger.txt")
    """The run's coordinator log; parallel mode."""
    progress = _In("progress.txt", under="log")
    """One tab-separated row per log interval."""
    progress_csv = _In("progress.csv", under="log")
    """The rows of the sink `csv`."""
    progress_jsonl = _In("progress.jsonl", under="log")
    """The rows of the sink `jsonl`."""
    policy = _In("policy", of_policy=True)
    """Folder of its policy file."""


def folder_of_policy(root: Path, policy: str) -> RunFolder:
    """Return the folder of one of several policies; the run's folder for an empty name."""
    return PolicyFolder(root, policy) if policy else RunFolder(root)


def policy_of(folder: RunFolder) -> str:
    """Return the name of the folder's policy; empty in runs with one policy."""
    return folder.policy_name if isinstance(folder, PolicyFolder) else ""
