"""Workers of a run are killed and frozen, clocks jump, a nanny dies: no step is lost or counted twice."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from remuda.buffer.chunk import read_chunk
from remuda.buffer.episodes import read_dataset
from remuda.policy.files.policy_file import read_ref
from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import ENDLESS, IN_WORK, Herd, Journal, assert_exact, assert_exact_run, customized, kill
from remuda.tests.faults.sizes import within
from remuda.tests.parallel.reading import texts
from remuda.tests.parallel.user_folder import UserFolder
from remuda.tests.patience import until
from remuda.tests.runner.test_offline import walked
from remuda.wire.messages import PolicyRef, WorkerStatus

pytestmark = pytest.mark.processes

LOST_AFTER_S, BEAT_S = 4.0, 1.0
UPDATES = 400
OFFLINE: dict[str, dict[str, object]] = {
    "learner": {"batch_size": 4096},  # an update takes some time, so that the learner dies before the last
    "checkpoint": {"interval_env_steps": 50},
    "stop": {"max_train_iters": UPDATES},
}
HASTY = """
import sys
from pathlib import Path
from remuda.deploy import supervision
from remuda.deploy.nanny import new_workers, supervise
supervision.FIRST_DELAY_S = 0.1
sys.exit(supervise(new_workers({"collector": 1}), Path(sys.argv[1])))
"""
"""A nanny that starts a killed collector again within 200 ms."""
JUMPS = """
import time
real, begin = time.time, time.monotonic()
time.time = lambda: real() + 3600.0 * (-1) ** int(time.monotonic() - begin)
"""


@contextmanager
def watched_policy(folder: Path) -> Generator[list[PolicyRef]]:
    """Look at the policy files all the time; yields what was seen, in its order."""
    seen, over = list[PolicyRef](), threading.Event()

    def watch() -> None:
        while not over.wait(0.005):
            for path in folder.glob("policy_*"):
                ref = None if path.suffix == ".lock" else read_ref(path)
                if ref is not None and (not seen or seen[-1] != ref):
                    seen.append(ref)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def test_killed_and_frozen_workers_leave_the_counters_exact(tmp_path: Path, herds: Herds) -> None:
    """2, 6, 7, 10, 21. The wall clocks of all processes jump by an hour each second."""
    user = UserFolder.make(tmp_path / "user", ENDLESS)
    herd = herds(f"lost_after_s={LOST_AFTER_S}", env=customized(tmp_path / "clock", JUMPS))
    herd.coordinator()
    herd.workers(collectors=1, evaluators=1, learners=2)
    hasty = herd.start("nanny", sys.executable, "-c", HASTY, herd.connection_file)
    herd.wait_members(5)
    run = herd.submit(user)
    herd.wait_env_step("horse", 500)
    assert "is lost" not in herd.said()
    with watched_policy(run / "policy") as seen:
        killed_collector_serves_again(herd, hasty.pid)
        frozen = frozen_for_longer_than_the_limit(herd, hasty.pid)
        until(lambda: seen[-1].epoch >= 2, "the next learner has published")
        for one in frozen:
            kill(one.pid, signal.SIGCONT)
        herd.wait_members(5)
        herd.wait_env_step("horse", herd.experiment("horse").env_step + 1_000)
    herd.stop()
    no_worker_outlives_its_killed_nanny(herd, hasty.pid)
    herd.shut_down()
    assert_exact(herd, run, user, lost_at_most=2 * IN_WORK)
    versions = [(ref.epoch, ref.version) for ref in seen]
    assert versions == sorted(set(versions)), "no reader sees an older policy after a newer one"
    assert len(texts(run / "log" / "learner" / "learner_logger.txt", "[RANK0]")) >= 2


def killed_collector_serves_again(herd: Herd, hasty: int) -> None:
    """Kill the child of this nanny, whose next incarnation works soon under the same UUID."""
    killed = next(member for member in herd.members("collector") if psutil.Process(member.pid).ppid() == hasty)
    kill(killed.pid)
    begin_s = time.monotonic()

    def works() -> bool:
        found = [member for member in herd.members("collector") if member.uuid == killed.uuid]
        return bool(found) and found[0].incarnation == 2 and found[0].state == "busy"

    until(works, "the collector works again")
    print(f"2: served again after {time.monotonic() - begin_s:.2f} s")
    assert within(time.monotonic() - begin_s, 2.0)


def frozen_for_longer_than_the_limit(herd: Herd, hasty: int) -> list[WorkerStatus]:
    """Freeze the other collector and the learner: both are lost, and the run goes on without them."""
    other = next(one for one in herd.members("collector") if psutil.Process(one.pid).ppid() != hasty)
    frozen = [other, herd.worker_of("learner", "horse")]
    env_step = herd.experiment("horse").env_step
    for one in frozen:
        kill(one.pid, signal.SIGSTOP)
    begin_s = time.monotonic()
    uuids = {one.uuid for one in frozen}
    until(lambda: not uuids & {worker.uuid for worker in herd.members()}, "both are lost")
    lost_s = time.monotonic() - begin_s
    print(f"7: lost after {lost_s:.2f} s with a limit of {LOST_AFTER_S} s")
    assert within(lost_s, LOST_AFTER_S + 2 * BEAT_S)
    herd.wait_env_step("horse", env_step + 500)
    time.sleep(max(0.0, 1.5 * LOST_AFTER_S - (time.monotonic() - begin_s)))
    for one in frozen:
        silent = re.search(rf"{one.role} {one.uuid} is lost: silent for ([0-9.]+) s", herd.said())
        assert silent is not None
        assert float(silent[1]) >= LOST_AFTER_S
    return frozen


def no_worker_outlives_its_killed_nanny(herd: Herd, nanny: int) -> None:
    children = psutil.Process(nanny).children()
    assert len(children) == 1
    kill(nanny)
    until(lambda: len(herd.members()) == 4, "its collector has left")
    until(lambda: not any(child.is_running() for child in children), "its process is gone")


def test_a_dataset_is_handed_in_once_whoever_dies(tmp_path: Path, herds: Herds) -> None:
    """A collector dies while it reads, the next with the coordinator as soon as its rows are in data/, then the
    learner."""
    pytest.importorskip("minari", reason="needs pip install 'remuda[datasets]'")
    dataset = walked(tmp_path / "walks-v0", 1_500, features=3)
    user, herd = UserFolder.make(tmp_path / "user", OFFLINE), herds()
    coordinator = herd.coordinator()
    herd.workers(collectors=1)
    herd.wait_members(3)
    metadata = dataset / "data" / "metadata.json"
    content = metadata.read_bytes()
    metadata.unlink()
    os.mkfifo(metadata)
    run = herd.submit(user, "horse", 0, f"collector.dataset={dataset}")
    pipe = opened_for_its_reader(metadata)
    metadata.unlink()
    metadata.write_bytes(content)
    kill(herd.worker_of("collector", "horse").pid)
    os.close(pipe)
    until(lambda: [*(run / "data").glob("*.safetensors")], "the next collector has stored the rows")
    kill(herd.worker_of("collector", "horse").pid)
    coordinator.kill()
    coordinator.wait()
    herd.coordinator()
    herd.wait_env_step("horse", 60)
    herd.kill_worker("learner", "horse")
    status = herd.wait_over("horse")
    assert (status.train_iter, status.env_step) == (UPDATES, UPDATES), "updates count as steps, each once"
    herd.shut_down()
    assert_exact_run(run, all_kept=False)
    (chunk,) = Journal.of(run).chunks
    rows, episodes = read_chunk(run / "data" / chunk.meta.file, chunk.meta), read_dataset(dataset).episodes
    np.testing.assert_array_equal(rows["obs"], episodes.observations[episodes.observed])
    assert texts(run / "log" / "learner" / "learner_logger.txt", "loaded checkpoint")


def opened_for_its_reader(pipe: Path) -> int:
    """Open a pipe once somebody reads it, who then waits for its content."""
    opened: list[int] = []

    def is_read() -> bool:
        with suppress(OSError):  # nobody reads
            opened.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        return bool(opened)

    until(is_read, f"somebody reads {pipe}")
    return opened[0]
