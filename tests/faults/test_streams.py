"""Workers that do not see the runs folder: the same run, the same counters, whoever is killed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil
import pytest

from remuda.deploy.supervision import EXIT_REFUSED
from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import Herd, assert_exact, kill
from remuda.tests.faults.sizes import LONG, PAUSE_S
from remuda.tests.parallel.game_folder import HELD_GAME, make_game_folder
from remuda.tests.parallel.reading import texts
from remuda.tests.parallel.user_folder import CONFIG, ENDLESS, UserFolder
from remuda.tests.patience import HANG_S, until
from remuda.worker.serve import HAND_IN_S
from remuda.worker.stores.streams import CHECKPOINTS_KEPT

pytestmark = pytest.mark.processes

CHUNK, VECTOR = 32, 4
IN_WORK = 3 * (CHUNK + VECTOR - 1)
"""What a killed collector may have taken and not announced: two chunks on their way, and one that is being filled."""
ROUNDS = 4 if LONG else 1
STEPS = 2_500
"""Environment steps of a round."""
SETTINGS: dict[str, dict[str, object]] = {
    "stop": {"max_env_steps": (ROUNDS + 1) * STEPS},
    "buffer": {**CONFIG["buffer"], "capacity": 100_000},
}


def test_a_run_goes_on_without_the_folder_whoever_is_killed(tmp_path: Path, herds: Herds) -> None:
    """A collector, the stream server and the learner, each by SIGKILL while files travel."""
    user, herd = UserFolder.make(tmp_path / "user", SETTINGS | ENDLESS), herds()
    herd.coordinator()
    herd.workers(collectors=0, evaluators=0, learners=1)
    herd.hidden(collectors=2, evaluators=1)
    herd.wait_members(4)
    assert herd.stream_server() is None, "nobody needs it yet"
    run = herd.submit(user)
    for number in range(ROUNDS):
        herd.wait_env_step("horse", number * STEPS + 500)
        herd.kill_worker("collector", "horse")
        herd.wait_env_step("horse", number * STEPS + 1_000)
        kill_server(herd)
        herd.wait_env_step("horse", number * STEPS + 1_500)
        herd.kill_worker("learner", "horse")
    with herd.client() as client:
        client.stop("horse")
    herd.wait_over("horse", "stopped")
    herd.shut_down()
    assert_exact(herd, run, user, lost_at_most=ROUNDS * IN_WORK)
    everything_is_where_it_belongs(herd, run)


def test_in_self_play_older_checkpoints_reach_workers_without_the_folder(tmp_path: Path, herds: Herds) -> None:
    """More than such a worker keeps at a time."""
    changes: dict[str, dict[str, object]] = {
        "self_play": {"share": 0.5, "keep": 5},
        "checkpoint": {"interval_env_steps": 200, "keep": 6},
        "env": {**HELD_GAME["env"], "kwargs": {"pause_s": PAUSE_S}},
        "stop": {"max_env_steps": STEPS},
    }
    user, herd = make_game_folder(tmp_path / "user", None, changes), herds()
    herd.coordinator()
    herd.workers(collectors=0, evaluators=0, learners=1)
    herd.hidden(collectors=2, evaluators=1)
    herd.wait_members(4)
    run = herd.submit(user)
    herd.wait_over("horse")
    herd.shut_down()
    assert_exact(herd, run, user)
    for log in (run / "log" / "collector").iterdir():
        assert len(texts(log, "iteration_")) > CHECKPOINTS_KEPT
        assert texts(log, "episodes begun: ")
    (log,) = (run / "log" / "evaluator").iterdir()
    assert any(text.count("iteration_") > CHECKPOINTS_KEPT + 1 for text in texts(log, "iteration_"))


def test_a_learner_needs_the_folder_which_the_connection_file_of_its_own_host_names(herds: Herds) -> None:
    herd = herds()
    herd.coordinator()
    nanny = herd.hidden(learners=1)
    assert nanny.wait(HANG_S) == EXIT_REFUSED
    assert "a learner must see the runs folder of its coordinator" in herd.said()
    herd.hidden(learners=1, same_host=True)
    herd.wait_members(1)
    herd.shut_down()


def test_what_is_handed_in_while_the_coordinator_is_away_waits_for_the_next(tmp_path: Path, herds: Herds) -> None:
    """As where a cluster takes the coordinator's job and the workers' away together: nothing of theirs lies in data/
    yet, and their job still has time. The run goes on until it is stopped, so that they always have something."""
    never_idle = {**CONFIG["buffer"], "capacity": 500_000, "samples_per_insert": None}
    user, herd = UserFolder.make(tmp_path / "user", {**ENDLESS, "buffer": never_idle}), herds()
    coordinator = herd.coordinator()
    herd.workers(collectors=0, evaluators=1, learners=1)
    hidden = herd.hidden(collectors=2, hand_in_s=HANG_S)
    herd.wait_members(4)
    run = herd.submit(user)
    herd.wait_env_step("horse", 500)
    coordinator.kill()
    coordinator.wait()
    hidden.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        hidden.wait(HAND_IN_S + 1.0)
    herd.coordinator()
    assert hidden.wait(HANG_S) == 0
    herd.workers(collectors=2, evaluators=0, learners=0)
    herd.wait_env_step("horse", herd.experiment("horse").env_step + STEPS)
    with herd.client() as client:
        client.stop("horse")
    herd.wait_over("horse", "stopped")
    herd.shut_down()
    assert_exact(herd, run, user)


@pytest.mark.skipif(not LONG, reason="long form")
def test_the_coordinator_is_killed_and_started_again(tmp_path: Path, herds: Herds) -> None:
    """Its stream server ends with it; the next one listens elsewhere, and the workers hear where."""
    user, herd = UserFolder.make(tmp_path / "user", SETTINGS), herds()
    coordinator = herd.coordinator()
    herd.workers(collectors=0, evaluators=0, learners=1)
    herd.hidden(collectors=2, evaluators=1)
    herd.wait_members(4)
    run = herd.submit(user)
    for number in range(ROUNDS):
        herd.wait_env_step("horse", number * STEPS + 1_000)
        coordinator = herd.kill_coordinator(coordinator)
    herd.wait_over("horse")
    herd.shut_down()
    assert_exact(herd, run, user)
    everything_is_where_it_belongs(herd, run)


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
    """The run folder is as if all workers had seen it; at the others nothing is left."""
    for role in ("collector", "evaluator"):
        logs = {path.name for path in (run / "log" / role).iterdir()}
        assert logs == {f"{one.uuid}_{one.incarnation:06d}_logger.txt" for one in herd.incarnations(role)}
        for name in logs:
            assert texts(run / "log" / role / name), name
    assert (run / "env_spec.json").is_file()
    assert not (run / "vars.pkl").exists(), "no pickle crosses a socket"
    assert [path.name for path in herd.elsewhere.iterdir() if path.name != "given.json"] == []
