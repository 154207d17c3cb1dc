"""39. Logs that are cut, rotated, truncated and full of junk, at 50 MB a minute, as `remuda logs` has them."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import Herd
from remuda.tests.faults.sizes import LOGS_S, within
from remuda.tests.parallel.user_folder import UserFolder
from remuda.tests.patience import HANG_S, until
from remuda.tests.warm.program import REMUDA

pytestmark = pytest.mark.processes

WORKERS = ("aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000002")
HEADS = {"collector aaaaaaaa.1": 0, "collector bbbbbbbb.1": 1}
MOST_MEMORY_BYTES = 50 << 20

WRITER = r"""
import itertools, os, random, signal, sys, time

path, total_s, bytes_per_s, trouble = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
random, file = random.Random(trouble), open(path, "ab", buffering=0)
begin_s, written, done = time.monotonic(), 0, False
for number in itertools.count():
    elapsed_s = time.monotonic() - begin_s
    if elapsed_s > total_s:
        break
    if not done and elapsed_s > total_s / 2:
        done = True
        if trouble == "rotated":
            os.rename(path, path + ".1")
            file.write(b"line %08d %017.6f |written after the file had another name\n" % (number, time.monotonic()))
            file = open(path, "ab", buffering=0)
            continue
        file.truncate(0)
    kind = random.randrange(2_000)
    junk = b"x" * (1 << 20) if kind == 0 else (
        random.randbytes(2_000).replace(b"\n", b"") if kind < 200 else
        b"\x1b[2J\x1b]0;title\x07 \r over it" if kind < 400 else b"plain " * 30)
    line = b"line %08d %017.6f |%b\n" % (number, time.monotonic(), junk)
    file.write(line)
    written += len(line)
    time.sleep(max(0.0, begin_s + written / bytes_per_s - time.monotonic()))
file.write(b"line %08d %017.6f |cut in the mid" % (number, time.monotonic()))
os.kill(os.getpid(), signal.SIGKILL)
"""


@dataclass
class Follower:
    """`remuda logs -f`, and what it has shown."""

    process: subprocess.Popen[bytes]
    numbers: dict[int, list[int]] = field(default_factory=lambda: defaultdict[int, list[int]](list))
    lags_s: list[float] = field(default_factory=list[float])
    strange: list[bytes] = field(default_factory=list[bytes])
    heads: set[str] = field(default_factory=set[str])
    """Whose lines have come."""
    controls: int = 0

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def join(self) -> None:
        """Once the command has ended."""
        self._thread.join(HANG_S)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            match = re.match(rb"\[(collector \w{8}\.1)\] (?:line (\d{8}) (\d{10}\.\d{6}) \|)?", line)
            if match is None or match[1].decode() not in HEADS:
                self.strange.append(line[:100])
                continue
            self.heads.add(match[1].decode())
            if match[2] is not None:
                self.numbers[HEADS[match[1].decode()]].append(int(match[2]))
                if b"cut in the mid" not in line:  # that waits until nobody can write any more
                    self.lags_s.append(time.monotonic() - float(match[3]))
            self.controls += sum(line.count(bytes([byte])) for byte in (0x1B, 0x07, 0x0D))
        self.process.stdout.close()


def test_everything_comes_attributed_in_time_and_in_bounded_memory(tmp_path: Path, herds: Herds) -> None:
    """Of a rotated log nothing is missing; of a truncated one, what stood there unread; a dead worker's last lines are
    shown; nothing reaches the terminal but text."""
    user, herd = UserFolder.make(tmp_path / "user"), herds()
    coordinator = psutil.Process(herd.coordinator().pid)
    run = herd.submit(user)
    logs = [run / "log" / "collector" / f"{uuid}_000001_logger.txt" for uuid in WORKERS]
    for log in logs:
        log.parent.mkdir(exist_ok=True)
        log.write_text("it begins\n")
    following = _command(herd, "collector", "-f", "-n", "100000")
    follower = Follower(subprocess.Popen(following, stdout=subprocess.PIPE, cwd=herd.root))
    command = psutil.Process(follower.process.pid)
    until(lambda: follower.heads == set(HEADS), "it follows both")
    before = [process.memory_info().rss for process in (coordinator, command)]
    writers = [
        herd.start("writer", sys.executable, "-S", "-c", WRITER, log, LOGS_S, 50e6 / 60 / len(logs), trouble)
        for log, trouble in zip(logs, ("rotated", "truncated"), strict=True)
    ]
    for writer in writers:
        assert writer.wait(LOGS_S + HANG_S) < 0, "each dies in the middle of a line"
    until(lambda: all(_shown(follower, number, log) for number, log in enumerate(logs)), "everything is shown")
    after = [process.memory_info().rss for process in (coordinator, command)]
    last = subprocess.run(_command(herd, WORKERS[0][:8], "-n", "200"), capture_output=True, timeout=HANG_S, check=True)
    herd.stop()
    assert follower.process.wait(HANG_S) == 0, "it ends when the run is over"
    follower.join()
    herd.shut_down()
    grown = [(now - then) / 2**20 for now, then in zip(after, before, strict=True)]
    print(
        f"39: {sum(map(len, follower.numbers.values()))} lines, at most {max(follower.lags_s):.2f} s late; "
        f"coordinator {grown[0]:+.1f} MiB, command {grown[1]:+.1f} MiB"
    )
    assert follower.strange == []
    assert follower.controls == 0
    rotated, truncated = follower.numbers[0], follower.numbers[1]
    assert rotated == list(range(len(rotated)))
    assert truncated == sorted(set(truncated))
    assert [now - then for then, now in pairwise(truncated) if now > then + 1][1:] == []
    assert within(max(follower.lags_s), 2.0)
    assert max(grown) * 2**20 < MOST_MEMORY_BYTES
    shown = re.findall(rb"line (\d{8})", last.stdout)
    assert [int(number) for number in shown] == rotated[-1 - len(shown) : -1], "all but the one that was cut"
    assert len(last.stdout.splitlines()) >= 199


def _shown(follower: Follower, log_number: int, log: Path) -> bool:
    """Whether the last whole line of a log has come."""
    last = [int(number) for number in re.findall(rb"^line (\d{8}) ", log.read_bytes(), re.MULTILINE)][-2]
    return last in follower.numbers[log_number][-3:]


def _command(herd: Herd, source: str, *options: str) -> list[str]:
    place = ["--connection-file", str(herd.connection_file)]
    return [str(REMUDA), "logs", "horse", "--source", source, *options, *place]
