"""The policy file among processes: a learner that is killed while it publishes, and more readers than cores."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from remuda.policy.files.policy_file import publish
from remuda.storage.atomic import sweep_temporaries
from remuda.tests.faults.sizes import LONG, PUBLISHER_KILLS, READERS_S, within
from remuda.tests.warm.popen import Popen
from remuda.wire.messages import PolicyRef

pytestmark = pytest.mark.processes

READERS, READS_PER_S = 64 if LONG else 16, 20
WEIGHTS = 50_000
"""200 kB, as float32."""

KILLED = """
import os, random, signal, sys, time
from pathlib import Path
import numpy as np
from remuda.policy.files.policy_file import load, publish
from remuda.wire.messages import PolicyRef

def weights(epoch):
    return {"w": np.full(20_000, float(epoch))}

def be_reader(path):
    last, reads = None, 0
    while os.getppid() == parent:
        loaded = load(path, deadline_s=0.0)
        assert (loaded.state["w"] == loaded.ref.epoch).all(), "torn"
        assert last is None or loaded.ref >= last, "went back"
        last, reads = loaded.ref, reads + 1
        if (path.parent / "over").exists():
            print(reads, flush=True)
            return

path, kills, random, parent = Path(sys.argv[1]), int(sys.argv[2]), random.Random(0), os.getpid()
begin_s = time.monotonic()
for version in range(10):
    publish(path, weights(0), PolicyRef(0, version, 0), warn=print)
longest_s = max(0.01, 4 * (time.monotonic() - begin_s) / 10)
readers = []
for _ in range(2):
    readers.append(os.fork())
    if readers[-1] == 0:
        be_reader(path)
        os._exit(0)  # not reached where an assertion failed
for epoch in range(1, kills + 1):
    child = os.fork()
    if child == 0:
        for version in range(10**9):
            publish(path, weights(epoch), PolicyRef(epoch, version, version), warn=print)
    while epoch % 2 and load(path).ref.epoch < epoch:
        time.sleep(0.001)  # every other child has published something, on the slowest machine
    time.sleep(random.random() * longest_s)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
(path.parent / "over").touch()
assert [os.waitpid(reader, 0)[1] for reader in readers] == [0, 0]
print(load(path).ref.epoch)
"""


def test_a_learner_killed_at_hundreds_of_moments_of_publishing(tmp_path: Path) -> None:
    """17. Readers beside it see no torn and no older policy; what it leaves is swept by the next one."""
    path = tmp_path / "policy"
    command = [sys.executable, "-c", KILLED, str(path), str(PUBLISHER_KILLS)]
    with Popen(command, stdout=subprocess.PIPE) as done:
        *reads, last_epoch = map(int, done.communicate()[0].split())
    assert done.returncode == 0
    print(f"17: killed {PUBLISHER_KILLS} times while {reads} policies were read whole and in order")
    assert min(reads) > 0
    assert last_epoch >= PUBLISHER_KILLS - 1
    assert len(list(tmp_path.iterdir())) > 3, "at none of these moments was a file half written"
    sweep_temporaries(tmp_path, older_than_s=-1.0)  # what the next learner does at its start
    assert {entry.name for entry in tmp_path.iterdir()} == {"policy", "policy.lock", "over"}


READS = """
import json, os, sys, time
from pathlib import Path
from remuda.policy.files.policy_file import load

path, readers, end_s = Path(sys.argv[1]), int(sys.argv[2]), time.monotonic() + float(sys.argv[3])
interval_s = 1 / float(sys.argv[4])
for number in range(readers):
    if os.fork() == 0:
        waits_s, last, next_s = [], None, time.monotonic() + interval_s * number / readers
        while (now_s := time.monotonic()) < end_s or not waits_s:
            time.sleep(max(0.0, next_s - now_s))
            next_s = max(next_s + interval_s, time.monotonic() - interval_s)
            begin_s = time.monotonic()
            loaded = load(path)
            waits_s.append(time.monotonic() - begin_s)
            assert last is None or loaded.ref >= last, "went back"
            assert (loaded.state["w"] == loaded.ref.version).all(), "torn"
            last = loaded.ref
        Path(sys.argv[5], str(number)).write_text(json.dumps(waits_s))
        os._exit(0)
codes = [os.waitpid(-1, 0)[1] for _ in range(readers)]
sys.exit(any(codes))
"""


def test_many_readers_hold_up_neither_the_learner_nor_each_other(tmp_path: Path) -> None:
    """18. Each reads 20 times a second: nobody starves."""
    path, waits, took_s = tmp_path / "policy", tmp_path / "waits", list[float]()
    waits.mkdir()

    def publish_version(version: int) -> None:
        weights = {"w": np.full(WEIGHTS, float(version), np.float32)}
        publish(path, weights, PolicyRef(1, version, version), warn=pytest.fail)

    publish_version(0)
    arguments = (path, READERS, READERS_S, READS_PER_S, waits)
    with Popen([sys.executable, "-c", READS, *map(str, arguments)]) as readers:
        while readers.poll() is None:
            begin_s = time.monotonic()
            publish_version(1 + len(took_s))
            took_s.append(time.monotonic() - begin_s)
            time.sleep(0.05)
    assert readers.returncode == 0
    waited_s: list[list[float]] = [json.loads(file.read_text()) for file in waits.iterdir()]
    assert len(waited_s) == READERS
    fewest = min(map(len, waited_s))
    publish_p99_s, read_p99_s = np.quantile(took_s, 0.99), np.quantile(np.concatenate(waited_s), 0.99)
    print(
        f"18: {len(took_s)} policies, p99 {1e3 * publish_p99_s:.1f} ms, worst {1e3 * max(took_s):.1f} ms; "
        f"reads by {READERS}, p99 {1e3 * read_p99_s:.1f} ms, the fewest by one: {fewest}"
    )
    assert within(float(publish_p99_s), 0.1)
    assert within(float(read_p99_s), 0.05)
    assert fewest >= (0.5 * READS_PER_S * READERS_S if LONG else 1), "a reader starved"
