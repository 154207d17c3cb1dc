"""A sweep from its first look to its end, with runs that end as the test says."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from remuda.client.sweeps.grid import read_grid
from remuda.client.sweeps.plan import PlannedRun, plan
from remuda.client.sweeps.record import RunRecord, RunState, SweepBook
from remuda.client.sweeps.sweep import Task, carry_out, tasks
from remuda.config.errors import ConfigError
from remuda.runner.serial import Start
from remuda.tests.client.sweeps.grids import SHORT, write_grid
from remuda.tests.runner.runs import run_tiny


def planned(tmp_path: Path, **changed: object) -> list[PlannedRun]:
    """Two variants with two seeds."""
    parameters = {"policy.n_step": [1, 3], **SHORT, **{key.replace("__", "."): value for key, value in changed.items()}}
    return plan(read_grid(write_grid(tmp_path / "user", parameters, seeds=2)), tmp_path / "sweep")


@dataclass
class Ends:
    """Runs one at a time; each takes two looks, and ends as it is told."""

    ends: list[RunState]
    stopped: bool = False
    left: list[RunRecord] = field(default_factory=list[RunRecord])

    def begin(self, tasks: Sequence[Task]) -> Iterable[RunRecord]:
        for task in tasks:
            self.left.append(task.record)
            yield task.record

    def poll(self) -> list[RunRecord]:
        if not self.left or (self.stopped and self.left[0].state == "waiting"):
            return []
        if self.left[0].state == "waiting":
            self.left[0] = replace(self.left[0], state="running")
            return [self.left[0]]
        return [replace(self.left.pop(0), state="stopped" if self.stopped else self.ends.pop(0), env_step=7)]

    def stop_runs(self, names: Collection[str]) -> None:
        raise AssertionError(f"nobody stops {names}")

    def stop(self) -> None:
        self.stopped = True


def carried_out(tmp_path: Path, executor: Ends, *, stop_after: int = 10**9) -> tuple[SweepBook, list[RunRecord]]:
    (tmp_path / "sweep").mkdir(exist_ok=True)
    book = SweepBook(tmp_path / "sweep", name="hills", mode="serial")
    _, todo = tasks(planned(tmp_path), book.runs, "serial")
    seen: list[RunRecord] = []
    looks = iter(range(10**9))
    carry_out(
        todo,
        executor,
        book,
        ending=lambda: next(looks) >= stop_after,
        on_change=seen.extend,
        sleep=lambda seconds: None,
    )
    return book, seen


def test_all_are_new_at_first(tmp_path: Path) -> None:
    runs = planned(tmp_path)
    records, todo = tasks(runs, {}, "serial")
    assert [task.run for task in todo] == runs
    assert [task.on_exists for task in todo] == ["error"] * 4
    assert [task.record for task in todo] == records
    assert records[3] == RunRecord(
        name="hills_pol-ns3_s1",
        variant="hills_pol-ns3",
        seed=1,
        settings={"policy.n_step": 3, "stop.max_env_steps": 60, "env.num_envs": 1},
        run_dir="hills_pol-ns3/hills_pol-ns3_s1",
    )


def test_every_step_is_told_and_every_change_of_state_is_on_disk(tmp_path: Path) -> None:
    book, seen = carried_out(tmp_path, Ends(["finished"] * 4))
    assert [record.state for record in seen] == ["waiting"] * 4 + ["running", "finished"] * 4
    again = SweepBook(tmp_path / "sweep", name="hills", mode="serial").runs
    assert again == book.runs
    assert {record.state for record in again.values()} == {"finished"}


def test_when_asked_to_end_those_under_way_end_and_no_other_begins(tmp_path: Path) -> None:
    executor = Ends(["finished"] * 4)
    book, seen = carried_out(tmp_path, executor, stop_after=4 + 3)
    assert executor.stopped
    assert [record.state for record in seen[4:]] == ["running", "finished", "running", "stopped"]
    assert [record.state for record in book.runs.values()] == ["finished", "stopped"]


def test_asked_to_end_while_runs_are_handed_over(tmp_path: Path) -> None:
    executor = Ends(["finished"] * 4)
    _, seen = carried_out(tmp_path, executor, stop_after=1)
    assert executor.stopped
    assert [record.state for record in seen] == ["waiting"] * 2
    assert len(executor.left) == 2


# --- the second start


def really_run(run: PlannedRun, state: RunState = "finished") -> RunRecord:
    run_tiny(run.loaded.config, Start(run.run_dir))
    (record,), _ = tasks([run], {}, "serial")
    return replace(record, state=state, env_step=60, best_return=1.0)


def test_what_is_finished_is_left_alone_and_what_was_interrupted_goes_on(tmp_path: Path) -> None:
    first, second, third, fourth = runs = planned(tmp_path)
    done, cut, broken = really_run(first), really_run(second, "running"), really_run(third, "failed")
    records, todo = tasks(runs, {record.name: record for record in (done, cut, broken)}, "serial")
    assert [(task.run, task.on_exists) for task in todo] == [(second, "resume"), (third, "resume"), (fourth, "error")]
    assert records[0] == done
    assert [record.state for record in records[1:]] == ["waiting"] * 3
    assert records[1].env_step == 60, "what was reached stays known"


def test_a_finished_run_goes_on_when_it_is_to_be_longer(tmp_path: Path) -> None:
    run = planned(tmp_path)[0]
    done = really_run(run)
    longer = planned(tmp_path, stop__max_env_steps=[120])[0]
    _, (task,) = tasks([longer], {run.name: done}, "serial")
    assert task.on_exists == "resume"


def test_a_finished_run_whose_folder_is_gone_is_made_again(tmp_path: Path) -> None:
    run = planned(tmp_path)[0]
    done = replace(RunRecord(name=run.name, variant=run.variant, seed=0, settings={}, run_dir=""), state="finished")
    _, (task,) = tasks([run], {run.name: done}, "serial")
    assert task.on_exists == "error"


def test_a_finished_run_with_other_settings_is_not_taken_for_this_one(tmp_path: Path) -> None:
    run = planned(tmp_path)[0]
    done = really_run(run)
    other = planned(tmp_path, learner__batch_size=[4])[0]
    with pytest.raises(ConfigError, match="started with other settings"):
        tasks([other], {run.name: done}, "serial")
