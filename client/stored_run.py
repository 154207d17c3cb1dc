"""The end, the counters and the returns of a run, from its folder alone."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from remuda.logbook.tail import policies
from remuda.storage.checkpoint_index import CheckpointIndex, CheckpointIndexError, NewTask
from remuda.storage.run_folder import RunFolder, folder_of_policy, policy_of
from remuda.storage.untrusted import open_regular
from remuda.training.commander.end import ON_REQUEST, REACHED, End
from remuda.training.commander.together import mean_return
from remuda.wire.messages import CheckpointRecord, Counters, ExperimentState, ExperimentStatus

_RECORD = re.compile(r"^\[\d{4}-\d\d-\d\d [^\]]*\]\[[^\]]*\]\[[A-Z]+\] ", re.MULTILINE)
_OVER = re.compile(r"the run is over after [0-9.]+ s: (.*)", re.DOTALL)
_BY_HAND = "a client asked"
"""Reason of a stop by hand, which explains nothing."""
_LAST_RECORDS = 3
"""Most records at the end of a log with the record of the end among them; two may follow, for instance about a file."""
_TAIL_BYTES = 16 << 10


@dataclass(frozen=True)
class Learned:
    """Checkpoints and returns of a policy."""

    policy: str
    """Name; empty in runs with one policy."""
    last: CheckpointRecord | None
    last_return: float | None
    """Return of the newest evaluated checkpoint."""
    best_return: float | None
    tasks: tuple[NewTask, ...]
    """Tasks of the evaluations."""


def policy_folders(folder: RunFolder) -> list[RunFolder]:
    """Return the folder of each policy."""
    return [folder_of_policy(folder.root, name) for name in policies(folder.log) or [""]]


def is_serial(folder: RunFolder) -> bool:
    """True for the folder of a policy of `remuda train`."""
    return not folder.commander_log.exists() and folder.serial_tb.exists()


def read_learned(folder: RunFolder) -> Learned:
    """Read the index of a policy's checkpoints; an unreadable index counts as empty."""
    try:
        index = CheckpointIndex(folder.ckpt, follow_link=False)
        records, best, tasks = index.records, index.best, index.tasks
    except (CheckpointIndexError, OSError):
        records, best, tasks = (), None, ()
    return Learned(
        policy_of(folder),
        max(records, key=lambda record: (record.env_step, record.train_iter), default=None),
        next((each.reward for each in reversed(records) if each.reward is not None), None),
        None if best is None else best.reward,
        tasks,
    )


def joined(learned: Sequence[Learned]) -> Counters:
    """Return the counters of a run at the last checkpoints."""
    last = [each.last for each in learned if each.last is not None]
    return Counters(
        env_step=max((each.env_step for each in last), default=0),
        train_iter=sum(each.train_iter for each in last),
        episode=sum(each.episode for each in last),
        policy_version=sum(each.policy.version for each in last),
        wall_s=max((each.wall_s for each in last), default=0.0),
    )


@dataclass(frozen=True)
class StoredEnd:
    """End and results of a run."""

    state: ExperimentState
    reason: str
    counters: Counters
    last_return: float | None
    """Mean over several policies, as `best_return`."""
    best_return: float | None


def read_results(run_dir: Path) -> StoredEnd | None:
    """Return end and results of a run that its coordinator has forgotten; None if the folder does not tell the end."""
    members = policy_folders(RunFolder(run_dir))
    end, learned = read_end(members[0]), [read_learned(each) for each in members]
    return (
        None
        if end is None
        else StoredEnd(
            *end,
            joined(learned),
            mean_return([each.last_return for each in learned]),
            mean_return([each.best_return for each in learned]),
        )
    )


def last_status(status: ExperimentStatus) -> ExperimentStatus | None:
    """Return the last status of a run that its coordinator has forgotten, after an earlier `status`; None if the run
    folder does not tell the end, for instance on another machine."""
    found = read_results(Path(status.run_dir))
    return (
        None
        if found is None
        else replace(
            status,
            state=found.state,
            reason=found.reason,
            waiting_for=None,
            env_step=found.counters.env_step,
            train_iter=found.counters.train_iter,
            episode=found.counters.episode,
            policy_version=found.counters.policy_version,
            wall_s=found.counters.wall_s,
            last_return=found.last_return,
            best_return=found.best_return,
        )
    )


def read_end(folder: RunFolder) -> tuple[ExperimentState, str] | None:
    """Return state and reason of the end from the log of the first policy; None if the end is not recorded: the run
    continues, or was killed."""
    try:
        with open_regular(_log(folder), follow_link=False) as file:
            size = os.fstat(file.fileno()).st_size
            tail = os.pread(file.fileno(), _TAIL_BYTES, max(size - _TAIL_BYTES, 0))
    except OSError:
        return None
    return ended(tail.decode("utf-8", "replace"))


def _log(folder: RunFolder) -> Path:
    return folder.serial_evaluator_log if is_serial(folder) else folder.commander_log


def ended(tail: str) -> tuple[ExperimentState, str] | None:
    """Return state and reason if one of the last records of the log ends the run. The log of a resumed run continues
    after such a record."""
    for record in _RECORD.split(tail)[-_LAST_RECORDS:][::-1]:
        found = _OVER.match(record)
        if found is not None:
            reason = _reason(found[1].strip())
            because = found[1].strip().removeprefix(f"{ON_REQUEST}; ")
            shown = because if reason == ON_REQUEST and not because.startswith(_BY_HAND) else reason
            return End(reason, "").state, shown
    return None


def _reason(text: str) -> str:
    """Return the reason in `reason; explanation`, or a whole sentence; earlier versions wrote the sentence twice."""
    first = text.partition(";")[0]
    if first in REACHED or first == ON_REQUEST:
        return first
    return text[: len(text) // 2 - 1] if text[: len(text) // 2 - 1] == text[len(text) // 2 + 1 :] else text
