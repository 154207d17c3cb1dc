"""Ends that somebody asks for or forces: signals, SIGKILL of everything, another coordinator, another protocol."""

from __future__ import annotations

import json
import math
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import Journal, assert_exact, commander, signal_all
from remuda.tests.faults.sizes import LONG_STEPS, RESUMES, within
from remuda.tests.faults.test_processes import CHUNK, ENDLESS, LONG, VECTOR
from remuda.tests.faults.test_registration import link, register
from remuda.tests.logbook.event_reader import curves
from remuda.tests.parallel.command import Command
from remuda.tests.parallel.reading import index, pids, progress, table, texts
from remuda.tests.parallel.user_folder import CONFIG, HELD, UserFolder
from remuda.tests.patience import HANG_S, until, until_ended
from remuda.tests.warm.program import REMUDA
from remuda.wire.messages import PROTOCOL_VERSION
from remuda.worker.shutdown_guard import SAME_REQUEST_S

pytestmark = pytest.mark.processes

ONE_CHUNK = CHUNK + VECTOR
"""Steps of the chunk that a collector fills, with those that wait for later ones to be whole."""


def test_a_second_coordinator_is_refused_and_told_who_was_first(herds: Herds) -> None:
    """16. Within two seconds, with exit code 2, and the first notices nothing."""
    herd = herds()
    first = herd.coordinator()
    begin_s = time.monotonic()
    second = subprocess.run(
        [REMUDA, "coordinator", "--runs-dir", herd.runs], capture_output=True, text=True, timeout=HANG_S, check=False
    )
    took_s = time.monotonic() - begin_s
    print(f"16: refused after {took_s:.2f} s")
    assert within(took_s, 2.0)
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
from remuda.deploy.nanny import new_workers, supervise
sys.exit(supervise(new_workers({"collector": 1}), Path(sys.argv[2])))
"""


def test_a_worker_of_another_protocol_leaves_with_exit_code_3(herds: Herds, tmp_path: Path) -> None:
    """4. Told by the connection file, or by the coordinator where that file does not tell; nobody else is disturbed."""
    herd = herds()
    herd.coordinator()
    bystander = register(str(uuid4()))
    lying = tmp_path / "lying.json"
    lying.write_text(json.dumps(json.loads(herd.connection_file.read_text()) | {"protocol": PROTOCOL_VERSION + 1}))
    lying.chmod(0o600)
    with link(herd, bystander) as undisturbed:
        undisturbed.start(HANG_S)
        by_file = herd.start("other", sys.executable, "-c", SPEAKS, 0, herd.connection_file)
        by_word = herd.start("other", sys.executable, "-c", SPEAKS, PROTOCOL_VERSION + 1, lying)
        assert (by_file.wait(HANG_S), by_word.wait(HANG_S)) == (3, 3), herd.said()
        assert [member.uuid for member in herd.members()] == [bystander.worker]
    said = herd.said()
    assert f"the coordinator speaks protocol {PROTOCOL_VERSION}, this Remuda protocol 0" in said
    assert said.count("is not started again: it was refused") == 2
    herd.shut_down()


def test_a_worker_that_is_asked_to_end_hands_in_what_it_has(tmp_path: Path, herds: Herds) -> None:
    """37. `remuda worker` ends with exit code 0 at SIGTERM and says goodbye; every step its collector took counts."""
    user, herd = UserFolder.make(tmp_path / "user", {**LONG, "collector": {**CONFIG["collector"], "count": 1}}), herds()
    herd.coordinator()
    herd.workers(collectors=0)
    first = herd.worker("collector")
    herd.wait_members(3)
    run = herd.submit(user)
    herd.wait_env_step("horse", 500)
    begin_s = time.monotonic()
    first.terminate()
    assert first.wait(HANG_S) == 0
    print(f"37: ended {time.monotonic() - begin_s:.2f} s after SIGTERM")
    assert "leaves the herd: asked to by SIGTERM" in herd.said()
    herd.worker("collector")
    herd.wait_over("horse")
    herd.shut_down()
    assert assert_exact(herd, run, user) >= LONG_STEPS


def test_what_workers_hand_in_while_there_is_no_coordinator_counts_at_its_next_start(
    tmp_path: Path, herds: Herds
) -> None:
    """37. As where a cluster takes all jobs away at once: nobody acknowledges the last chunks, and they count once. The
    run goes on until it is stopped, so that there are such chunks."""
    user, herd = UserFolder.make(tmp_path / "user", ENDLESS), herds()
    coordinator = herd.gather()
    run = herd.submit(user)
    herd.wait_env_step("horse", 500)
    coordinator.kill()
    coordinator.wait()
    nanny = herd.started[1]
    nanny.terminate()
    assert nanny.wait(HANG_S) == 0
    herd.coordinator()
    handed_in = herd.experiment("horse").env_step
    herd.workers()
    herd.wait_env_step("horse", handed_in + 1_000)
    with herd.client() as client:
        client.stop("horse")
    herd.wait_over("horse", "stopped")
    herd.shut_down()
    assert assert_exact(herd, run, user) >= handed_in + 1_000
    assert any("which nobody had announced" in text for text in commander(run))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_a_second_signal_ends_coordinator_and_workers_at_once(
    tmp_path: Path, herds: Herds, number: signal.Signals
) -> None:
    """37. Within five seconds, though environments hang; what was counted is on disk. Ctrl-C reaches everybody."""
    user, herd = UserFolder.make(tmp_path / "user", HELD), herds()
    user.hold()
    coordinator = herd.coordinator()
    nanny = herd.workers()
    herd.wait_members(4)
    run = herd.submit(user)

    def hang() -> bool:
        collectors = [one.pid for one in herd.incarnations("collector")]
        return len(collectors) == 2 and user.held(collectors)

    until(hang, "the environments of both collectors hang")
    begin_s = time.monotonic()
    first = [each for each in herd.family() if number == signal.SIGINT or each.pid in (coordinator.pid, nanny.pid)]
    signal_all(first, number)
    time.sleep(1.2 * SAME_REQUEST_S)
    signal_all([living for living in herd.family() if living.pid != coordinator.pid], number)
    assert until_ended(coordinator, number) == 130
    until_ended(nanny, number)
    until(lambda: not herd.family(), "everybody is gone")
    assert within(time.monotonic() - begin_s, 5.0)
    assert Journal.of(run).snapshot.experiment.replay.ledger.env_steps > 0
    assert "Traceback" not in herd.said()


def test_everything_killed_and_resumed(tmp_path: Path) -> None:
    """38. Counters never fall and stay exact; at most the chunk in work is lost of each collector; no row and no point
    comes twice; and the policy plays as well as it did."""
    learning = {**ENDLESS, "evaluator": {**CONFIG["evaluator"], "episodes": 20, "interval_env_steps": 500}}
    user, run, chance = UserFolder.make(tmp_path / "user", learning), tmp_path / "run", random.Random(38)
    known, score, half_width = 0, math.nan, math.nan
    for incarnation in range(RESUMES + 1):
        goal = known + 3_000 if incarnation == RESUMES else ENDLESS["stop"]["max_env_steps"]
        options = ("--set", f"stop.max_env_steps={goal}", *(("--resume",) if incarnation else ()))
        command = Command(
            tmp_path / f"launch{incarnation}", user.root, "launch", user.config, "--run-dir", run, *options
        )
        try:
            if incarnation < RESUMES:
                _wait_until_learned(command, run, known)
                time.sleep(chance.random())
                command.kill_all()
                known = _check_what_is_left(run, known)
                score, half_width = _score_before(run)
            else:
                ended = command.ended()
                assert ended.code == 0, ended.err
                assert command.family() == []
        finally:
            command.end()
    _check_the_end(run, user, known)
    at_resume = next(values for values in _evaluations(run) if values.incarnation == RESUMES)
    print(
        f"38: return {score:.2f} ± {half_width:.2f} before, {at_resume.mean:.2f} of train_iter {at_resume.train_iter}"
    )
    assert abs(at_resume.mean - score) <= half_width


@dataclass(frozen=True)
class Evaluation:
    """One of the evaluator's tables."""

    incarnation: int
    """Of the whole run: how often it was resumed before."""
    train_iter: int
    returns: list[float]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.returns)


