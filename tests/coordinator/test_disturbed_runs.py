"""What becomes of one run's files, whoever takes them away, costs no other run anything, and nothing stays open."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from remuda.coordinator import run_book, run_books
from remuda.coordinator.effects import (
    Asked,
    CloseRun,
    DeleteChunks,
    Effect,
    PrepareRun,
    RecordCheckpoint,
    RecordReward,
    WriteTimers,
)
from remuda.coordinator.events import RunPrepared, RunRefused
from remuda.coordinator.run_books import RunBooks
from remuda.storage.run_folder import RunFolder
from remuda.tests.worker.leases import EXPERIMENT, small_config
from remuda.wire.messages import CheckpointRecord, Submit

OTHER = "eeeeeeee-0000-4000-8000-000000000002"
SUBMIT = Submit("small", small_config().model_dump_json(), "mine")


def begin(books: RunBooks, experiment: str = EXPERIMENT, submit: Submit = SUBMIT) -> RunFolder:
    prepared = books.prepare(PrepareRun(Asked(b"client", 7), experiment, submit))
    assert isinstance(prepared, RunPrepared), prepared
    return RunFolder(Path(prepared.run_dir))


def saved(run: RunFolder, train_iter: int = 1) -> RecordCheckpoint:
    path = run.checkpoint(train_iter)
    path.write_text("weights")
    record = CheckpointRecord(train_iter, 10, 1.0, None, path.name, "0" * 64, "2026-01-01T00:00:00+00:00")
    return RecordCheckpoint(EXPERIMENT, record, 0, interrupted=False)


def test_others_are_confirmed_where_one_run_s_folder_is_gone(books: RunBooks) -> None:
    gone, there = begin(books), begin(books, OTHER, replace(SUBMIT, run_dir="other"))
    shutil.rmtree(gone.root)
    os.utime(there.owner, (0.0, 0.0))
    books.confirm()
    assert there.owner.stat().st_mtime > 0.0


def test_what_is_to_be_done_in_a_folder_that_is_gone_is_said_and_left(
    books: RunBooks, capsys: pytest.CaptureFixture[str]
) -> None:
    run = begin(books)
    checkpoint = saved(run)
    shutil.rmtree(run.root)
    effects: list[Effect] = [
        checkpoint,
        DeleteChunks(EXPERIMENT, ()),
        WriteTimers(EXPERIMENT, {}),
        CloseRun(EXPERIMENT, frozenset()),
    ]
    for effect in effects:
        books.carry_out(effect)
    said = capsys.readouterr().err
    assert f"RecordCheckpoint of {run.root} is left undone: " in said
    assert not run.root.exists(), "nobody makes it again"
    begin(books, OTHER)  # and nothing of the run before is in the way


@pytest.mark.parametrize("what", ["the file", "the record"])
def test_a_checkpoint_that_is_gone_is_said_where_it_is_to_be_the_best(books: RunBooks, what: str) -> None:
    run = begin(books)
    if what == "the file":
        books.carry_out(saved(run))
        run.checkpoint(1).unlink()
    books.carry_out(RecordReward(EXPERIMENT, 1, 9.0, best=True))
    assert f"[ERROR] RecordReward of {run.root} is left undone: " in run.commander_log.read_text()
    assert not run.best.exists()


def refuse(*given: object, **named: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_what_a_full_disk_refuses_is_for_the_caller_to_try_again(
    books: RunBooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begin(books)
    checkpoint = saved(run)
    with monkeypatch.context() as patch:
        patch.setattr("remuda.storage.checkpoint_index.write_bytes", refuse)
        with pytest.raises(OSError, match="No space left"):
            books.carry_out(checkpoint)
    books.carry_out(checkpoint)
    assert run.index.exists()


def test_a_run_that_could_not_be_swept_is_closed_at_the_next_attempt(
    books: RunBooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would stay open, and could not be resumed, until the coordinator ends."""
    run = begin(books)
    books.carry_out(saved(run))
    closing = CloseRun(EXPERIMENT, frozenset())
    with monkeypatch.context() as patch:
        patch.setattr(run_book, "sweep_orphans", refuse)
        with pytest.raises(OSError, match="No space left"):
            books.carry_out(closing)
    books.carry_out(closing)
    assert not run.owner.exists()
    begin(books, OTHER, replace(SUBMIT, on_exists="resume"))


@pytest.mark.parametrize("point", ["sweep_orphans", "policy_file_of"])
def test_a_run_that_could_not_be_begun_is_in_nobody_s_hands(
    books: RunBooks, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    run = begin(books)
    books.carry_out(saved(run))
    books.carry_out(CloseRun(EXPERIMENT, frozenset()))
    resume = replace(SUBMIT, on_exists="resume")
    with monkeypatch.context() as patch:
        patch.setattr(run_books, point, refuse)
        assert isinstance(books.prepare(PrepareRun(Asked(b"client", 7), OTHER, resume)), RunRefused)
    begin(books, OTHER, resume)
