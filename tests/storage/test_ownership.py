"""A folder belongs to one living process, which is named to whoever comes second."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from remuda.storage.lock import BOOT_ID, STALE_S, FolderOwnedError, Ownership

HOLDER = """
import sys, time
from pathlib import Path
from remuda.storage.lock import Ownership
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


@pytest.mark.parametrize(("age_s", "taken"), [(STALE_S / 2, True), (2 * STALE_S, False), (-2 * STALE_S, False)])
def test_an_owner_on_another_host(tmp_path: Path, age_s: float, taken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock that stamps files there: this machine's clock may be wrong. A copied file may be from the future."""
    path = tmp_path / ".owner"
    path.write_text("process 77 on elsewhere\n")
    confirmed_s = path.stat().st_mtime - age_s
    os.utime(path, (confirmed_s, confirmed_s))
    monkeypatch.setattr(time, "time", lambda: 0.0)
    if taken:
        with pytest.raises(FolderOwnedError, match=r"process 77 on elsewhere, which confirmed it \d+ s ago"):
            Ownership(path)
        assert path.read_text() == "process 77 on elsewhere\n", "nothing is taken from it"
    else:
        Ownership(path).release()


@pytest.mark.skipif(not BOOT_ID.exists(), reason="only Linux names the start of a machine")
@pytest.mark.parametrize(("boot", "taken"), [(None, False), ("01234567-another-start", True)])
def test_a_new_name_takes_over(tmp_path: Path, boot: str | None, taken: bool) -> None:
    """The lock is free, and it is the same machine's: so its owner is dead, however lately it confirmed."""
    path = tmp_path / ".owner"
    path.write_text(f"process 7 on 3f2a77\nboot {boot or BOOT_ID.read_text().strip()} at 1\n")
    if taken:
        with pytest.raises(FolderOwnedError, match=r"belongs to process 7 on 3f2a77, which confirmed it \d+ s ago"):
            Ownership(path)
    else:
        Ownership(path).release()


@pytest.mark.parametrize("other", ["process 8 on elsewhere\nboot x at 2\n", None])
def test_an_unnamed_owner_says_so_once(tmp_path: Path, other: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / ".owner"
    owner = Ownership(path)
    owner.confirm()
    assert capsys.readouterr().err == ""
    path.unlink()
    if other is not None:
        path.write_text(other)
        os.utime(path, (5, 5))
    for _ in range(2):
        owner.confirm()
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"by which process {os.getpid()} owns {tmp_path}" in said
    owner.release()
    if other is not None:
        assert "names process 8 on elsewhere as the owner" in said
        assert (path.read_text(), path.stat().st_mtime) == (other, 5.0)


def test_a_full_disk_keeps_nobody_from_owning_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that is started again has to know the runs whose disks are full."""
    path = tmp_path / ".owner"

    def refuse(*given: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(Path, "write_text", refuse)
        ownership = Ownership(path)
        ownership.confirm()
        with pytest.raises(FolderOwnedError):
            Ownership(path)
    assert path.read_text() == ""
    ownership.confirm()
    assert path.read_text().startswith(f"process {os.getpid()} on ")
    ownership.release()
    assert not path.exists()


@pytest.mark.parametrize("left", [b"", b"\xff\xfe\x00", b"\x1b[31mred\n" * 100])
def test_what_a_dead_owner_left_is_no_obstacle(tmp_path: Path, left: bytes) -> None:
    path = tmp_path / ".owner"
    path.write_bytes(left)
    os.utime(path, (0, 0))
    owner = Ownership(path)
    first, second = path.read_text().splitlines()
    assert first == f"process {os.getpid()} on {socket.gethostname()}"
    assert second.startswith("boot "), "nothing of it is left"
    owner.release()
    assert not path.exists()
