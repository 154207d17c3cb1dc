"""The run folders that the coordinator keeps: refused without a trace, written as the effects say, closed cleanly."""

from __future__ import annotations

import errno
import json
import shutil
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Literal, NoReturn

import numpy as np
import pytest
from msgspec.structs import replace

from remuda.buffer.chunk import write_chunk
from remuda.client import LogReader
from remuda.config.current import task_of
from remuda.coordinator.disk import run_folder, run_folders
from remuda.coordinator.disk.run_folder import PIECES, RunEffect, RunGoneError, read_log
from remuda.coordinator.disk.run_folders import RunFolders
from remuda.coordinator.disk.runs_folder import RunWriter
from remuda.coordinator.effects import (
    CloseRun,
    DeleteChunks,
    MarkRecoverable,
    PolicyEffect,
    PrepareRun,
    ReadLog,
    Requester,
)
from remuda.coordinator.events import PreparedRun, RunRefused
from remuda.logbook import tail
from remuda.logbook.progress import ProgressRow
from remuda.policy.files.policy_file import publish
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder, folder_of_policy
from remuda.tests.buffer.chunks import cartpole_columns, meta_of
from remuda.tests.coordinator.disk.test_runs_folder import in_state, submitted
from remuda.tests.coordinator.disk.writing import carry_out
from remuda.tests.patience import HANG_S
from remuda.tests.worker.leases import EXPERIMENT, small_config
from remuda.training.commander.commander import Commander, StartEvaluation
from remuda.training.effects import LogLine, RecordCheckpoint, RecordReward, WriteProgress, WriteTimers
from remuda.training.recovery import catch_up
from remuda.training.snapshot import EvaluationResult
from remuda.wire.messages import CheckpointRecord, LogPosition, LogRequest, LogText, PolicyRef, Rejected, Submit

OTHER = "eeeeeeee-0000-4000-8000-000000000002"
ASKED = Requester(b"client", 7)
SUBMIT = Submit("small", small_config().model_dump_json(), "mine")


@pytest.fixture
def run(folders: RunFolders) -> RunFolder:
    prepared = folders.prepare(PrepareRun(ASKED, EXPERIMENT, SUBMIT))
    assert isinstance(prepared, PreparedRun)
    return RunFolder(Path(prepared.identity.run_dir))


def refused(folders: RunFolders, submit: Submit, experiment: str = OTHER) -> Rejected:
    answer = folders.prepare(PrepareRun(ASKED, experiment, submit))
    assert isinstance(answer, RunRefused)
    assert answer.requester == ASKED
    return answer.rejection


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def record(run: RunFolder, train_iter: int) -> CheckpointRecord:
    """A checkpoint that lies on disk."""
    path = run.checkpoint(train_iter)
    path.write_text(f"weights of iteration {train_iter}")
    return CheckpointRecord(train_iter, 10 * train_iter, 1.0, None, path.name, "0" * 64, "2026-01-01T00:00:00+00:00")


def recorded(run: RunFolder, train_iter: int, *, keep: int = 0, interrupted: bool = False) -> RecordCheckpoint:
    return RecordCheckpoint(EXPERIMENT, record(run, train_iter), keep, interrupted)


# --- prepare ---
class KilledError(Exception):
    """The coordinator's process ends here."""


@pytest.mark.parametrize(
    "point", ["Ownership", "open_for_policies", "write_configs", "open_commander_logbook", "policy_file_of", ""]
)
def test_who_died_at_the_beginning_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """The same submission, said again to the next coordinator; to any other the folder is taken."""

    def die(*given: object, **named: object) -> None:
        raise KilledError

    dying = RunFolders(tmp_path / "runs")
    with monkeypatch.context() as patch, suppress(KilledError):
        if point:
            patch.setattr(run_folders, point, die)
        dying.prepare(PrepareRun(ASKED, EXPERIMENT, SUBMIT))
        assert not point, "it has not died there"
    dying.close()  # as the kernel does: locks are gone, what was written stays
    folders = RunFolders(tmp_path / "runs")
    assert refused(folders, SUBMIT, OTHER).code == "exists"
    prepared = folders.prepare(PrepareRun(ASKED, EXPERIMENT, SUBMIT))
    assert isinstance(prepared, PreparedRun)
    assert (prepared.resumed, prepared.recovered) == (None, None)
    run = RunFolder(tmp_path / "runs" / "mine")
    assert prepared.identity.run_dir == str(run.root)
    assert len(run.progress.read_text().splitlines()) == 1, "a header, once"
    carry_out(folders, MarkRecoverable(EXPERIMENT))
    assert not run.beginner(EXPERIMENT).exists()
    folders.close()


