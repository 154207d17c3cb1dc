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
from remuda.storage.atomic import write_bytes
from remuda.storage.checkpoint_index import unlisted
from remuda.storage.fence import Fence, SupersededError, sweep_claims
from remuda.tests.patience import HANG_S
from remuda.wire.messages import Counters, PolicyRef

CALLS = ("mkdir", "rmdir", "rename", "replace", "unlink", "listdir", "scandir", "link", "stat", "open", "writev")
BEGINNING_CALLS = 10
"""Calls in which a learner begins: all pairs of these are tried, and all points of the older with
the newer at its end."""
STRIDE = 53
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


def learner(run: Run, epoch: int) -> None:
    """Begin, publish, save, export and publish as LearnerWork does. End when replaced."""
    try:
        fence = Fence(run.folders, epoch)
        replace = fence.replacing
        for path in unlisted(run.ckpt, beyond=5):
            fence.remove(path)
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


def play(root: Path, older_stops: int, newer_stops: int) -> tuple[Run, Process, Process]:
    run = Run(root)
    older = Process(partial(learner, run, 1), older_stops)
    newer = Process(partial(learner, run, 2), newer_stops)
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
    _, older, newer = play(tmp_path / "whole", 10_000, 10_000)
    assert min(older.calls, newer.calls) > 40
    for older_stops in range(older.calls + 1):
        for newer_stops in range(newer.calls + 1):
            both_begin = max(older_stops, newer_stops) < BEGINNING_CALLS
            if both_begin or newer_stops == newer.calls or (older_stops + newer_stops) % STRIDE == 0:
                run, _, _ = play(tmp_path / f"{older_stops}-{newer_stops}", older_stops, newer_stops)
                assert wrong(run) == [], f"the older stopped before call {older_stops}, the newer before {newer_stops}"


def test_a_later_epoch_that_has_begun_stays_and_nothing_is_left_behind(tmp_path: Path) -> None:
    run = Run(tmp_path)
    Fence(run.folders, 7)
    with pytest.raises(SupersededError, match="epoch 7 has begun, this writer has epoch 6"):
        Fence(run.folders, 6)
    newest = Fence(run.folders, 8)
    write_bytes(run.ckpt / "a", b"1", durable=True, replace=newest.replacing)
    assert [len(list(folder.glob(".*"))) for folder in run.folders] == [1, 1, 1]
    for folder in run.folders:
        sweep_claims(folder)
    assert [path.name for folder in run.folders for path in folder.iterdir()] == ["a"]
