"""A sweep on a real herd of four workers: to its end, interrupted, taken up again, and over a coordinator's death."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path

import pytest

from remuda.client.client import ANSWER_DEADLINE_S, Client
from remuda.client.sweeps.grid import read_grid
from remuda.client.sweeps.herd import HerdRuns
from remuda.client.sweeps.plan import carry_out, plan, tasks
from remuda.client.sweeps.record import RunRecord, SweepBook
from remuda.tests.client.sweeps.grids import SHORT, write_grid
from remuda.tests.faults.herd import Herd
from remuda.wire.messages import ExperimentStatus

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("a herd that is swept")]

ENDLESS = {"stop.max_env_steps": [100_000_000]}


@pytest.fixture(scope="module")
def herd(tmp_path_factory: pytest.TempPathFactory) -> Generator[Herd]:
    """One for several tests: each has a sweep of its own, and leaves nothing running."""
    herd = Herd(tmp_path_factory.mktemp("swept") / "herd")
    herd.coordinator()
    herd.workers(collectors=2)
    yield herd
    try:
        herd.shut_down()
    finally:
        herd.end()


@pytest.fixture
def own(tmp_path: Path) -> Generator[Herd]:
    """One for a test that starts and ends processes of it."""
    herd = Herd(tmp_path / "herd")
    herd.coordinator()
    herd.workers(collectors=2)
    yield herd
    herd.end()


def sweep_of(herd: Herd, tmp_path: Path) -> Path:
    """The folder of this test's sweep, which no other test has."""
    return herd.runs / tmp_path.name


def submitted(herd: Herd, tmp_path: Path) -> list[ExperimentStatus]:
    """The runs of this test's sweep."""
    place = str(sweep_of(herd, tmp_path))
    return [status for status in herd.status().experiments if status.run_dir.startswith(place)]


def swept(
    herd: Herd,
    tmp_path: Path,
    parameters: Mapping[str, object],
    *,
    seeds: int = 1,
    ending: Callable[[Sequence[RunRecord]], bool] = lambda records: False,
    adopt: bool = True,
    patience: tuple[float, Callable[[float], None]] = (ANSWER_DEADLINE_S, time.sleep),
) -> list[RunRecord]:
    """Sweep until it is over; the last record of every run, `ending` being asked about the latest ones. `patience`: how
    long it waits for an answer, and what it does before it asks again."""
    folder = sweep_of(herd, tmp_path)
    folder.mkdir(exist_ok=True)
    book = SweepBook(folder, name="hills", mode="parallel")
    runs = plan(read_grid(write_grid(tmp_path / "user", parameters, seeds=seeds)), folder)
    records, todo = tasks(runs, book.runs, "parallel", force=not adopt)
    latest = {record.name: record for record in records}
    answer_deadline_s, sleep = patience
    with Client(herd.connection_file, answer_deadline_s=answer_deadline_s) as client:
        carry_out(
            todo,
            HerdRuns(client, adopt=adopt, sleep=sleep),
            book,
            ending=lambda: ending(list(latest.values())),
            on_change=lambda news: latest.update({record.name: record for record in news}),
        )
    assert SweepBook(folder, name="hills", mode="parallel").runs == {**book.runs}
    return list(latest.values())


def trains(record: RunRecord) -> bool:
    return record.state == "running" and record.train_iter > 0


def test_every_run_to_its_end_under_its_own_name(herd: Herd, tmp_path: Path) -> None:
    records = swept(herd, tmp_path, {**SHORT, "policy.n_step": [1, 3]})
    names = ["hills_pol-ns1_s0", "hills_pol-ns3_s0"]
    assert [(one.name, one.state, one.reason) for one in records] == [
        (name, "finished", "max_env_steps") for name in names
    ]
    assert all(one.env_step >= 60 and one.best_return is not None for one in records)
    known = {status.name: status for status in submitted(herd, tmp_path)}
    for record in records:
        assert known[record.name].id == record.experiment
        run_dir = sweep_of(herd, tmp_path) / record.run_dir
        assert known[record.name].run_dir == str(run_dir)
        assert (run_dir / "log" / "commander" / "commander_logger.txt").exists()
    assert swept(herd, tmp_path, {**SHORT, "policy.n_step": [1, 3]}) == records
    assert len(submitted(herd, tmp_path)) == 2, "nothing was submitted again"


def test_a_coordinator_that_is_killed_and_started_again_is_waited_for(own: Herd, tmp_path: Path) -> None:
    """By a sweep that follows its runs, and by one that is asked to stop while there is none."""
    seen: list[ExperimentStatus] = []
    coordinators = [own.started[0]]

    def end_coordinator() -> None:
        coordinators[-1].kill()
        coordinators[-1].wait()

    def start_the_next(seconds: float) -> None:
        if coordinators[-1].poll() is not None:
            coordinators.append(own.coordinator())

    def ending(records: Sequence[RunRecord]) -> bool:
        if trains(records[0]) and not seen:
            seen.append(own.experiment(records[0].name))
            end_coordinator()
        elif seen and len(coordinators) == 2 and records[0].env_step > seen[0].env_step:
            end_coordinator()
            return True
        return False

    (stopped,) = swept(own, tmp_path, ENDLESS, ending=ending, patience=(0.5, start_the_next))
    assert stopped.state == "stopped"
    assert stopped.env_step > seen[0].env_step
    assert len(coordinators) == 3
    own.shut_down()