@pytest.mark.parametrize("config_json", ["{", SUBMIT.config_json.replace('"seed":7', '"seed":-7')])
def test_a_config_that_is_not_valid_leaves_nothing(folders: RunFolders, tmp_path: Path, config_json: str) -> None:
    rejection = refused(folders, replace(SUBMIT, config_json=config_json))
    assert rejection.code == "invalid"
    assert rejection.reason.startswith("the config is not valid: ")
    assert list(tmp_path.iterdir()) == []


def test_a_run_whose_agents_nobody_has_looked_up_is_refused(folders: RunFolders, tmp_path: Path) -> None:
    """The coordinator builds no environment."""
    env = {"kind": "pettingzoo", "id": "pettingzoo.no_such_module"}
    settings = {"name": "game", "env": env}
    rejection = refused(folders, replace(SUBMIT, config_json=json.dumps(settings)))
    assert rejection.code == "invalid"
    assert "env.agents is missing" in rejection.reason
    assert list(tmp_path.iterdir()) == []
    settings["env"] = {**env, "agents": ["a", "b"]}
    assert isinstance(
        folders.prepare(PrepareRun(ASKED, EXPERIMENT, replace(SUBMIT, config_json=json.dumps(settings)))), PreparedRun
    )


@pytest.mark.parametrize("on_exists", ["error", "rename", "force"])
def test_a_refusal_after_the_folder_was_made_leaves_none(
    folders: RunFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_exists: Literal["error", "rename", "force"]
) -> None:
    def full(*_: object) -> NoReturn:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    if on_exists != "error":
        for name in ("config.json", "log/old.txt"):
            (tmp_path / "runs" / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "runs" / "mine" / name).touch()
    before = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    monkeypatch.setattr(run_folders, "write_configs", full)
    rejection = refused(folders, replace(SUBMIT, on_exists=on_exists))
    assert "Disk quota exceeded" in rejection.reason
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == before
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == (["mine"] if on_exists != "error" else [])


@pytest.mark.parametrize(("run_dir", "code"), [("bad\0name", "invalid"), ("x" * 300, "exists")])
def test_an_impossible_path_is_refused(folders: RunFolders, tmp_path: Path, run_dir: str, code: str) -> None:
    rejection = refused(folders, replace(SUBMIT, run_dir=run_dir))
    assert rejection.code == code
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("on_exists", ["error", "resume", "force"])
def test_a_run_under_way_is_not_disturbed(folders: RunFolders, run: RunFolder, tmp_path: Path, on_exists: str) -> None:
    (tmp_path / "link").symlink_to(run.root)
    carry_out(folders, recorded(run, 5))
    before = tree(run.root)
    for run_dir in ("mine", str(run.root), str(tmp_path / "link")):
        again = Submit("small", SUBMIT.config_json, run_dir, on_exists)  # type: ignore[arg-type]
        rejection = refused(folders, again)
        assert rejection.code == "exists"
        assert f"in use by experiment {EXPERIMENT}" in rejection.reason
    assert tree(run.root) == before


def test_resumed_with_another_task_it_begins_a_new_best_over_a_restart_too(folders: RunFolders, run: RunFolder) -> None:
    """Returns of two tasks are not compared, and the coordinator's next start knows it by the journal."""
    config = small_config()
    carry_out(folders, recorded(run, 7))
    carry_out(folders, RecordReward(EXPERIMENT, 7, 12.5, best=True, task=task_of(config)))
    carry_out(folders, CloseRun(EXPERIMENT, frozenset()))
    harder = small_config(env={"id": "CartPole-v1", "num_envs": 4, "max_episode_steps": 9}, stop={"stop_value": 10.0})
    resumes = replace(SUBMIT, config_json=harder.model_dump_json(), on_exists="resume")
    prepared = folders.prepare(PrepareRun(ASKED, OTHER, resumes))
    assert isinstance(prepared, PreparedRun)
    assert prepared.resumed is not None
    assert (prepared.resumed.best, prepared.resumed.record.reward) == (None, None)
    assert "a new best begins. The best on the former task was iteration_7.pth.tar" in run.commander_log.read_text()
    commander = Commander(harder, prepared.resumed)
    assert commander.started() == [StartEvaluation(prepared.resumed.record)], "12.5 is not the return of this task"
    assert commander.evaluated(EvaluationResult(prepared.resumed.record, (2.0,), (9,), 1.0)).best
    again = Commander(harder)
    again.restore(commander.snapshot())
    index = CheckpointIndex(run.ckpt)
    catch_up(index, again.snapshot())
    assert index.best is not None
    assert (index.best.reward, index.best.task) == (2.0, task_of(harder))
    assert [each.task for each in index.tasks] == [task_of(config), task_of(harder)]


