"""A learner that was replaced and continues at any moment overwrites nothing of its successor.

Two learners publish, save and export. The older one stops before any system call that changes a name. The newer one
begins and stops before any of its own calls; then the older one runs to its end, and then the newer one.
"""

from __future__ import annotations

import builtins
import os
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remuda.policy.files.checkpoint_file import write
from remuda.policy.files.policy_file import StaleEpoch, publish, read_ref
from remuda.storage.atomic import Replacing, replacing, write_bytes
from remuda.storage.checkpoint_index import CheckpointIndex, unlisted
from remuda.storage.fence import Fence, SupersededError, sweep_claims
from remuda.tests.patience import HANG_S
from remuda.wire.messages import CheckpointRecord, Counters, PolicyRef

CALLS = ("mkdir", "rmdir", "rename", "replace", "unlink", "listdir", "scandir", "link", "stat", "open", "writev")
BEGINNING_CALLS = 12
"""Calls in which a learner begins: all pairs of these are tried, and all points of the older with
the newer at its end."""
STRIDE = 11
"""Tries every n-th of the other pairs; all (1) take half a minute."""


class Run:
    """A run folder, and a reader of its policy."""

    def __init__(self, root: Path) -> None:
        self.folders = [root / name for name in ("policy", "ckpt", "model")]
        for folder in self.folders:
            folder.mkdir(parents=True)
        self.policy_dir, self.ckpt, self.model = self.folders
        self.file = self.policy_dir / "policy_x_000000"
        self.seen: list[tuple[int, int]] = []

    def look(self) -> None:
        found = read_ref(self.file)
        if found is not None and self.seen[-1:] != [(found.epoch, found.version)]:
            self.seen.append((found.epoch, found.version))


def learner(run: Run, epoch: int, *, fenced: bool) -> None:
    """Begin, publish, save, export and publish as LearnerWork does. End when replaced."""
    try:
        fence = Fence(run.folders, epoch) if fenced else None
        replace: Replacing = replacing if fence is None else fence.replacing
        for path in unlisted(run.ckpt, beyond=5):
            path.unlink() if fence is None else fence.remove(path)
        put = partial(publish, run.file, replace=replace, warn=lambda text: None, lock_deadline_s=0.0)
        put({"w": np.zeros(1)}, PolicyRef(epoch, 0, 5))
        for n in (10, 30 if epoch == 1 else 20):
            write(
                run.ckpt / f"iteration_{n}.pth.tar", memoryview(b"%d" % epoch), Counters(train_iter=n), replace=replace
            )
        for name in ("model.pt", "model_info.json"):
            write_bytes(run.model / name, b"%d" % epoch, durable=False, replace=replace)
        put({"w": np.zeros(1)}, PolicyRef(epoch, 1, 15))
    except (SupersededError, StaleEpoch):
        pass


class Process(threading.Thread):
    """A learner that stops before its n-th call until it is released."""

    def __init__(self, work: Callable[[], None], stop_before: int) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._stop_before = stop_before
        self.calls = 0
        self._stopped, self._go = threading.Event(), threading.Event()
        self.error: BaseException | None = None
        self.looking = False

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.error = error
        self._stopped.set()

    def calling(self) -> None:
        if self.calls == self._stop_before:
            self._stopped.set()
            assert self._go.wait(HANG_S)
        self.calls += 1

    def until_stopped(self) -> None:
        self.start()
        assert self._stopped.wait(HANG_S)

    def end(self) -> None:
        self._go.set()
        self.join(HANG_S)
        if self.error is not None:
            raise self.error


@contextmanager
def watched(run: Run) -> Generator[None, None, None]:
    """Count every call by a Process; before each one a reader reads."""

    def gated(call: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any, **named: Any) -> Any:
            process = threading.current_thread()
            if isinstance(process, Process) and not process.looking:
                process.looking = True
                run.look()
                process.looking = False
                process.calling()
            return call(*arguments, **named)

        return act

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, gated(getattr(os, name)))
        patch.setattr(os, "fsync", lambda descriptor: None)  # changes nothing that another process sees
        patch.setattr(builtins, "open", gated(open))
        yield


