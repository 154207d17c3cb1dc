"""Logs of runs without a coordinator: runs are found by id, name and folder, and their logs are read from there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from remuda.cli.requests import find_run, stored_logs
from remuda.coordinator.disk.runs_folder import RunsFolder
from remuda.logbook.tail import NoSuchSourceError
from remuda.storage.run_folder import PolicyFolder, RunFolder
from remuda.tests.cli.terminal import Terminal
from remuda.tests.client.statuses import status
from remuda.tests.worker.fake_coordinator import FakeCoordinator
from remuda.training.run_snapshot import FinishedRun, Identity
from remuda.wire import connection_file
from remuda.wire.messages import LogPiece, LogPosition, LogText, Rejected

FIRST, SECOND, THIRD = (f"{digit}6f1c9c3-0d0a-4c5b-8a39-2f6f6f5c1e77" for digit in "678")
WORKER = "01234567-0d0a-4c5b-8a39-2f6f6f5c1e77"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three runs, the second with a name of its own, the third in the folder of another."""
    runs = tmp_path / "runs"
    herd = RunsFolder(runs)
    for id, name, folder in ((FIRST, "pole", "pole"), (SECOND, "swing", "pole_2"), (THIRD, "pole", "pole_3")):
        run = RunFolder(runs / folder)
        (run.log / "commander").mkdir(parents=True)
        run.config_json.write_text("{}")
        run.commander_log.write_text(f"it was {id[0]}\nthe run is over\n")
        identity = Identity(id, name, str(run.root), "policy", 0, 0)
        herd.note_over(FinishedRun.of(identity, status(state="finished", id=id, name=name)))
    herd.close()
    return runs


@pytest.mark.parametrize(
    ("query", "folder"),
    [(FIRST, "pole"), ("66f", "pole"), ("swing", "pole_2"), ("pole_2", "pole_2"), ("pole", "pole_3")],
)
def test_a_run_is_found_by_id_name_and_folder(runs: Path, query: str, folder: str) -> None:
    assert find_run(runs, query).root == runs / folder


def test_all_lines_or_the_last_of_one_file_or_several(runs: Path) -> None:
    run = RunFolder(runs / "pole")
    assert [piece.text for piece in stored_logs(run, "commander", None)] == ["it was 6\nthe run is over\n"]
    assert [piece.text for piece in stored_logs(run, "commander", 1)] == ["the run is over\n"]
    run.worker_log("collector", WORKER, 1).parent.mkdir()
    for incarnation in (1, 2):
        run.worker_log("collector", WORKER, incarnation).write_text(f"life {incarnation}\n" * 20_000)
    pieces = list(stored_logs(run, "collector", None))
    assert "".join(piece.text for piece in pieces) == "life 1\n" * 20_000 + "life 2\n" * 20_000
    assert {piece.label for piece in pieces} == {"collector 01234567.1", "collector 01234567.2"}
    with pytest.raises(NoSuchSourceError, match="there is no log 'nobody'"):
        list(stored_logs(run, "nobody", None))


def test_each_line_names_its_policy_where_there_are_several(terminal: Terminal, runs: Path) -> None:
    for policy in ("hare", "owl"):
        folder = PolicyFolder(runs / "pole_2", policy)
        log = folder.commander_log
        for made in (log, folder.learner_log):
            made.parent.mkdir(parents=True)
        log.write_text(f"the {policy} is evaluated\nbest is 1\n")
    shutil.rmtree(RunFolder(runs / "pole_2").commander_log.parent)
    ended = terminal.remuda("logs", "swing", "--runs-dir", runs)
    assert ended.code == 0, ended.err
    assert ended.out.splitlines() == [
        "[hare/commander] the hare is evaluated",
        "[hare/commander] best is 1",
        "[owl/commander] the owl is evaluated",
        "[owl/commander] best is 1",
    ]


def test_the_verb_reads_them_where_there_is_no_coordinator(terminal: Terminal, runs: Path) -> None:
    for more in ((), ("-f",)):
        ended = terminal.remuda("logs", "swing", "--runs-dir", runs, *more)
        assert (ended.code, ended.out) == (0, "it was 7\nthe run is over\n")
        assert f"no coordinator is running: reading from {runs / 'pole_2'}" in ended.err
    assert terminal.remuda("logs", "pole", "--runs-dir", runs, "-n", "1").out == "the run is over\n"


def test_the_rest_of_a_forgotten_run_comes_from_its_folder(terminal: Terminal, runs: Path) -> None:
    log = RunFolder(runs / "pole_2").commander_log
    first = LogPosition("commander/commander_logger.txt", log.stat().st_ino, len("it was 7\n"))
    answers = iter([LogText([LogPiece(first, "commander", "it was 7\n")], over=False)])
    with FakeCoordinator() as coordinator:
        coordinator.answer = lambda message: next(answers, Rejected("unknown", "no experiment is called that"))
        connection_file.write(runs / "connection.json", coordinator.connection)
        ended = terminal.remuda("logs", "swing", "--runs-dir", runs, "-f")
        assert (ended.code, ended.out) == (0, "it was 7\nthe run is over\n")
        assert f"the coordinator does not know this run: reading from {runs / 'pole_2'}" in ended.err
        assert terminal.remuda("logs", "swung", "--runs-dir", runs).code == 2


def test_of_a_serial_run_the_verb_says_where_the_commander_speaks(terminal: Terminal, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "alone")
    run.serial_evaluator_log.parent.mkdir(parents=True)
    run.config_json.write_text("{}")
    run.serial_evaluator_log.write_text("decided\n")
    assert "--source evaluator" in terminal.remuda("logs", "alone", "--runs-dir", tmp_path).err
    assert terminal.remuda("logs", "alone", "--runs-dir", tmp_path, "--source", "evaluator").out == "decided\n"