def test_who_resumes_what_is_over_waits_until_its_files_are_closed(folders: RunFolders, run: RunFolder) -> None:
    """Its end is known as soon as it is journaled; whoever sees it may resume it at once."""
    carry_out(folders, recorded(run, 7))
    again = PrepareRun(ASKED, OTHER, replace(SUBMIT, on_exists="resume"))
    found: list[PreparedRun | RunRefused] = []
    resumes = threading.Thread(target=lambda: found.append(folders.prepare(again)))
    folders.about_to_close(EXPERIMENT)
    resumes.start()
    resumes.join(0.2)
    assert not found, "it waits"
    carry_out(folders, CloseRun(EXPERIMENT, frozenset()))
    resumes.join(HANG_S)
    assert [type(each) for each in found] == [PreparedRun]


@pytest.mark.parametrize("loss", ["gone", "damaged"])
def test_without_its_journal_a_run_goes_on_from_its_checkpoint(folders: RunFolders, run: RunFolder, loss: str) -> None:
    """Without replay, as its log says, and under an epoch that no learner before it can have had."""
    last = replace(record(run, 7), episode=3, policy=PolicyRef(2, 4, 6))
    carry_out(folders, RecordCheckpoint(EXPERIMENT, last, 0, interrupted=False))
    publish(run.policy_file(EXPERIMENT, 0), {"w": np.zeros(1)}, PolicyRef(5, 1, 9), warn=print)
    write_chunks(run, 2)
    carry_out(folders, CloseRun(EXPERIMENT, frozenset(path.name for path in run.data.iterdir())))
    if loss == "gone":
        run.journal.unlink()
    else:
        run.journal.write_bytes(b"no database" * 1_000)
    prepared = folders.prepare(PrepareRun(ASKED, OTHER, replace(SUBMIT, on_exists="resume")))
    assert isinstance(prepared, PreparedRun)
    assert prepared.recovered is None
    assert prepared.uncounted == ()
    assert list(run.data.iterdir()) == []
    assert prepared.resumed is not None
    counters = prepared.resumed.counters
    assert (counters.env_step, counters.train_iter, counters.episode) == (70, 7, 3)
    assert prepared.resumed.policy == PolicyRef(5, 1, 9)
    log = run.commander_log.read_text()
    assert (
        f"[WARNING] goes on from its last checkpoint alone, without replay and what was counted since: {run.root}"
        in log
    )
    assert f"journal.sqlite is {loss}" in log


# --- effects ---
def write_chunks(run: RunFolder, count: int) -> list[str]:
    return [write_chunk(run.data, meta_of(number, 4), cartpole_columns(4)).file for number in range(count)]


def test_closing_sweeps_what_is_not_kept_and_nothing_else(folders: RunFolders, run: RunFolder) -> None:
    names = write_chunks(run, 3)
    (run.data / "readme.txt").write_text("not a payload")
    lock = run.policy_file(EXPERIMENT, 0).with_suffix(".lock")
    lock.touch()
    run.policy_file(EXPERIMENT, 0).write_text("weights")
    carry_out(folders, CloseRun(EXPERIMENT, frozenset({names[1]})))
    assert sorted(path.name for path in run.data.iterdir()) == sorted([names[1], "readme.txt"])
    assert lock.exists(), "somebody may hold it"
    assert run.policy_file(EXPERIMENT, 0).exists()