def _evaluations(run: Path) -> list[Evaluation]:
    """Oldest first; each incarnation of the run has an evaluator of its own, with a log of its own."""
    logs = sorted((run / "log" / "evaluator").glob("*_logger.txt"), key=_begun)
    found: list[Evaluation] = []
    for incarnation, log in enumerate(logs):
        for values in map(table, texts(log, "=== Evaluation")):
            returns = [float(number) for number in re.findall(r"-?\d+\.\d{6}", values["each_reward"])]
            found.append(Evaluation(incarnation, int(values["train_iter"]), returns))
    return found


def _begun(log: Path) -> str:
    """Its first line begins with the time."""
    return log.read_text().partition("\n")[0]


def _wait_until_learned(command: Command, run: Path, known: int) -> None:
    def learned() -> bool:
        assert command.process.poll() is None
        if not (run / "ckpt" / "index.json").exists() or index(run)["checkpoints"][-1]["env_step"] < known + 4_000:
            return False
        return len([each for each in _evaluations(run) if each.incarnation == _incarnation(run)]) >= 4

    until(learned, "it has learned for a while")


def _incarnation(run: Path) -> int:
    return len(list((run / "log" / "evaluator").glob("*_logger.txt"))) - 1


def _score_before(run: Path) -> tuple[float, float]:
    """Mean return of the last evaluations, and half the width of its confidence interval of 99 %: of episodes within
    an evaluation, and of policies between them."""
    last = [each.mean for each in _evaluations(run)[-4:]]
    episodes = _evaluations(run)[-1].returns
    spread = statistics.stdev(episodes) / len(episodes) ** 0.5
    return statistics.fmean(last), 2.6 * (spread + statistics.stdev(last))


def _check_what_is_left(run: Path, known: int) -> int:
    """Returns the environment steps that were counted."""
    before = index(run)["checkpoints"][-1]["env_step"]
    counted = Journal.of(run).snapshot.experiment.replay.ledger.env_steps
    assert counted >= before >= known
    return counted


def _check_the_end(run: Path, user: UserFolder, counted: int) -> None:
    env_step = index(run)["checkpoints"][-1]["env_step"]
    assert env_step >= counted + 3_000
    assert Journal.of(run).snapshot.experiment.replay.ledger.env_steps == env_step
    taken = sum(map(user.steps, pids(run, "collector")))
    assert env_step <= taken <= env_step + RESUMES * 2 * ONE_CHUNK
    rows = [(int(row["Epoch"]), int(row["TotalEnvInteracts"])) for row in progress(run)]
    assert [epoch for epoch, _ in rows] == list(range(len(rows)))
    assert [env_step for _, env_step in rows] == sorted(env_step for _, env_step in rows)
    for name, points in curves(run / "log" / "learner" / "learner_tb_logger").items():
        steps = [step for step, _ in points]
        assert not name.startswith("learner_iter/") or steps == sorted(set(steps)), name
