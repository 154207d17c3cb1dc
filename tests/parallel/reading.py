"""Reads a run folder as a user's scripts would: by the promised formats, with nothing of Remuda's own."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypedDict

from remuda.tests.patience import until

RECORD = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\]\[([\w.]+\.py:\d+)\]\[(INFO|WARNING|ERROR)\] (.*)")
UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_JOINS = re.compile(rf"(\w+) ({UUID}) incarnation (\d+) joins the herd \(pid (\d+) on .+\)")


@dataclass(frozen=True)
class Record:
    """One record of a text log: its first line and those that belong to it."""

    level: str
    text: str


@dataclass(frozen=True)
class Joined:
    """An incarnation of a worker, as the coordinator's log describes it."""

    role: str
    uuid: str
    incarnation: int
    pid: int


class Checkpoint(TypedDict):
    train_iter: int
    env_step: int
    episode: int
    wall_s: float
    reward: float | None
    file: str
    sha256: str
    created: str


class Index(TypedDict):
    format: int
    best: int
    last: int
    checkpoints: list[Checkpoint]


def names(text: str) -> list[str]:
    """Split a list of promised names."""
    return text.split()


def records(log: Path) -> list[Record]:
    """Split a text log; its first line must start a record."""
    found: list[Record] = []
    for line in log.read_text().splitlines():
        if head := RECORD.fullmatch(line):
            found.append(Record(head[3], head[4]))
        else:
            found[-1] = Record(found[-1].level, f"{found[-1].text}\n{line}")
    return found


def texts(log: Path, start: str = "") -> list[str]:
    """The records that begin with `start`."""
    return [record.text for record in records(log) if record.text.startswith(start)]


def table(text: str) -> dict[str, str]:
    """Read the grid blocks of a record, each of at most four values, as one table."""
    values: dict[str, str] = {}
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    for names, cells in zip(rows[::2], rows[1::2], strict=True):
        assert (names[0], cells[0]) == ("Name", "Value")
        assert len(names) == len(cells) <= 5
        assert len(names) == 5 or names is rows[-2]
        values |= dict(zip(names[1:], cells[1:], strict=True))
    return values


def key_values(text: str) -> dict[str, str]:
    """Read the `key: value` lines after a record's first."""
    return dict(line.split(": ", 1) for line in text.splitlines()[1:])


def joined(coordinator_log: Path) -> list[Joined]:
    """Every incarnation of a worker, in order of registration."""
    if not coordinator_log.exists():
        return []
    found = (_JOINS.search(line) for line in coordinator_log.read_text().splitlines())
    return [Joined(match[1], match[2], int(match[3]), int(match[4])) for match in found if match]


def pids(run: Path, role: str) -> list[int]:
    """The processes of a role, those that have ended too."""
    return [one.pid for one in joined(run / "log" / "coordinator_logger.txt") if one.role == role]


def index(run: Path, policy: str = "") -> Index:
    """Read ckpt/index.json, or that of one of several policies."""
    content: Index = json.loads((run / "ckpt" / policy / "index.json").read_text())
    return content


def wait_for_learner(run: Path) -> None:
    """Wait until a learner is there to save the end: a learner that was killed may have saved the next checkpoint, but
    not the one after."""
    for _ in range(2):
        until(partial(_has_newer, run, last_checkpoint(run)), "the next checkpoint")


def _has_newer(run: Path, env_step: int) -> bool:
    return last_checkpoint(run) > env_step


def last_checkpoint(run: Path) -> int:
    """Environment steps of the last checkpoint; -1 without a checkpoint."""
    return max((checkpoint["env_step"] for checkpoint in index(run)["checkpoints"]), default=-1)


def policy_file(run: Path) -> Path:
    """Beside it lies its lock."""
    (lock,) = (run / "policy").glob("*.lock")
    return lock.with_suffix("")


def progress(run: Path) -> list[dict[str, str]]:
    """Read progress.txt."""
    with (run / "progress.txt").open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", strict=True))


def assert_rows_are_there_once(run: Path) -> None:
    """Epochs of progress.txt have no gap, and environment steps never fall."""
    rows = [(int(row["Epoch"]), int(row["TotalEnvInteracts"])) for row in progress(run)]
    assert [epoch for epoch, _ in rows] == list(range(len(rows)))
    assert [env_step for _, env_step in rows] == sorted(env_step for _, env_step in rows)


def sha256(path: Path) -> str:
    """Sum a file up."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