def test_after_the_end_nothing_changes(folders: RunFolders, run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """A learner that was dismissed may still report the checkpoint it was saving."""
    late: list[RunEffect] = [
        recorded(run, 9),
        RecordReward(EXPERIMENT, 9, 1.0, best=True),
        DeleteChunks(EXPERIMENT, tuple(write_chunks(run, 1))),
        WriteProgress(EXPERIMENT, ProgressRow(epoch=0, env_step=40, losses={}, wall_s=1.0)),
    ]
    closing = CloseRun(EXPERIMENT, frozenset({name.name for name in run.data.iterdir()}))
    carry_out(folders, closing)
    before = tree(run.root)
    for effect in [*late, closing, LogLine(EXPERIMENT, "late words")]:
        carry_out(folders, effect)
    assert tree(run.root) == before


COLLECTORS = 40


class Reading:
    """Stands between a client's reader and the coordinator's, without a network."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.over = False
        self.requests = 0

    def read_log(self, request: LogRequest) -> LogText:
        self.requests += 1
        answer = read_log(ReadLog(Requester(b"client", 1), str(self.run_dir), request, self.over)).answer
        assert isinstance(answer, LogText)
        assert len(answer.pieces) <= PIECES
        return answer


def path_of(run_dir: Path, number: int) -> Path:
    return run_dir / "log" / "collector" / f"{number:08x}-89ab-4def-8123-456789abcdef_000001_logger.txt"


def append(run_dir: Path, number: int, *lines: str) -> None:
    path = path_of(run_dir, number)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        file.writelines(f"{line}\n" for line in lines)


def reader_of(reading: Reading, last_lines: int | None) -> LogReader:
    return LogReader(reading, "x", "collector", last_lines=last_lines)  # type: ignore[arg-type]


def read_all(reader: LogReader) -> Counter[str]:
    """Until there is nothing more at once: how many lines of each file."""
    lines: Counter[str] = Counter()
    while True:
        pieces = reader.read()
        for piece in pieces:
            lines[piece.position.file] += len(piece.text.splitlines())
        if not pieces and not reader.more:
            return lines


def test_the_last_lines_are_those_of_every_file_however_many(tmp_path: Path) -> None:
    """Beyond sixteen files `-n` was forgotten: five lines of some, and all of the others."""
    for number in range(COLLECTORS):
        append(tmp_path, number, *(f"line {line}" for line in range(100)))
    append(tmp_path, COLLECTORS, "only one")
    reader = reader_of(Reading(tmp_path), 5)
    lines = read_all(reader)
    assert sorted(lines.values()) == [1, *[5] * COLLECTORS]
    append(tmp_path, 99, *(f"line {line}" for line in range(7)))
    append(tmp_path, 3, "news")
    assert sorted(read_all(reader).values()) == [1, 7], "a log that comes later is shown whole"


def test_every_file_has_its_turn_while_others_never_end(tmp_path: Path) -> None:
    for number in range(COLLECTORS):
        append(tmp_path, number, "x")
    reader = reader_of(Reading(tmp_path), None)
    seen: set[str] = set()
    for _ in range(2 * COLLECTORS // PIECES + 2):
        for number in range(COLLECTORS):
            append(tmp_path, number, "more")
        seen |= {piece.position.file for piece in reader.read()}
    assert len(seen) == COLLECTORS


def test_who_has_read_everything_opens_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question read up to 64 KiB of every file, whether it had grown or not."""
    for number in range(COLLECTORS):
        append(tmp_path, number, "x")
    reading = Reading(tmp_path)
    reader = reader_of(reading, None)
    read_all(reader)
    opened: list[LogPosition] = []

    def note(log: Path, place: LogPosition, *, to_the_end: bool) -> None:
        opened.append(place)

    monkeypatch.setattr(tail, "read", note)
    assert reader.read() == []
    assert opened == []


def begin(folders: RunFolders, experiment: str = EXPERIMENT, submit: Submit = SUBMIT) -> RunFolder:
    prepared = folders.prepare(PrepareRun(Requester(b"client", 7), experiment, submit))
    assert isinstance(prepared, PreparedRun), prepared
    return RunFolder(Path(prepared.identity.run_dir))


def test_the_end_of_a_run_keeps_the_payloads_of_a_single_policy_with_a_name(folders: RunFolders) -> None:
    """The run has nothing of its own to sweep: its policy has named what is in use."""
    env = {"kind": "pettingzoo", "id": "pettingzoo.classic.hanabi_v5", "agents": ["a"]}
    config = small_config(env=env, policies={"fox": {"agents": ["a"]}})
    run = begin(folders, submit=Submit("small", config.model_dump_json(), "mine"))
    [payload] = write_chunks(folder_of_policy(run.root, "fox"), 1)
    carry_out(folders, PolicyEffect(EXPERIMENT, "fox", CloseRun(EXPERIMENT, frozenset({payload}))))
    carry_out(folders, CloseRun(EXPERIMENT, frozenset()))
    assert (folder_of_policy(run.root, "fox").data / payload).exists()


def test_a_journal_that_is_taken_away_is_put_back(folders: RunFolders, capsys: pytest.CaptureFixture[str]) -> None:
    turn = in_state(submitted(folders, EXPERIMENT, "small"), "running")
    run, writer = RunFolder(Path(turn.snapshot.identity.run_dir)), RunWriter(folders, None, EXPERIMENT)
    writer.journal([turn])
    run.journal.unlink()
    writer.confirm()
    said = f"{run.journal} was removed or replaced: a complete copy is back in its place"
    assert said in capsys.readouterr().err
    assert said in run.commander_log.read_text()
    assert run.journal.exists()
    writer.confirm()
    assert capsys.readouterr().err == ""
    run.journal.unlink()
    writer.close()
    assert run.journal.exists(), "also where the run ends before anybody has looked"
    assert said in capsys.readouterr().err


def test_effects_in_a_folder_that_is_gone_are_left(folders: RunFolders, capsys: pytest.CaptureFixture[str]) -> None:
    run = begin(folders)
    checkpoint = recorded(run, 1)
    shutil.rmtree(run.root)
    effects: list[RunEffect] = [
        checkpoint,
        DeleteChunks(EXPERIMENT, ()),
        WriteTimers(EXPERIMENT, {}),
        CloseRun(EXPERIMENT, frozenset()),
    ]
    for effect in effects:
        carry_out(folders, effect)
    said = capsys.readouterr().err
    assert f"RecordCheckpoint of {run.root} is left undone: " in said
    assert not run.root.exists(), "nobody makes it again"
    begin(folders, OTHER)  # and nothing of the run before is in the way


@pytest.mark.parametrize("what", ["the file", "the record"])
def test_a_checkpoint_that_is_gone_is_said_where_it_is_to_be_the_best(folders: RunFolders, what: str) -> None:
    run = begin(folders)
    if what == "the file":
        carry_out(folders, recorded(run, 1))
        run.checkpoint(1).unlink()
    carry_out(folders, RecordReward(EXPERIMENT, 1, 9.0, best=True))
    assert f"[ERROR] RecordReward of {run.root} is left undone: " in run.commander_log.read_text()
    assert not run.best.exists()


def refuse(*given: object, **named: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_run_that_was_not_swept_is_closed_later(folders: RunFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would stay open, and could not be resumed, until the coordinator ends."""
    run = begin(folders)
    carry_out(folders, recorded(run, 1))
    closing = CloseRun(EXPERIMENT, frozenset())
    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "sweep_orphans", refuse)
        with pytest.raises(OSError, match="No space left"):
            carry_out(folders, closing)
    carry_out(folders, closing)
    assert not run.owner.exists()
    begin(folders, OTHER, replace(SUBMIT, on_exists="resume"))


def test_it_does_not_wait_for_ever(folders: RunFolders, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    carry_out(folders, recorded(run, 7))
    monkeypatch.setattr(run_folders, "CLOSING_S", 0.01)
    folders.about_to_close(EXPERIMENT)
    rejection = refused(folders, replace(SUBMIT, on_exists="resume"))
    assert rejection.code == "exists"
    assert "its disk is slow to close its files: try again later" in rejection.reason


def test_what_never_saved_anything_cannot_be_resumed(folders: RunFolders, run: RunFolder) -> None:
    carry_out(folders, CloseRun(EXPERIMENT, frozenset()))
    before = tree(run.root)
    rejection = refused(folders, replace(SUBMIT, on_exists="resume"))
    assert "no checkpoint yet" in rejection.reason
    assert tree(run.root) == before


def test_a_run_whose_folder_is_gone_fails_instead_of_being_tried_again_and_again(folders: RunFolders) -> None:
    run = begin(folders)
    shutil.rmtree(run.root)
    with pytest.raises(RunGoneError, match=f"{run.root} is gone"):
        RunWriter(folders, None, EXPERIMENT).confirm()
