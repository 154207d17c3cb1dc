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

from remuda.storage.lock import LockTimeout, holding
from remuda.tests.patience import HANG_S

_HOLD = (
    "import sys, time, pathlib\n"
    "from remuda.storage.lock import holding\n"
    "with holding(pathlib.Path(sys.argv[1]), deadline_s=10):\n"
    "    print('held', flush=True); time.sleep(60)\n"
)


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


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only Linux tells who holds a lock")
def test_a_reader_with_a_lock_of_its_own_making_is_named_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "l").write_text("elsewhere:1\n")  # who took it last has signed
    with open(tmp_path / "l", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        with pytest.raises(LockTimeout) as caught, holding(tmp_path / "l", deadline_s=0):
            pass
    assert caught.value.holder == f"{socket.gethostname()}:{os.getpid()}"


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
