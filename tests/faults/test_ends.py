"""Ends that somebody asks for or forces: signals, SIGKILL of everything, another coordinator, another protocol."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import Journal, assert_exact, make_user, wait_until
from remuda.tests.faults.test_processes import ENDLESS, IN_WORK, LONG
from remuda.tests.logbook.event_reader import curves
from remuda.tests.parallel.command import REMUDA, Command
from remuda.tests.parallel.reading import index, pids, progress
from remuda.tests.parallel.user_folder import CONFIG, HELD

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]


def test_a_second_coordinator_is_refused_and_told_who_was_first(herds: Herds) -> None:
    """16. Within two seconds, with exit code 2, and the first notices nothing."""
    herd = herds()
    first = herd.coordinator()
    begin_s = time.monotonic()
    second = subprocess.run(
        [REMUDA, "coordinator", "--runs-dir", herd.runs], capture_output=True, text=True, timeout=20, check=False
    )
    print(f"16: refused after {time.monotonic() - begin_s:.2f} s")
    assert second.returncode == 2
    assert f"process {first.pid} on " in second.stderr
    assert "two coordinators cannot share a runs folder" in second.stderr
    assert herd.status().coordinator.pid == first.pid
    herd.shut_down()


SPEAKS = """
import sys
from remuda.wire import codec, connection_file, messages
import remuda.deploy.roles as roles
for module in (codec, connection_file, messages, roles):
    if hasattr(module, "PROTOCOL_VERSION"):
        module.PROTOCOL_VERSION = int(sys.argv[1])
from pathlib import Path
from remuda.deploy.nanny import make_slots, supervise
sys.exit(supervise(make_slots({"collector": 1}), Path(sys.argv[2])))
"""


def test_a_worker_of_another_protocol_leaves_with_exit_code_3(herds: Herds, tmp_path: Path) -> None:
    """4. Told by the connection file, or by the coordinator where that file does not tell; nobody else is disturbed."""
    herd = herds()
    herd.coordinator()
    by_file = herd.start("other", sys.executable, "-c", SPEAKS, 0, herd.connection_file)
    lying = tmp_path / "lying.json"
    lying.write_text(json.dumps(json.loads(herd.connection_file.read_text()) | {"protocol": 2}))
    lying.chmod(0o600)
    by_word = herd.start("other", sys.executable, "-c", SPEAKS, 2, lying)
    assert (by_file.wait(40), by_word.wait(40)) == (3, 3), herd.said()
    said = herd.said()
    assert "the coordinator speaks protocol 1, this Remuda protocol 0" in said
    assert said.count("is not started again: it was refused") == 2
    assert herd.members() == []
    herd.shut_down()


def test_a_worker_that_is_asked_to_end_hands_in_what_it_has(tmp_path: Path, herds: Herds) -> None:
    """37. `remuda worker` ends with exit code 0 at SIGTERM and says goodbye; every step its collector took counts."""
    user, herd = make_user(tmp_path / "user", {**LONG, "collector": {**CONFIG["collector"], "count": 1}}), herds()
    herd.coordinator()
    herd.workers(collectors=0)
    first = herd.worker("collector")
    herd.wait_members(3)
    run = herd.submit(user)
    herd.wait_env_step("horse", 500)
    begin_s = time.monotonic()
    first.terminate()
    assert first.wait(10) == 0
    print(f"37: ended {time.monotonic() - begin_s:.2f} s after SIGTERM")
    assert "leaves the herd: asked to by SIGTERM" in herd.said()
    herd.worker("collector")
    herd.wait_over("horse")
    herd.shut_down()
    assert assert_exact(herd, run, user) >= 6_000


def test_a_second_signal_ends_coordinator_and_workers_at_once(tmp_path: Path, herds: Herds) -> None:
    """37. Within five seconds, though environments hang; what was counted is on disk."""
    user, herd = make_user(tmp_path / "user", HELD), herds()
    user.hold()
    coordinator = herd.coordinator()
    nanny = herd.workers()
    herd.wait_members(4)
    run = herd.submit(user)
    wait_until(lambda: user.held(life.pid for life in herd.lives("collector")), 30, "its environments hang")
    begin_s = time.monotonic()
    for process in (coordinator, nanny):
        process.send_signal(signal.SIGTERM)
    time.sleep(0.6)  # nearer together they would be one request
    for living in herd.family():
        living.send_signal(signal.SIGTERM)
    assert coordinator.wait(5) == 130
    wait_until(lambda: not herd.family(), 5 - (time.monotonic() - begin_s), "everybody is gone")
    assert Journal.of(run).memory.experiment.experience.ledger.env_steps > 0
    assert "Traceback" not in herd.said()


def test_everything_killed_and_resumed(tmp_path: Path) -> None:
    """38. Counters never fall and stay exact; at most the chunks in work are lost; no row and no point comes twice."""
    user, run = make_user(tmp_path / "user", ENDLESS), tmp_path / "run"
    first = Command(tmp_path / "first", user.root, "launch", user.config, "--run-dir", run)
    second = None
    try:
        wait_until(lambda: (run / "ckpt" / "index.json").exists() and index(run)["last"] > 400, 40, "it trains")
        for process in first.family():
            process.kill()
        first.process.kill()
        first.process.wait()
        wait_until(lambda: not first.family(), 10, "everything is dead")
        before = index(run)["checkpoints"][-1]["env_step"]
        counted = Journal.of(run).memory.experiment.experience.ledger.env_steps
        goal = ("--set", f"stop.max_env_steps={counted + 3_000}")
        second = Command(tmp_path / "second", user.root, "launch", user.config, "--run-dir", run, "--resume", *goal)
        ended = second.ended(60)
        assert ended.code == 0, ended.err
        assert second.family() == []
    finally:
        for command in filter(None, (first, second)):
            command.end()
    env_step = index(run)["checkpoints"][-1]["env_step"]
    assert env_step >= counted + 3_000 > before
    assert Journal.of(run).memory.experiment.experience.ledger.env_steps == env_step
    taken = sum(map(user.steps, pids(run, "collector")))
    assert env_step <= taken <= env_step + 2 * IN_WORK
    rows = [(int(row["Epoch"]), int(row["TotalEnvInteracts"])) for row in progress(run)]
    assert [epoch for epoch, _ in rows] == list(range(len(rows)))
    assert [env_step for _, env_step in rows] == sorted(env_step for _, env_step in rows)
    for name, points in curves(run / "log" / "learner" / "learner_tb_logger").items():
        steps = [step for step, _ in points]
        assert not name.startswith("learner_iter/") or steps == sorted(set(steps)), name
