"""The lock excludes threads and processes, gives up at its deadline naming the holder, and dies with its holder."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from remuda.storage import lock
from remuda.storage.lock import LockTimeout, holding
from remuda.tests.patience import HANG_S

_HOLD = (
    "import sys, time, pathlib\n"
    "from remuda.storage.lock import holding\n"
    "with holding(pathlib.Path(sys.argv[1]), deadline_s=10):\n"
    "    print('held', flush=True); time.sleep(60)\n"
)


def test_it_can_be_taken_again_once_released(tmp_path: Path) -> None:
    for _ in range(3):
        with holding(tmp_path / "l", deadline_s=1):
            assert (tmp_path / "l").exists()
    assert (tmp_path / "l").exists(), "removing a lock file would split its waiters"


def test_it_is_released_when_the_body_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), holding(tmp_path / "l", deadline_s=1):
        raise ZeroDivisionError
    with holding(tmp_path / "l", deadline_s=0):
        pass


def test_another_thread_waits_only_until_its_deadline_and_learns_who_holds(tmp_path: Path) -> None:
    failures: list[LockTimeout] = []

    def contend() -> None:
        try:
            with holding(tmp_path / "l", deadline_s=0.02):
                pass
        except LockTimeout as error:
            failures.append(error)

    with holding(tmp_path / "l", deadline_s=1):
        thread = threading.Thread(target=contend)
        thread.start()
        thread.join(timeout=HANG_S)
    assert len(failures) == 1
    assert failures[0].path == tmp_path / "l"
    assert failures[0].holder == f"{socket.gethostname()}:{os.getpid()}"
    assert str(tmp_path / "l") in str(failures[0])
    assert "0.02 s" in str(failures[0])
    assert f":{os.getpid()}" in str(failures[0])


def test_threads_take_turns(tmp_path: Path) -> None:
    inside, overlaps, turns = [0], [0], 8

    def work() -> None:
        for _ in range(turns):
            with holding(tmp_path / "l", deadline_s=60):
                inside[0] += 1
                overlaps[0] += inside[0] != 1
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=HANG_S)
    assert not any(thread.is_alive() for thread in threads)
    assert overlaps == [0]


def test_a_signature_that_is_not_text_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_KERNEL_LOCKS", tmp_path / "of another system")
    (tmp_path / "l").write_bytes(b"\x1b[31mevil\n\xff")
    with open(tmp_path / "l", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(LockTimeout) as caught, holding(tmp_path / "l", deadline_s=0):
            pass
    assert caught.value.holder is None
    assert "\x1b" not in str(caught.value)


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only Linux tells who holds a lock")
def test_a_reader_with_a_lock_of_its_own_making_is_named_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "l").write_text("elsewhere:1\n")  # who took it last has signed
    with open(tmp_path / "l", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        with pytest.raises(LockTimeout) as caught, holding(tmp_path / "l", deadline_s=0):
            pass
    assert caught.value.holder == f"{socket.gethostname()}:{os.getpid()}"


def test_a_shorter_signature_replaces_a_longer_one(tmp_path: Path) -> None:
    (tmp_path / "l").write_bytes(b"x" * 400)
    with holding(tmp_path / "l", deadline_s=1):
        pass
    assert (tmp_path / "l").read_text() == f"{socket.gethostname()}:{os.getpid()}\n"


@pytest.mark.processes
def test_a_stopped_process_is_named_and_a_killed_one_frees_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "l"
    with subprocess.Popen([sys.executable, "-c", _HOLD, str(path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        holder.send_signal(signal.SIGSTOP)
        with pytest.raises(LockTimeout, match=f":{holder.pid} ") as caught, holding(path, deadline_s=0.05):
            pass
        assert caught.value.holder == f"{socket.gethostname()}:{holder.pid}"
        holder.send_signal(signal.SIGKILL)
        holder.wait(timeout=HANG_S)
    with holding(path, deadline_s=5):
        pass
