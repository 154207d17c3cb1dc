"""A learner whose ranks torchrun has started: one is killed, all are started again, and no experience is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import Herd, assert_exact, commander, kill
from remuda.tests.faults.sizes import LONG
from remuda.tests.faults.torchrun import ranks, start_agent, wait_for_rank
from remuda.tests.parallel.reading import texts
from remuda.tests.parallel.user_folder import CONFIG, HELD, UserFolder
from remuda.tests.patience import until
from remuda.tests.ports import free_ports

pytestmark = pytest.mark.processes

TWO_RANKS: dict[str, dict[str, object]] = {
    **HELD,
    "learner": {**CONFIG["learner"], "ranks": 2},
    "stop": {"max_env_steps": 3_000},
    "evaluator": {**CONFIG["evaluator"], "interval_env_steps": 3_000},
}


def learned_again(herd: Herd, log: Path, times: int) -> None:
    until(lambda: len(texts(log, "world_size 2")) >= times, f"{times} learners had two ranks\n{herd.said()}")


def test_a_dead_rank_of_torchruns_costs_updates_and_no_experience(tmp_path: Path, herds: Herds) -> None:
    """Two agents, as of two hosts. Rank 1 is killed, and in the long form rank 0 after it. All leave in order. The run
    cannot end while its environments wait, so the deaths fall in its midst."""
    user, herd = UserFolder.make(tmp_path / "user", TWO_RANKS), herds()
    user.hold()
    herd.coordinator()
    endpoint = f"127.0.0.1:{free_ports(1)[0]}"
    agents = {host: start_agent(herd, endpoint, hosts=2, ranks_per_host=1) for host in ("one", "two")}
    herd.workers(learners=0)
    herd.wait_members(4)
    run = herd.submit(user)
    log = run / "log" / "learner" / "learner_logger.txt"
    herd.wait_env_step("horse", 500)
    learned_again(herd, log, 1)
    first = ranks(agents)
    assert f"rank 1: pid {first[1].pid} on " in texts(log, "world_size 2")[0]

    kill(first[1].pid)
    wait_for_rank(agents, 0, besides=first[0])
    second = wait_for_rank(agents, 1, besides=first[1])
    learned_again(herd, log, 2)
    failed = f"learner rank 1 (pid {first[1].pid} on "
    assert len([text for text in commander(run) if "failure of learner" in text and failed in text]) <= 1

    if LONG:
        kill(ranks(agents)[0].pid)
        wait_for_rank(agents, 1, besides=second)
        learned_again(herd, log, 3)
    user.release()
    herd.wait_over("horse")
    herd.shut_down()
    assert assert_exact(herd, run, user) >= 3_000
