"""Processes of a herd die or hang during a run: it goes on, and no step is lost or counted twice."""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import psutil
import pytest

from remuda.policy.files.policy_file import read_ref
from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import Herd, assert_exact, commander, kill
from remuda.tests.faults.sizes import AWAY_S, LONG_STEPS, PAUSE_S, within
from remuda.tests.parallel import user_folder
from remuda.tests.parallel.reading import Joined, progress, texts
from remuda.tests.parallel.user_folder import CONFIG, HELD, UserFolder
from remuda.tests.patience import until
from remuda.wire.messages import PolicyRef

pytestmark = pytest.mark.processes

CHUNK, VECTOR = 32, 4
IN_WORK = 2 * (CHUNK + VECTOR - 1)
"""What a killed collector may have taken and not announced: a chunk being filled, one being written. Each ends with the
vector's step that fills it, which may bring all but one of its environments' steps too many."""
LONG: dict[str, dict[str, object]] = {
    "env": {"kwargs": {"pause_s": PAUSE_S}},
    "stop": {"max_env_steps": LONG_STEPS},
    "evaluator": {**CONFIG["evaluator"], "interval_env_steps": LONG_STEPS // 2},
}
"""A run in whose course somebody can die."""
ENDLESS: dict[str, dict[str, object]] = {
    **user_folder.ENDLESS,
    "evaluator": {**CONFIG["evaluator"], "interval_env_steps": 20_000},
    "buffer": {**CONFIG["buffer"], "capacity": 500_000},
}
LOST_AFTER_S, BEAT_S = 4.0, 1.0
HASTY = """
import sys
from pathlib import Path
from remuda.deploy import supervision
from remuda.deploy.nanny import new_workers, supervise
supervision.FIRST_DELAY_S = 0.1
sys.exit(supervise(new_workers({"collector": 1}), Path(sys.argv[1])))
"""
"""A nanny that starts a killed collector again within 200 ms."""


def test_coordinator_killed_with_eight_workers_and_started_again(tmp_path: Path, herds: Herds) -> None:
    """13. Everybody is back within 10 s; nothing is lost or counted twice; the same experiment ends by itself."""
    user, herd = UserFolder.make(tmp_path / "user", {**LONG, "collector": {**CONFIG["collector"], "count": 5}}), herds()
    coordinator = herd.coordinator()
    herd.workers(collectors=5, evaluators=2, learners=1)
    herd.wait_members(8)
    run = herd.submit(user)
    herd.wait_env_step("horse", 1_000)
    coordinator.kill()
    coordinator.wait()
    time.sleep(AWAY_S)
    begin_s = time.monotonic()
    herd.coordinator()
    herd.wait_members(8)
    back_s = time.monotonic() - begin_s
    print(f"13: all eight were back {back_s:.1f} s after the start")
    assert within(back_s, 10.0)
    herd.wait_over("horse")
    herd.shut_down()
    assert assert_exact(herd, run, user) >= LONG_STEPS
    rows = [(int(row["Epoch"]), int(row["TotalEnvInteracts"])) for row in progress(run)]
    assert [epoch for epoch, _ in rows] == list(range(len(rows)))
    assert [env_step for _, env_step in rows] == sorted(env_step for _, env_step in rows)
    assert {one.incarnation for one in herd.incarnations()} == {1}, "no worker had to restart"


@dataclass
class PolicyWatch:
    """A reader that looks at the policy file all the time."""

    folder: Path
    seen: list[PolicyRef] = field(default_factory=list[PolicyRef])
    over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> PolicyWatch:
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.over.wait(0.005):
            for path in self.folder.glob("policy_*"):
                ref = None if path.suffix == ".lock" else read_ref(path)
                if ref is not None and (not self.seen or self.seen[-1] != ref):
                    self.seen.append(ref)


@dataclass(frozen=True)
class Survived:
    """A run in which a collector was killed, another and the learner were frozen for long, and woke up again."""

    herd: Herd
    user: UserFolder
    run: Path
    killed: Joined
    frozen: tuple[Joined, Joined]
    back_s: float
    lost_s: float
    policies: list[PolicyRef]
    env_steps: tuple[int, int]
    """When the two were frozen, and when they were woken."""


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> Survived:
    place = tmp_path_factory.mktemp("survived")
    user, herd = UserFolder.make(place / "user", ENDLESS), Herd(place / "herd", f"lost_after_s={LOST_AFTER_S}")
    try:
        herd.coordinator()
        herd.workers(collectors=1, evaluators=1, learners=2)
        hasty = herd.start("nanny", sys.executable, "-c", HASTY, herd.connection_file)
        herd.wait_members(5)
        run = herd.submit(user)
        herd.wait_env_step("horse", 500)
        with PolicyWatch(run / "policy") as watch:
            killed, back_s = _kill_collector(herd, hasty.pid)
            frozen, lost_s, env_steps = _freeze(herd, run, killed)
            until(lambda: watch.seen and watch.seen[-1].epoch >= 2, "the next learner has published")
            for one in frozen:
                kill(one.pid, signal.SIGCONT)
            herd.wait_members(5)
            after = herd.experiment("horse").env_step
            herd.wait_env_step("horse", after + 1_000)
        with herd.client() as client:
            client.stop("horse")
        herd.wait_over("horse", "stopped")
        herd.shut_down()
        return Survived(herd, user, run, killed, frozen, back_s, lost_s, watch.seen, env_steps)
    finally:
        herd.end()


def _joined(herd: Herd, role: str, uuid: str) -> Joined:
    worker = next(member for member in herd.members() if member.uuid == uuid)
    return Joined(role, worker.uuid, worker.incarnation, worker.pid)


def _kill_collector(herd: Herd, hasty: int) -> tuple[Joined, float]:
    """Returns the incarnation of this nanny's child that was killed, and how long it took until its next one worked."""
    worker = next(member for member in herd.members("collector") if psutil.Process(member.pid).ppid() == hasty)
    killed = _joined(herd, "collector", worker.uuid)
    kill(killed.pid)
    begin_s = time.monotonic()

    def works() -> bool:
        found = [member for member in herd.members("collector") if member.uuid == killed.uuid]
        return bool(found) and found[0].incarnation == 2 and found[0].state == "busy"

    until(works, "the collector works again")
    return killed, time.monotonic() - begin_s


def _freeze(herd: Herd, run: Path, killed: Joined) -> tuple[tuple[Joined, Joined], float, tuple[int, int]]:
    """Freeze the other collector and the learner for longer than the limit."""
    other = next(worker for worker in herd.members("collector") if worker.uuid != killed.uuid)
    frozen = (
        _joined(herd, "collector", other.uuid),
        _joined(herd, "learner", herd.worker_of("learner", "horse").uuid),
    )
    env_step = herd.experiment("horse").env_step
    for one in frozen:
        kill(one.pid, signal.SIGSTOP)
    begin_s = time.monotonic()
    uuids = {one.uuid for one in frozen}
    until(lambda: not uuids & {worker.uuid for worker in herd.members()}, "both are lost")
    lost_s = time.monotonic() - begin_s
    herd.wait_env_step("horse", env_step + 500)
    time.sleep(max(0.0, 1.5 * LOST_AFTER_S - (time.monotonic() - begin_s)))
    return frozen, lost_s, (env_step, herd.experiment("horse").env_step)


group = pytest.mark.xdist_group("a herd with deaths")


@group
def test_killed_and_frozen_workers_leave_the_counters_exact(survived: Survived) -> None:
    """6, 7. What the frozen one had collected is counted once."""
    assert_exact(survived.herd, survived.run, survived.user, lost_at_most=2 * IN_WORK)


@group
def test_a_killed_collector_serves_again_soon(survived: Survived) -> None:
    """2. Under the same UUID, as its next incarnation, within two seconds where its nanny starts it at once."""
    print(f"2: served again after {survived.back_s:.2f} s")
    assert within(survived.back_s, 2.0)


@group
def test_a_silent_worker_is_lost_within_the_limit_and_the_run_goes_on_meanwhile(survived: Survived) -> None:
    """6, 7."""
    print(f"7: lost after {survived.lost_s:.2f} s with a limit of {LOST_AFTER_S} s")
    assert within(survived.lost_s, LOST_AFTER_S + 2 * BEAT_S)
    before, after = survived.env_steps
    assert after >= before + 500
    said = survived.herd.said()
    for one in survived.frozen:
        silent = re.search(rf"{one.role} {one.uuid} is lost: silent for ([0-9.]+) s", said)
        assert silent is not None
        assert float(silent[1]) >= LOST_AFTER_S


@group
def test_a_learner_that_was_replaced_cannot_publish(survived: Survived) -> None:
    """21. No reader ever sees an older policy after a newer one."""
    seen = [(ref.epoch, ref.version) for ref in survived.policies]
    assert {epoch for epoch, _ in seen} >= {1, 2}
    assert seen == sorted(set(seen))
    networks = texts(survived.run / "log" / "learner" / "learner_logger.txt", "[RANK0]")
    assert len(networks) >= 2


BROKEN = """

class Lame(Horse):
    def reset(self, *, seed=None, options=None):
        raise RuntimeError("the horse does not get up")


def make_lame():
    return Lame(None, None, 0.0)
"""


def test_an_environment_that_never_resets_fails_its_run_and_no_other(tmp_path: Path, herds: Herds) -> None:
    """9. The workers serve on; pauses double; the traceback and its count are in the commander's log."""
    small = {"collector": {**CONFIG["collector"], "count": 1}}
    user = UserFolder.make(tmp_path / "user", {**LONG, **small, **HELD})
    user.hold()  # it cannot be over before the other begins
    lame = UserFolder.make(tmp_path / "lame", {**small, "env": {"make": "my_envs:make_lame"}})
    with (lame.root / "my_envs.py").open("a") as module:
        module.write(BROKEN)
    herd = herds()
    herd.coordinator()
    herd.workers(collectors=2, evaluators=2, learners=2)
    herd.wait_members(6)
    good = herd.submit(user, "good")
    until(lambda: herd.experiment("good").state == "running", "the good run has its workers")
    of_good = {worker.uuid for worker in herd.members() if worker.experiment}
    bad = herd.submit(lame, "bad")
    user.release()
    herd.wait_over("good")
    failed = herd.wait_over("bad", "failed")
    assert "the horse does not get up" in (failed.reason or "")
    herd.shut_down()
    told = [text for text in commander(bad) if "Traceback (most recent call last)" in text]
    assert len(told) >= 5
    assert all("my_envs.py" in text and "does not get up" in text for text in told)
    assert assert_exact(herd, good, user) >= LONG_STEPS
    assert {one.incarnation for one in herd.incarnations()} == {1}, "no process ended for it"
    assert {one.uuid for one in herd.incarnations()} > of_good
    counted = [text.split(":")[0] for text in commander(bad) if " failure of " in text]
    assert len(counted) == len(told)
    assert counted[0].startswith("1st failure of ")
    rest_s = _last_joined(bad) - _first_failed(bad)
    assert rest_s >= 5.0, "pauses of 1, 2, 4 … s; two that fail at once share one"


def _first_failed(run: Path) -> float:
    return next(_times(run, " failure of "))


def _last_joined(run: Path) -> float:
    return list(_times(run, " joins as "))[-1]


def _times(run: Path, part: str) -> Iterator[float]:
    """When the commander said so, in seconds, as exact as a log's clock."""
    for line in (run / "log" / "commander" / "commander_logger.txt").read_text().splitlines():
        if part in line and (match := re.match(r"\[(.*?)\]", line)):
            yield datetime.fromisoformat(match[1]).timestamp()


ABORTING = """

class Vicious(Horse):
    def step(self, action):
        if taken.get(os.getpid(), (0, 0))[1] > 200:
            os.abort()
        return super().step(action)


def make_vicious():
    return Vicious(None, None, 0.0)
"""


def test_an_environment_that_ends_its_process_fails_its_run_and_the_next_one_is_served(
    tmp_path: Path, herds: Herds
) -> None:
    """9. Though each incarnation hands in chunks first. The nanny continues, however soon they die."""
    collectors = {"collector": {**CONFIG["collector"], "count": 3, "minimum": 3}}
    user = UserFolder.make(tmp_path / "user", {**LONG, **collectors})
    vicious = UserFolder.make(tmp_path / "vicious", {**ENDLESS, **collectors, "env": {"make": "my_envs:make_vicious"}})
    with (vicious.root / "my_envs.py").open("a") as module:
        module.write(ABORTING)
    herd = herds()
    herd.coordinator()
    herd.workers(collectors=3)
    herd.wait_members(5)
    bad = herd.submit(vicious, "bad")
    good = herd.submit(user, "good")
    failed = herd.wait_over("bad", "failed")
    assert re.match(r"\d+ deaths of collectors in a row", failed.reason or ""), failed.reason
    assert "signal 6 (SIGABRT)" in (failed.reason or "")
    assert failed.env_step > 0, "its incarnations had done some work"
    herd.wait_over("good")
    herd.shut_down()
    assert any("ended with signal 6 (SIGABRT) and was started again" in text for text in commander(bad))
    assert assert_exact(herd, good, user, alone=False) >= LONG_STEPS


def test_an_environment_that_hangs_is_named_with_its_stack_and_started_anew(tmp_path: Path, herds: Herds) -> None:
    """8. Stuck, then hopeless: the commander's log shows where it hung, and the collector's next incarnation works."""
    user = UserFolder.make(
        tmp_path / "user",
        {**LONG, **HELD, "collector": {**CONFIG["collector"], "count": 1}},
    )
    user.hold()
    herd = herds("stuck_after_s=1,hopeless_after_s=8")
    herd.coordinator()
    herd.workers(collectors=1)
    herd.wait_members(3)
    run = herd.submit(user)
    until(lambda: "stuck" in {w.state for w in herd.members("collector")}, "the collector is named stuck")
    until(lambda: commander(run, "lease"), "its stacks are in the log")
    user.release()
    herd.wait_over("horse")
    herd.shut_down()
    (told,) = commander(run, "lease")
    assert "dismissed: stuck, no progress" in told
    assert "in step" in told
    assert "my_envs.py" in told
    assert any("is stuck: beats, but no progress" in text for text in commander(run))
    assert [one.incarnation for one in herd.incarnations("collector")] == [1, 2]
    assert assert_exact(herd, run, user, lost_at_most=IN_WORK) >= LONG_STEPS


def test_workers_do_not_outlive_a_killed_nanny(herds: Herds) -> None:
    """No orphan."""
    herd = herds()
    coordinator = herd.coordinator()
    nanny = herd.worker("collector", 2)
    herd.wait_members(2)
    workers = {worker.pid for worker in herd.members()}
    assert {process.pid for process in herd.family()} >= {coordinator.pid, nanny.pid, *workers}
    nanny.kill()
    nanny.wait()
    until(lambda: len(herd.members()) == 0, "both have left")
    until(lambda: len(herd.family()) == 1, "both processes are gone")
    assert [process.pid for process in herd.family()] == [coordinator.pid]
    herd.shut_down()
