"""A folder belongs to one living process, which is named to whoever comes second."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.storage.ownership import STALE_S, FolderOwnedError, Ownership

HOLDER = """
import sys, time
from pathlib import Path
from remuda.storage.ownership import Ownership
owner = Ownership(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def test_the_second_is_told_who_was_first(tmp_path: Path) -> None:
    first = Ownership(tmp_path / ".owner")
    with pytest.raises(FolderOwnedError, match=rf"belongs to process {os.getpid()} on {socket.gethostname()}"):
        Ownership(tmp_path / ".owner")
    first.release()
    first.release()
    assert not (tmp_path / ".owner").exists()
    Ownership(tmp_path / ".owner").release()


@pytest.mark.processes
def test_death_frees_it_at_once(tmp_path: Path) -> None:
    path = tmp_path / ".owner"
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(FolderOwnedError, match=f"process {holder.pid} on"):
            Ownership(path)
        os.kill(holder.pid, signal.SIGKILL)
    Ownership(path).release()


@pytest.mark.parametrize(("age_s", "taken"), [(STALE_S / 2, True), (2 * STALE_S, False)])
def test_an_owner_on_a_host_whose_locks_are_not_seen_here(tmp_path: Path, age_s: float, taken: bool) -> None:
    path = tmp_path / ".owner"
    path.write_text("process 77 on elsewhere\n")
    then_s = path.stat().st_mtime - age_s
    os.utime(path, (then_s, then_s))
    if taken:
        with pytest.raises(FolderOwnedError, match="process 77 on elsewhere, which confirmed it 30 s ago"):
            Ownership(path)
        assert path.read_text() == "process 77 on elsewhere\n", "nothing is taken from it"
    else:
        Ownership(path).release()


def test_confirming_shows_it_is_alive(tmp_path: Path) -> None:
    path = tmp_path / ".owner"
    owner = Ownership(path)
    os.utime(path, (0, 0))
    owner.confirm()
    assert path.stat().st_mtime > 1_000_000_000
    owner.release()


@pytest.mark.parametrize("left", [b"", b"\xff\xfe\x00", b"\x1b[31mred\n" * 100])
def test_what_a_dead_owner_left_is_no_obstacle(tmp_path: Path, left: bytes) -> None:
    path = tmp_path / ".owner"
    path.write_bytes(left)
    os.utime(path, (0, 0))
    owner = Ownership(path)
    assert path.read_text() == f"process {os.getpid()} on {socket.gethostname()}\n", "nothing of it is left"
    owner.release()
    assert not path.exists()
