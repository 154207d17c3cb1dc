"""Temporary folders of processes: a living one keeps its own, and those of killed ones are removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from remuda.storage.held_folder import HeldFolder

HOLDING = """
import sys, time
from remuda.storage.held_folder import HeldFolder
folder = HeldFolder("horse-", "other")
(folder.path / "secret").touch()
print(folder.path, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def make_old(folder: Path) -> None:
    long_ago_s = time.time() - 3_600.0
    os.utime(folder, (long_ago_s, long_ago_s))


def test_it_is_open_to_its_owner_alone_and_can_be_removed_twice(place: Path) -> None:
    folder = HeldFolder("horse-", "mine")
    assert folder.path == place / "horse-mine"
    assert folder.path.stat().st_mode & 0o777 == 0o700
    (folder.path / "file").touch()
    folder.remove()
    folder.remove()
    assert list(place.iterdir()) == []


def test_what_a_former_process_left_under_its_name_is_gone(place: Path) -> None:
    (place / "horse-mine").mkdir()
    (place / "horse-mine" / "secret").touch()
    folder = HeldFolder("horse-", "mine")
    assert list(folder.path.iterdir()) == []
    folder.remove()


def test_a_former_process_that_ends_late_leaves_the_folder_of_its_successor(place: Path) -> None:
    former, successor = HeldFolder("horse-", "mine"), HeldFolder("horse-", "mine")
    (successor.path / "file").touch()
    former.remove()
    assert (successor.path / "file").exists()
    successor.remove()
    assert list(place.iterdir()) == []


@pytest.mark.processes
def test_the_folder_of_another_is_removed_once_its_process_is_dead(place: Path) -> None:
    with subprocess.Popen([sys.executable, "-P", "-c", HOLDING], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            held = Path(other.stdout.readline().strip())
            make_old(held)
            HeldFolder("horse-", "mine").remove()
            assert (held / "secret").exists(), "its process lives"
        finally:
            other.send_signal(signal.SIGKILL)
    HeldFolder("horse-", "mine").remove()
    assert list(place.iterdir()) == []


def test_a_young_folder_and_one_with_another_beginning_stay(place: Path) -> None:
    for name in ("horse-young", "cow-old"):
        (place / name).mkdir()
    make_old(place / "cow-old")
    HeldFolder("horse-", "mine").remove()
    assert sorted(path.name for path in place.iterdir()) == ["cow-old", "horse-young"]
