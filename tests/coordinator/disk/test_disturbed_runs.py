"""What becomes of one run's files, whoever takes them away, costs no other run anything, and nothing stays open."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from remuda.coordinator.disk import run_folder
from remuda.coordinator.disk.disk import RunWriter
from remuda.coordinator.disk.run_folder import RunEffect
from remuda.coordinator.disk.run_folders import RunFolders
from remuda.coordinator.effects import CloseRun, DeleteChunks, PrepareRun, Requester
from remuda.coordinator.events import PreparedRun
from remuda.storage.run_folder import RunFolder
from remuda.tests.coordinator.disk.test_runs_folder import in_state, submitted
from remuda.tests.coordinator.disk.writing import carry_out
from remuda.tests.worker.leases import EXPERIMENT, small_config
from remuda.training.effects import RecordCheckpoint, RecordReward, WriteTimers
from remuda.wire.messages import CheckpointRecord, Submit

OTHER = "eeeeeeee-0000-4000-8000-000000000002"
SUBMIT = Submit("small", small_config().model_dump_json(), "mine")


def begin(folders: RunFolders, experiment: str = EXPERIMENT, submit: Submit = SUBMIT) -> RunFolder:
    prepared = folders.prepare(PrepareRun(Requester(b"client", 7), experiment, submit))
    assert isinstance(prepared, PreparedRun), prepared
    return RunFolder(Path(prepared.run_dir))


def saved(run: RunFolder, train_iter: int = 1) -> RecordCheckpoint:
    path = run.checkpoint(train_iter)
    path.write_text("weights")
    record = CheckpointRecord(train_iter, 10, 1.0, None, path.name, "0" * 64, "2026-01-01T00:00:00+00:00")
    return RecordCheckpoint(EXPERIMENT, record, 0, interrupted=False)


def test_a_journal_that_is_taken_away_is_put_back_and_said(
    folders: RunFolders, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_what_is_to_be_done_in_a_folder_that_is_gone_is_said_and_left(
    folders: RunFolders, capsys: pytest.CaptureFixture[str]
) -> None:
    run = begin(folders)
    checkpoint = saved(run)
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
        carry_out(folders, saved(run))
        run.checkpoint(1).unlink()
    carry_out(folders, RecordReward(EXPERIMENT, 1, 9.0, best=True))
    assert f"[ERROR] RecordReward of {run.root} is left undone: " in run.commander_log.read_text()
    assert not run.best.exists()


def refuse(*given: object, **named: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_run_that_could_not_be_swept_is_closed_at_the_next_attempt(
    folders: RunFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would stay open, and could not be resumed, until the coordinator ends."""
    run = begin(folders)
    carry_out(folders, saved(run))
    closing = CloseRun(EXPERIMENT, frozenset())
    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "sweep_orphans", refuse)
        with pytest.raises(OSError, match="No space left"):
            carry_out(folders, closing)
    carry_out(folders, closing)
    assert not run.owner.exists()
    begin(folders, OTHER, replace(SUBMIT, on_exists="resume"))
