"""A user's own sink works in a process of its own: it gets every row, and nothing it does reaches the run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remuda.logbook import sink_process
from remuda.logbook.sink_process import OUTPUT, ProcessService
from remuda.logbook.trackers import SinkError
from remuda.tests.patience import HANG_S, until

SINKS = """
import json, os, sys, time

class Keeps:
    def __init__(self, folder, name, settings):
        self.file = open(folder / "rows.txt", "w")
        print(name, settings["seed"], file=self.file)
    def log(self, record):
        print(json.dumps(record), file=self.file)
    def finish(self):
        print("finished", os.getpid(), file=self.file)
        self.file.close()

class Fails(Keeps):
    def log(self, record):
        raise ValueError("no room")

class Exits(Keeps):
    def log(self, record):
        sys.exit(0)

class Crashes(Keeps):
    def log(self, record):
        os._exit(9)

class Deaf(Keeps):
    def log(self, record):
        os.close(0)
        time.sleep(3600)

class Hangs(Keeps):
    def finish(self):
        time.sleep(3600)
"""
ROW = {"env_step": 100.0, "collector/reward_mean": 3.5}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "my_sinks.py").write_text(SINKS)
    (tmp_path / "sink").mkdir()
    return tmp_path


def service(folder: Path, name: str, *, end_deadline_s: float = HANG_S) -> ProcessService:
    return ProcessService(
        f"my_sinks:{name}",
        folder / "sink",
        "horse",
        {"seed": 7},
        source_dir=str(folder / "user"),
        end_deadline_s=end_deadline_s,
    )


def test_it_is_told_of_the_run_and_gets_every_row_before_it_finishes(folder: Path) -> None:
    keeps = service(folder, "Keeps")
    rows = [ROW | {"env_step": float(step)} for step in range(50)]
    for row in rows:
        keeps.log(row)
    keeps.finish()
    told, *lines, end = (folder / "sink" / "rows.txt").read_text().splitlines()
    assert told == "horse 7"
    assert [json.loads(line) for line in lines] == rows
    assert end.startswith("finished ")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Fails", "ValueError: no room"),
        ("Exits", r"SystemExit\(0\) was raised in"),
        ("Crashes", "exit code 9|the process has ended"),
        ("Missing", "has no class 'Missing'"),
    ],
)
def test_one_that_fails_is_an_error_with_what_it_said(folder: Path, name: str, said: str) -> None:
    failing = service(folder, name)

    def logged() -> None:
        failing.log(ROW)
        failing.finish()

    with pytest.raises(SinkError, match=said):
        logged()


@pytest.mark.parametrize("name", ["Crashes", "Deaf"])
def test_rows_for_one_that_takes_no_more_are_an_error(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has ended, or has only closed its input: then it is ended."""
    monkeypatch.setattr(sink_process, "BROKEN_S", 0.1)
    failing = service(folder, name)

    said: list[str] = []

    def refused() -> bool:
        try:
            failing.log(ROW)
        except SinkError as error:
            said.append(str(error))
        return bool(said)

    until(refused, "the sink's process is gone")
    assert said[0].startswith("the process has ended")


def test_one_that_does_not_finish_ends_by_itself(folder: Path) -> None:
    hangs = service(folder, "Hangs", end_deadline_s=0.5)
    hangs.log(ROW)
    until((folder / "sink" / "rows.txt").exists, "its process has come so far")  # its start does not count
    with pytest.raises(SinkError, match="exit code 3"):
        hangs.finish()
    assert (folder / "sink" / OUTPUT).exists()
