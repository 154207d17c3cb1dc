"""The paths of all files of a run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

MODEL, MODEL_INFO = "model.pt", "model_info.json"
"""The files in model/."""
_WORKER_NAME = re.compile(r"[A-Za-z0-9-]{1,64}")


def is_model(folder: Path) -> bool:
    """True for a model/ folder, in its run folder or copied elsewhere."""
    return (folder / MODEL).is_file() and (folder / MODEL_INFO).is_file()


def is_onnx(path: Path) -> bool:
    """True for an ONNX file of `remuda export`."""
    return path.suffix == ".onnx" and path.is_file()


def target_file(policy_file: str) -> str:
    """Return the name of the target network's file, beside the policy file of this name. The learner rewrites it and
    reanalyzers read it."""
    return f"target_{policy_file.removeprefix('policy_')}"


@dataclass(frozen=True)
class RunFolder:
    """Every path of a run. Touches no disk; see existing_folder.prepare."""

    root: Path

    # --- settings and provenance
    @property
    def config_json(self) -> Path:
        """Every setting, resolved. A folder with this file is a run."""
        return self.root / "config.json"

    @property
    def total_config(self) -> Path:
        """Resolved config as one Python literal."""
        return self.root / "total_config.py"

    @property
    def formatted_total_config(self) -> Path:
        """The same, formatted for reading and editing."""
        return self.root / "formatted_total_config.py"

    @property
    def git_log(self) -> Path:
        """The commit the run was started from."""
        return self.root / "git_log.txt"

    @property
    def git_diff(self) -> Path:
        """Changes since the commit."""
        return self.root / "git_diff.txt"

    @property
    def env_spec(self) -> Path:
        """The environment's spaces and settings."""
        return self.root / "env_spec.json"

    @property
    def vars_pkl(self) -> Path:
        """Pickled copy of the environment, if it can be pickled."""
        return self.root / "vars.pkl"

    @property
    def notes(self) -> Path:
        """Text and tags about the run from people. Missing until the first note."""
        return self.root / "notes.json"

    # --- results
    @property
    def progress(self) -> Path:
        """One tab-separated row per log interval."""
        return self.root / "progress.txt"

    @property
    def progress_csv(self) -> Path:
        """The rows of the sink `csv`."""
        return self.root / "progress.csv"

    @property
    def progress_jsonl(self) -> Path:
        """The rows of the sink `jsonl`."""
        return self.root / "progress.jsonl"

    @property
    def model(self) -> Path:
        """Folder of the newest policy, loadable without the experiment's code."""
        return self.root / "model"

    def model_of(self, train_iter: int) -> Path:
        """Return the policy of a checkpoint in the same form; removed with the checkpoint."""
        return self.model / f"iteration_{train_iter}.pt"

    @property
    def ckpt(self) -> Path:
        """Folder of the checkpoints."""
        return self.root / "ckpt"

    def checkpoint(self, train_iter: int) -> Path:
        """The checkpoint after `train_iter` gradient updates."""
        return self.ckpt / f"iteration_{train_iter}.pth.tar"

    @property
    def best(self) -> Path:
        """The checkpoint with the highest mean evaluation return."""
        return self.ckpt / "ckpt_best.pth.tar"

    @property
    def interrupt(self) -> Path:
        """The checkpoint saved when the run was interrupted."""
        return self.ckpt / "ckpt_interrupt.pth.tar"

    @property
    def index(self) -> Path:
        """A record per checkpoint."""
        return self.ckpt / "index.json"

    # --- experience, and files that workers exchange
    @cached_property  # used for every chunk
    def data(self) -> Path:
        """Folder of the payload files."""
        return self.root / "data"

    @property
    def journal(self) -> Path:
        """State from which a run continues after its process has died."""
        return self.root / "journal.sqlite"

    @property
    def owner(self) -> Path:
        """Names the process that has the run open; exists only meanwhile."""
        return self.root / ".owner"

    def beginner(self, experiment: str) -> Path:
        """Return the mark of an experiment that begins in the folder, until it is in the list of runs."""
        return self.root / f".begun_{experiment}"

    @property
    def policy(self) -> Path:
        """Folder of the policy file."""
        return self.root / "policy"

    def policy_file(self, uuid: str, number: int) -> Path:
        """Return the file that the learner rewrites and the collectors read."""
        return self.policy / f"policy_{_signature(uuid, number)}"

    def policy_lock(self, uuid: str, number: int) -> Path:
        """The lock beside the policy file."""
        return self.policy / f"policy_{_signature(uuid, number)}.lock"

    # --- logs
    @property
    def log(self) -> Path:
        """Folder of all logs."""
        return self.root / "log"

    @property
    def timers(self) -> Path:
        """Time use of each process, as a tree."""
        return self.log / "timers.json"

    @property
    def series(self) -> Path:
        """The run over time, as MessagePack records."""
        return self.log / "series.msgpack"

    @property
    def buffer_log(self) -> Path:
        """Both modes."""
        return self.log / "buffer" / "buffer_logger.txt"

    @property
    def learner_log(self) -> Path:
        """Both modes."""
        return self.log / "learner" / "learner_logger.txt"

    @property
    def serial_collector_log(self) -> Path:
        """Log of serial mode's collector."""
        return self.log / "collector" / "collector_logger.txt"

    @property
    def serial_evaluator_log(self) -> Path:
        """Log of serial mode's evaluator."""
        return self.log / "evaluator" / "evaluator_logger.txt"

    def collector_log(self, uuid: str, incarnation: int) -> Path:
        """Return the log of a collector worker; parallel mode."""
        return self.log / "collector" / f"{_signature(uuid, incarnation)}_logger.txt"

    def evaluator_log(self, uuid: str, incarnation: int) -> Path:
        """Return the log of an evaluator worker; parallel mode."""
        return self.log / "evaluator" / f"{_signature(uuid, incarnation)}_logger.txt"

    def reanalyzer_log(self, uuid: str, incarnation: int) -> Path:
        """Return the log of a reanalyzer worker; parallel mode."""
        return self.log / "reanalyzer" / f"{_signature(uuid, incarnation)}_logger.txt"

    @property
    def coordinator_log(self) -> Path:
        """Parallel mode."""
        return self.log / "coordinator_logger.txt"

    @property
    def commander_log(self) -> Path:
        """Parallel mode: decisions, workers lost and back, why the run ended."""
        return self.log / "commander" / "commander_logger.txt"

    @property
    def commander_collector_log(self) -> Path:
        """Parallel mode: the reports of all collectors."""
        return self.log / "commander" / "commander_collector_logger.txt"

    @property
    def commander_evaluator_log(self) -> Path:
        """Parallel mode: the reports of all evaluators."""
        return self.log / "commander" / "commander_evaluator_logger.txt"

    @property
    def serial_tb(self) -> Path:
        """Folder of the event file of all roles in serial mode."""
        return self.log / "serial"

    @property
    def buffer_tb(self) -> Path:
        """Parallel mode."""
        return self.log / "buffer" / "buffer_tb_logger"

    @property
    def learner_tb(self) -> Path:
        """Parallel mode."""
        return self.log / "learner" / "learner_tb_logger"

    @property
    def commander_tb(self) -> Path:
        """Parallel mode: collectors and evaluators."""
        return self.log / "commander" / "commander_tb_logger"


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

    @property
    def ckpt(self) -> Path:
        """Folder of its checkpoints."""
        return self.root / "ckpt" / self.policy_name

    @property
    def model(self) -> Path:
        """Folder of its newest weights, loadable without the experiment's code."""
        return self.root / "model" / self.policy_name

    @cached_property
    def data(self) -> Path:
        """Folder of its payload files."""
        return self.root / "data" / self.policy_name

    @property
    def log(self) -> Path:
        """Folder of its logs."""
        return self.root / "log" / self.policy_name

    @property
    def coordinator_log(self) -> Path:
        """The run's coordinator log; parallel mode."""
        return self.root / "log" / "coordinator_logger.txt"

    @property
    def progress(self) -> Path:
        """One tab-separated row per log interval."""
        return self.log / "progress.txt"

    @property
    def progress_csv(self) -> Path:
        """The rows of the sink `csv`."""
        return self.log / "progress.csv"

    @property
    def progress_jsonl(self) -> Path:
        """The rows of the sink `jsonl`."""
        return self.log / "progress.jsonl"

    @property
    def policy(self) -> Path:
        """Folder of its policy file."""
        return self.root / "policy" / self.policy_name

    def make(self, *, serial: bool) -> None:
        """Make its folders, for serial or parallel mode. Raises OSError."""
        of_serial = (self.serial_collector_log.parent, self.serial_evaluator_log.parent, self.serial_tb)
        of_parallel = (self.policy, self.buffer_tb, self.learner_tb, self.commander_tb)
        common = (self.ckpt, self.model, self.data, self.buffer_log.parent, self.learner_log.parent)
        for folder in (*common, *(of_serial if serial else of_parallel)):
            folder.mkdir(parents=True, exist_ok=True)


def folder_of_policy(root: Path, policy: str) -> RunFolder:
    """Return the folder of one of several policies; the run's folder for an empty name."""
    return PolicyFolder(root, policy) if policy else RunFolder(root)


def policy_of(folder: RunFolder) -> str:
    """Return the name of the folder's policy; empty in runs with one policy."""
    return folder.policy_name if isinstance(folder, PolicyFolder) else ""
