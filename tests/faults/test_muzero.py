"""Collector, learner and coordinator of a MuZero run are killed: it goes on, counts exactly, and plays as before."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import Herd, assert_exact
from remuda.tests.parallel.reading import progress
from remuda.tests.patience import until
from remuda.wire.messages import OVER, ExperimentStatus

pytestmark = pytest.mark.processes

CARTPOLE = Path(__file__).parents[2] / "examples" / "cartpole_gumbel_muzero.yaml"
GOOD = 150.0
"""A mean return of ten episodes of CartPole; a policy that guesses has about 20."""
LATER = 3
"""So many evaluations after the deaths are compared with the one before: single ones vary much."""
LONG_S = 3_600.0
"""For the long form on a busy machine; a free one takes about two minutes."""


@pytest.mark.faults_long
@pytest.mark.timeout(LONG_S)
def test_it_plays_as_well_as_before(herds: Herds) -> None:
    """CartPole, and all three are killed once it plays well: it has forgotten nothing, and goes on to solve it."""
    herd = herds()
    coordinator = herd.coordinator()
    herd.workers(collectors=1)
    herd.wait_members(3)
    run = herd.submit(CARTPOLE, "cartpole")
    before = followed(herd, "cartpole", lambda status: (status.last_return or 0.0) > GOOD)
    herd.kill_worker("learner", "cartpole")
    herd.kill_worker("collector", "cartpole")
    herd.kill_coordinator(coordinator)
    back = herd.experiment("cartpole")
    over = followed(herd, "cartpole", lambda status: status.state in OVER)
    herd.shut_down()
    later = [return_ for env_step, return_ in returns(run) if env_step > back.env_step]
    print(f"killed at env_step {before.env_step} with a return of {before.last_return}, then {later}")
    assert before.last_return is not None
    assert statistics.mean(later[:LATER]) > before.last_return / 2
    assert (over.state, later[-1] >= 475.0) == ("finished", True), over.reason
    assert assert_exact(herd, run, None, all_kept=False) == over.env_step
    assert sorted(one.incarnation for one in herd.incarnations()) == [1, 1, 1, 2, 2]


def followed(herd: Herd, name: str, far_enough: Callable[[ExperimentStatus], bool]) -> ExperimentStatus:
    """Wait until a run is far enough, for as long as it gets on."""
    while not far_enough(status := herd.experiment(name)):
        assert status.state not in OVER, status.reason
        env_step = status.env_step
        until(lambda: _moved(herd.experiment(name), env_step), f"{name} gets on\n{herd.said()}")  # noqa: B023
    return status


def _moved(status: ExperimentStatus, env_step: int) -> bool:
    return status.env_step > env_step or status.state in OVER


def returns(run: Path) -> list[tuple[int, float]]:
    """Environment steps and mean return of each evaluation."""
    rows = [row for row in progress(run) if not math.isnan(float(row["AverageTestEpRet"]))]
    return [(int(row["TestEnvInteracts"]), float(row["AverageTestEpRet"])) for row in rows]
