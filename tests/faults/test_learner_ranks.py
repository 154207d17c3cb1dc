"""Ranks of a learner die during a run: the learner is replaced, and no experience goes with them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import Herd, assert_exact, commander, kill
from remuda.tests.parallel.reading import texts
from remuda.tests.parallel.user_folder import CONFIG, HELD, UserFolder
from remuda.tests.patience import until, until_gone

pytestmark = pytest.mark.processes

TWO_RANKS: dict[str, dict[str, object]] = {
    **HELD,
    "learner": {**CONFIG["learner"], "ranks": 2},
    "stop": {"max_env_steps": 2_000},
    "evaluator": {**CONFIG["evaluator"], "interval_env_steps": 2_000},
}


def rank_1(herd: Herd) -> psutil.Process:
    """The process beside the learner's."""

    found: list[psutil.Process] = []

    def is_there() -> bool:
        for worker in herd.members("learner"):
            with suppress(psutil.NoSuchProcess):  # one that was killed may be listed for a while
                found.extend(psutil.Process(worker.pid).children() if worker.state == "busy" else ())
        return bool(found)

    until(is_there, "rank 1 is there")
    return found[0]


def test_a_dead_rank_costs_updates_and_no_experience(tmp_path: Path, herds: Herds) -> None:
    """Rank 1 is killed, and then rank 0. Both times a learner goes on from the last checkpoint, and counters are
    exact. The run cannot end while its environments wait, so both deaths fall in its midst."""
    user, herd = UserFolder.make(tmp_path / "user", TWO_RANKS), herds()
    user.hold()
    herd.gather()
    run = herd.submit(user)
    log = run / "log" / "learner" / "learner_logger.txt"
    herd.wait_env_step("horse", 500)
    killed = rank_1(herd)
    kill(killed.pid)
    until(lambda: len(texts(log, "world_size 2")) >= 2, f"a learner has two ranks again\n{herd.said()}")
    died = f"learner rank 1 (pid {killed.pid}) ended by SIGKILL"
    assert any(died in text for text in commander(run))

    following = rank_1(herd)
    herd.kill_worker("learner", "horse")
    until_gone([following])  # it ends with rank 0
    user.release()
    herd.wait_over("horse")
    herd.shut_down()
    assert [*herd.root.glob("remuda-ranks-*")] == [], "nobody's folder is left, though rank 0 was killed"
    assert assert_exact(herd, run, user) >= 2_000
