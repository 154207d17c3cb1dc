"""A file is either wholly the old one or wholly the new one, and nothing else is left lying about."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from remuda.storage.atomic import outlived, replacing, sweep_temporaries, write_all, write_bytes, write_text
from remuda.tests.patience import HANG_S


def test_a_file_outlives_the_one_that_takes_its_name(tmp_path: Path) -> None:
    path = tmp_path / "policy"
    path.write_bytes(b"old")
    with outlived(path) as old:
        write_bytes(path, b"new", durable=False)
        assert old is not None
        assert os.fstat(old).st_nlink == 0, "nobody else has it, so here it would have been freed"
        assert os.read(old, 10) == b"old"
        assert path.read_bytes() == b"new"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(old)


def test_what_a_call_leaves_over_is_written_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def writev(descriptor: int, buffers: list[memoryview]) -> int:
        calls.append(len(buffers))
        return os.write(descriptor, b"".join(buffers)[:5])

    monkeypatch.setattr("remuda.storage.atomic.os.writev", writev)
    with (tmp_path / "t").open("wb", buffering=0) as file:
        write_all(file.fileno(), [b"abc", b"", memoryview(b"defgh").cast("B"), bytearray(b"ijk")])
    assert (tmp_path / "t").read_bytes() == b"abcdefghijk"
    assert calls == [4, 2, 1]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failing_body_changes_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def fail() -> None:
        with replacing(path, durable=True) as temporary:
            temporary.write_bytes(b"half")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_only_durable_writes_are_synced_file_first_then_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []

    def spy(descriptor: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))

    monkeypatch.setattr(os, "fsync", spy)
    write_bytes(tmp_path / "chunk", b"x", durable=False)
    assert synced == []
    write_bytes(tmp_path / "policy", b"x", durable=True)
    assert len(synced) == 2
    assert synced[0].startswith(".policy.")
    assert synced[1] == tmp_path.name


def test_a_secret_is_never_readable_by_others(tmp_path: Path) -> None:
    path = tmp_path / "connection.json"
    path.write_bytes(b"old and open")
    path.chmod(0o644)
    write_text(path, "key", durable=True, mode=0o600)
    assert path.stat().st_mode & 0o777 == 0o600


def test_readers_see_whole_files_only(tmp_path: Path) -> None:
    path, size = tmp_path / "p", 200_000
    torn: list[int] = []
    write_bytes(path, b"\0" * size, durable=False)
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            data = path.read_bytes()
            if len(data) != size or data.count(data[:1]) != size:
                torn.append(len(data))

    reader = threading.Thread(target=read)
    reader.start()
    for version in range(100):
        write_bytes(path, bytes([version]) * size, durable=False)
    stop.set()
    reader.join(timeout=HANG_S)
    assert not reader.is_alive()
    assert torn == []


@pytest.mark.processes
def test_a_writer_killed_half_way_leaves_the_old_file_and_a_temporary_that_is_swept(tmp_path: Path) -> None:
    path = tmp_path / "policy"
    write_bytes(path, b"old", durable=False)
    script = (
        "import sys, time, pathlib\n"
        "from remuda.storage.atomic import replacing\n"
        "with replacing(pathlib.Path(sys.argv[1]), durable=True) as temporary:\n"
        "    temporary.write_bytes(b'half'); print('written', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        writer.send_signal(signal.SIGKILL)
        writer.wait(timeout=HANG_S)
    assert path.read_bytes() == b"old"
    assert len(os.listdir(tmp_path)) == 2
    assert sweep_temporaries(tmp_path, older_than_s=-1) == 1
    assert os.listdir(tmp_path) == ["policy"]


def test_sweeping_spares_the_young_and_the_foreign(tmp_path: Path) -> None:
    ours, young = tmp_path / ".chunk.12.0123abcd.tmp", tmp_path / ".chunk.13.0123abcd.tmp"
    foreign = [tmp_path / name for name in ("notes.tmp", ".hidden", ".a.b.c.tmp", "x.12.0123abcd.tmp")]
    for path in (ours, young, *foreign):
        path.touch()
        os.utime(path, (1_000, 1_000))
    os.utime(young, (1_950, 1_950))
    assert sweep_temporaries(tmp_path, older_than_s=100, now_s=2_000) == 1
    assert set(tmp_path.iterdir()) == {young, *foreign}