def play(root: Path, older_stops: int, newer_stops: int, *, fenced: bool) -> tuple[Run, Process, Process]:
    run = Run(root)
    older = Process(partial(learner, run, 1, fenced=fenced), older_stops)
    newer = Process(partial(learner, run, 2, fenced=fenced), newer_stops)
    with watched(run):
        older.until_stopped()
        newer.until_stopped()
        older.end()
        newer.end()
    run.look()
    return run, older, newer


def wrong(run: Run) -> Sequence[str]:
    """Errors in the run folder after both have ended."""
    found = [f"a reader saw {run.seen}"] if run.seen != sorted(run.seen) or run.seen[-1] != (2, 1) else []
    files = {path.name: path.read_bytes() for folder in (run.ckpt, run.model) for path in folder.glob("[!.]*")}
    expected = dict.fromkeys(("iteration_10.pth.tar", "iteration_20.pth.tar", "model.pt", "model_info.json"), b"2")
    return found if files == expected else [*found, f"left: {files}"]


def test_nothing_of_a_stopped_learner_comes_after_its_successor(tmp_path: Path) -> None:
    _, older, newer = play(tmp_path / "whole", 10_000, 10_000, fenced=True)
    assert min(older.calls, newer.calls) > 40
    for older_stops in range(older.calls + 1):
        for newer_stops in range(newer.calls + 1):
            both_begin = max(older_stops, newer_stops) < BEGINNING_CALLS
            if both_begin or newer_stops == newer.calls or (older_stops + newer_stops) % STRIDE == 0:
                run, _, _ = play(tmp_path / f"{older_stops}-{newer_stops}", older_stops, newer_stops, fenced=True)
                assert wrong(run) == [], f"the older stopped before call {older_stops}, the newer before {newer_stops}"


def test_without_a_fence_there_are_such_moments(tmp_path: Path) -> None:
    """The fence is necessary: a check before each rename is not enough."""
    _, older, _ = play(tmp_path / "whole", 10_000, 10_000, fenced=False)
    found = [wrong(play(tmp_path / str(at), at, 10_000, fenced=False)[0]) for at in range(older.calls)]
    assert any("a reader saw" in text for texts in found for text in texts)
    assert any("left" in text for texts in found for text in texts)


def test_a_later_epoch_that_has_begun_stays_and_nothing_is_left_behind(tmp_path: Path) -> None:
    run = Run(tmp_path)
    Fence(run.folders, 7)
    with pytest.raises(SupersededError, match="epoch 7 has begun, this one is 6"):
        Fence(run.folders, 6)
    newest = Fence(run.folders, 8)
    write_bytes(run.ckpt / "a", b"1", durable=True, replace=newest.replacing)
    assert [len(list(folder.glob(".*"))) for folder in run.folders] == [1, 1, 1]
    for folder in run.folders:
        sweep_claims(folder)
    assert [path.name for folder in run.folders for path in folder.iterdir()] == ["a"]


def test_what_fails_for_another_reason_is_told_as_it_is(tmp_path: Path) -> None:
    fence = Fence([tmp_path], 1)
    (tmp_path / "a").mkdir()
    with pytest.raises(IsADirectoryError):
        write_bytes(tmp_path / "a", b"", durable=False, replace=fence.replacing)


def test_a_checkpoint_is_unlisted_if_no_index_names_it(tmp_path: Path) -> None:
    for n in (5, 6, 30):
        (tmp_path / f"iteration_{n}.pth.tar").write_bytes(b"")
    (tmp_path / "iteration_x.pth.tar").write_bytes(b"mine")
    index = CheckpointIndex(tmp_path)
    index.add(CheckpointRecord(6, 60, 1.0, None, "iteration_6.pth.tar", "0" * 64, "2026-01-01T00:00:00+00:00"))
    assert [path.name for path in unlisted(tmp_path, beyond=5)] == ["iteration_30.pth.tar"]
    index.folder.joinpath("index.json").write_text("damaged")
    assert unlisted(tmp_path, beyond=5) == []
