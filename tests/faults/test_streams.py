"""Workers that do not see the runs folder: the same run, the same counters, whoever is killed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil
import pytest

from remuda.client.client import Client
from remuda.deploy.supervision import EXIT_REFUSED
from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import CHUNK, VECTOR, Herd, assert_exact, kill
from remuda.tests.faults.sizes import LONG, PAUSE_S
from remuda.tests.parallel.game_folder import HELD_GAME, make_game_folder
from remuda.tests.parallel.reading import texts
from remuda.tests.patience import HANG_S, until
from remuda.worker.serve import HAND_IN_S
from remuda.worker.stores.streams import CHECKPOINTS_KEPT

pytestmark = pytest.mark.processes

IN_WORK = 3 * (CHUNK + VECTOR - 1)
"""What a killed collector may have taken and not announced: two chunks on their way, and one that is being filled."""
ROUNDS = 4 if LONG else 1
STEPS = 500
"""Environment steps between two deaths."""
CHANGES: dict[str, dict[str, object]] = {
    "self_play": {"share": 0.5, "keep": 5},
    "checkpoint": {"interval_env_steps": 200, "keep": 6},
    "env": {**HELD_GAME["env"], "kwargs": {"pause_s": PAUSE_S}},
    "buffer": {**HELD_GAME["buffer"], "capacity": 500_000, "samples_per_insert": None},
    "stop": {"max_env_steps": 10_000_000},
}
"""Agents that share a policy, and play against more older checkpoints than such a worker keeps at a time. Collectors
are never idle, so that they always have something to hand in."""


def test_a_run_goes_on_without_the_folder_whoever_is_killed(tmp_path: Path, herds: Herds) -> None:
    """A collector, the stream server, the learner and the coordinator. What is handed in while the coordinator is away
    waits for the next: nothing of it lies in data/ yet, and the job of the workers still has time."""
    user, herd = make_game_folder(tmp_path / "user", None, CHANGES), herds()
    coordinator = herd.coordinator()
    a_learner_needs_the_folder(herd)
    herd.workers(collectors=0, evaluators=0, learners=1)
    hidden = herd.hidden(collectors=2, evaluators=1, hand_in_s=HANG_S)
    herd.wait_members(4)
    assert herd.stream_server() is None, "nobody needs it yet"
    run = herd.submit(user)
    for _ in range(ROUNDS):
        goes_on(herd)
        herd.kill_worker("collector", "horse")
        goes_on(herd)
        kill_server(herd)
        goes_on(herd)
        herd.kill_worker("learner", "horse")
        goes_on(herd)
        coordinator = herd.kill_coordinator(coordinator)  # the next stream server listens elsewhere
    goes_on(herd)
    everything_is_where_it_belongs(herd, run)
    nobody_takes_what_is_handed_in(herd, coordinator)
    hidden.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        hidden.wait(HAND_IN_S + 1.0)
    herd.coordinator()
    assert hidden.wait(HANG_S) == 0
    herd.workers(collectors=2, evaluators=1, learners=0)
    goes_on(herd)
    herd.stop()
    herd.shut_down()
    assert_exact(herd, run, user, lost_at_most=ROUNDS * IN_WORK)
    assert [path.name for path in herd.elsewhere.iterdir() if path.name != "given.json"] == []


def goes_on(herd: Herd) -> None:
    herd.wait_env_step("horse", herd.experiment("horse").env_step + STEPS)


def nobody_takes_what_is_handed_in(herd: Herd, coordinator: subprocess.Popen[bytes]) -> None:
    """Kills the coordinator and its stream server once every collector has a chunk that no server has taken.

    The learner publishes nothing more before this, so that no collector waits for a policy instead."""
    server, learner = herd.stream_server(), psutil.Process(herd.worker_of("learner", "horse").pid)
    assert server is not None
    learner.suspend()
    goes_on(herd)
    server.suspend()

    def each_waits(client: Client) -> bool:
        collectors = [worker for worker in client.status().workers if worker.role == "collector"]
        return all(worker.activity == "waiting for the stream server" for worker in collectors)

    herd.wait_until(each_waits, f"collectors wait for the stream server\n{herd.said()}")
    coordinator.kill()
    coordinator.wait()
    server.kill()
    server.wait(HANG_S)
    learner.resume()


def a_learner_needs_the_folder(herd: Herd) -> None:
    """Which the connection file of its own host names."""
    assert herd.hidden(learners=1).wait(HANG_S) == EXIT_REFUSED
    assert "a learner must see the runs folder of its coordinator" in herd.said()
    by_its_file = herd.hidden(learners=1, same_host=True)
    herd.wait_members(1)
    by_its_file.terminate()
    assert by_its_file.wait(HANG_S) == 0


def kill_server(herd: Herd) -> None:
    """Returns when the next one serves."""
    first = herd.stream_server()
    assert first is not None
    kill(first.pid)

    def another() -> bool:
        found = herd.stream_server()
        return found is not None and found.pid != first.pid and found.status() != psutil.STATUS_ZOMBIE

    until(another, f"the next stream server\n{herd.said()}")


def everything_is_where_it_belongs(herd: Herd, run: Path) -> None:
    """The run folder is as if all workers had seen it, and opponents reached them."""
    for role in ("collector", "evaluator"):
        logs = {path.name for path in (run / "log" / role).iterdir()}
        assert logs == {f"{one.uuid}_{one.incarnation:06d}_logger.txt" for one in herd.incarnations(role)}
        for name in logs:
            assert texts(run / "log" / role / name), name
    assert (run / "env_spec.json").is_file()
    assert not (run / "vars.pkl").exists(), "no pickle crosses a socket"
    told = [texts(log, "iteration_") for log in (run / "log" / "collector").iterdir()]
    assert max(map(len, told)) > CHECKPOINTS_KEPT
    assert any(texts(log, "episodes begun: ") for log in (run / "log" / "collector").iterdir())
    (log,) = (run / "log" / "evaluator").iterdir()
    assert texts(log, "iteration_")
