"""What is promised of a search under way: so many trials at once, exact ends, nothing lost by an interruption."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from remuda.client.sweeps.grid import read_grid
from remuda.client.sweeps.plan import Task, plan_trial, tasks
from remuda.client.sweeps.record import RunRecord, SweepBook
from remuda.client.sweeps.search import GIVEN_UP, SearchLoop
from remuda.client.sweeps.space import Distribution, Pruning, Search
from remuda.client.sweeps.study import Study, Trial
from remuda.config.errors import ConfigError
from remuda.tests.client.sweeps.grids import SHORT, write_grid

STEP = 10
"""Environment steps that a run makes between two looks."""


@dataclass
class Runs:
    """Each run makes STEP steps per look, up to 6 times, and returns its `n_step` times its steps."""

    executing: dict[str, RunRecord] = field(default_factory=dict[str, RunRecord])
    most_at_once: int = 0
    begun: list[str] = field(default_factory=list[str])
    fails: str = ""
    stopped: set[str] = field(default_factory=set[str])

    def begin(self, tasks: Sequence[Task]) -> Iterable[RunRecord]:
        for task in tasks:
            self.begun.append(task.run.name)
            self.executing[task.run.name] = replace(task.record, state="running", reason=None)
            yield self.executing[task.run.name]
        self.most_at_once = max(self.most_at_once, len({record.variant for record in self.executing.values()}))

    def poll(self) -> list[RunRecord]:
        news: list[RunRecord] = []
        for name, record in list(self.executing.items()):
            step = record.env_step + STEP
            reached = float(record.settings["policy.n_step"]) * step
            over = "stopped" if name in self.stopped else "finished" if step >= 6 * STEP else "running"
            if name == self.fails:
                over = "failed"
            new = replace(record, env_step=step, last_return=reached, best_return=reached, state=over)
            self.executing[name] = new
            if new.over:
                del self.executing[name]
            news.append(new)
        return news

    def stop_runs(self, names: Collection[str]) -> None:
        self.stopped |= set(names)

    def stop(self) -> None:
        self.stopped |= set(self.executing)


class Searched:
    """A search in a folder, which may be interrupted and made again."""

    def __init__(self, tmp_path: Path, *, values: tuple[int, ...], trials: int, pruning: Pruning | None = None) -> None:
        self.folder = tmp_path / "sweep"
        self.folder.mkdir(exist_ok=True)
        space = {"policy.n_step": Distribution(values=values)}
        self.search = Search(trials=trials, space=space, sampler="random", at_once=2, pruning=pruning)
        path = write_grid(tmp_path / "user", dict(SHORT), seeds=2)
        text = path.read_text() + f"search:\n  trials: {trials}\n  space: {{policy.n_step: {list(values)}}}\n"
        path.write_text(text)
        self.grid = read_grid(path)

    def run(self, executor: Runs, *, stop_after: int = 10**9) -> tuple[Study, dict[str, RunRecord]]:
        study, book = Study(self.folder, "hills", self.search), SweepBook(self.folder, name="hills", mode="serial")
        looks = iter(range(10**9))

        def tasks_of(trial: Trial) -> tuple[Sequence[RunRecord], Sequence[Task]]:
            runs = plan_trial(self.grid, trial.number, trial.settings, self.folder)
            return tasks(runs, book.runs, "serial")

        under_way = SearchLoop(
            self.search,
            study,
            executor,
            book,
            tasks_of=tasks_of,
            name_of=lambda trial: self.grid.trial(trial.number, trial.settings).name,
            report_every_env_steps=2 * STEP,
            on_change=lambda news: None,
        )
        under_way.run(ending=lambda: next(looks) >= stop_after, sleep=lambda seconds: None)
        return study, dict(book.runs)


def test_all_trials_end_with_the_mean_of_their_seeds_and_two_run_at_once(tmp_path: Path) -> None:
    runs = Runs()
    study, records = Searched(tmp_path, values=(1, 3), trials=5).run(runs)
    assert [(one.number, one.state) for one in study.trials] == [(number, "complete") for number in range(5)]
    assert [one.value for one in study.trials] == [
        60.0 * int(str(one.settings["policy.n_step"])) for one in study.trials
    ]
    assert runs.most_at_once == 2
    assert len(records) == 10
    assert {record.state for record in records.values()} == {"finished"}
    assert sorted(records)[:2] == ["hills_t000_s0", "hills_t000_s1"]


def test_a_trial_that_is_worse_is_stopped_and_says_why(tmp_path: Path) -> None:
    searched = Searched(
        tmp_path, values=(1, 2, 3, 4, 5, 6), trials=12, pruning=Pruning(percentile=50.0, after_trials=2)
    )
    study, records = searched.run(Runs())
    given_up = [trial for trial in study.trials if trial.state == "pruned"]
    assert given_up
    for trial in given_up:
        assert trial.value is not None
        for seed in (0, 1):
            record = records[f"hills_t{trial.number:03d}_s{seed}"]
            assert (record.state, record.reason) == ("stopped", GIVEN_UP)
            assert record.env_step < 6 * STEP
    best = max((trial for trial in study.trials if trial.state == "complete"), key=lambda one: one.value or 0.0)
    assert all((trial.value or 0.0) < (best.value or 0.0) for trial in given_up)


def test_an_interrupted_search_goes_on_with_the_trials_that_were_under_way(tmp_path: Path) -> None:
    searched = Searched(tmp_path, values=(1, 2), trials=4)
    study, records = searched.run(Runs(), stop_after=4)
    assert [trial.state for trial in study.trials] == ["running", "running"]
    assert {record.state for record in records.values()} == {"stopped"}
    runs = Runs()
    study, records = searched.run(runs)
    assert [trial.state for trial in study.trials] == ["complete"] * 4
    assert runs.begun[:4] == ["hills_t000_s0", "hills_t000_s1", "hills_t001_s0", "hills_t001_s1"]
    assert len(records) == 8


def test_settings_that_do_not_go_together_fail_their_trial_alone(tmp_path: Path) -> None:
    searched = Searched(tmp_path, values=(1, 2), trials=2)
    study, book = Study(searched.folder, "hills", searched.search), SweepBook(searched.folder, name="h", mode="serial")

    def tasks_of(trial: Trial) -> tuple[Sequence[RunRecord], Sequence[Task]]:
        if trial.number == 0:
            raise ConfigError(["f:1: too large together"])
        return tasks(plan_trial(searched.grid, 1, trial.settings, searched.folder), {}, "serial")

    told: list[RunRecord] = []
    SearchLoop(
        searched.search,
        study,
        Runs(),
        book,
        tasks_of=tasks_of,
        name_of=lambda trial: searched.grid.trial(trial.number, trial.settings).name,
        report_every_env_steps=STEP,
        on_change=told.extend,
    ).run(ending=lambda: False, sleep=lambda seconds: None)
    assert [trial.state for trial in study.trials] == ["failed", "complete"]
    assert (told[0].name, told[0].state, told[0].reason) == ("hills_t000", "failed", "f:1: too large together")


RATE = {"learner.learning_rate": {"low": 1e-4, "high": 1e-1, "log": True}}
SPACE = {**RATE, "policy.n_step": {"low": 1, "high": 5}, "policy.hidden": [[64], [32, 32]]}


def search(**changed: object) -> Search:
    return Search.model_validate({"trials": 30, "space": SPACE, "sampler": "random", **changed})


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    first = Study(tmp_path, "hills", search())
    asked = [first.ask() for _ in range(3)]
    first.report(0, 100, 5.0)
    first.tell(0, "complete", 7.5)
    first.tell(1, "failed")
    again = Study(tmp_path, "hills", search())
    assert [(one.number, one.state, one.value) for one in again.trials] == [
        (0, "complete", 7.5),
        (1, "failed", None),
        (2, "running", None),
    ]
    assert [one.settings for one in again.trials] == [one.settings for one in asked]
    fourth = again.ask()
    assert fourth.number == 3
    assert fourth.settings not in [one.settings for one in asked]  # it does not draw the same numbers again


def test_another_space_is_refused(tmp_path: Path) -> None:
    Study(tmp_path, "hills", search()).ask()
    with pytest.raises(ValueError, match="was begun with another space"):
        Study(tmp_path, "hills", search(space=RATE))


def test_what_is_worse_after_as_many_steps_is_given_up(tmp_path: Path) -> None:
    study = Study(tmp_path, "hills", search(pruning=Pruning(percentile=50.0, after_trials=3, after_env_steps=200)))
    for value in (10.0, 20.0, 30.0):
        trial = study.ask()
        assert not study.report(trial.number, 200, value)  # nobody to compare with
        study.tell(trial.number, "complete", value)
    worse, better = study.ask(), study.ask()
    assert not study.report(worse.number, 100, -5.0)  # too soon
    assert study.report(worse.number, 200, 15.0)  # the median is 20
    assert not study.report(better.number, 200, 25.0)
    study.tell(worse.number, "pruned")
    told = study.trials[worse.number]
    assert (told.state, told.value) == ("pruned", 15.0)


def test_tpe_finds_a_hill_that_chance_seldom_finds(tmp_path: Path) -> None:
    """One setting, the best at 2e-3: half of the last twenty trials lie within a factor of two; a fifth by chance."""
    study = Study(tmp_path, "hills", search(trials=60, sampler="tpe", space=RATE))
    near = 0
    for number in range(60):
        trial = study.ask()
        rate = float(str(trial.settings["learner.learning_rate"]))
        study.tell(trial.number, "complete", -((max(rate / 2e-3, 2e-3 / rate) - 1.0) ** 2))
        near += number >= 40 and 1e-3 <= rate <= 4e-3
    assert near >= 10
    assert study.log_settings == ["learner.learning_rate"]


def test_importances_name_what_matters(tmp_path: Path) -> None:
    study = Study(tmp_path, "hills", search())
    for _ in range(60):
        trial = study.ask()
        study.tell(trial.number, "complete", float(str(trial.settings["policy.n_step"])))
    shares = study.importances()
    assert max(shares, key=lambda key: shares[key]) == "policy.n_step"
    assert sum(shares.values()) == pytest.approx(1.0)
    (tmp_path / "empty").mkdir()
    assert Study(tmp_path / "empty", "hills", search()).importances() == {}


def test_a_failed_run_makes_its_trial_fail_and_stops_no_other(tmp_path: Path) -> None:
    study, records = Searched(tmp_path, values=(1, 2), trials=3).run(Runs(fails="hills_t001_s0"))
    assert [trial.state for trial in study.trials] == ["complete", "failed", "complete"]
    assert records["hills_t001_s0"].state == "failed"
