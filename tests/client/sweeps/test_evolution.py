"""A population's lineage is exact, whichever write its processes die after."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from remuda.client.sweeps.evolution import Evolution, PopulationFailedError
from remuda.client.sweeps.family import members, members_table, tree
from remuda.client.sweeps.grid import Grid, read_grid
from remuda.client.sweeps.lineage import Lineage, LineageError, pinned
from remuda.client.sweeps.plan import Task
from remuda.client.sweeps.population import problems
from remuda.client.sweeps.record import RunRecord, SweepBook
from remuda.config.dump import write_configs
from remuda.config.errors import ConfigError
from remuda.config.load import load_config
from remuda.storage.atomic import write_bytes
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.tests.client.sweeps.grids import write_grid
from remuda.wire.messages import CheckpointRecord

LR = "learner.learning_rate"
INTERVAL, MOST = 20, 60
POPULATION = f"""
search:
  pbt:
    population: 4
    interval_env_steps: {INTERVAL}
    copies: weights_and_replay
    space: {{{LR}: {{low: 1.0e-5, high: 1.0e-1, log: true}}}}
"""


class DiedError(BaseException):
    """A kill -9 after a write: nothing handles it."""


class Mortal:
    """Dies after a number of writes. A write is a file or folder that gets its name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 10**9
        for where, name in ((os, "replace"), (os, "rename"), (os, "mkdir"), (shutil, "copy")):
            monkeypatch.setattr(where, name, self._counted(getattr(where, name)))

    def _counted(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            written = write(*args, **kwargs)
            self.left -= 1
            if self.left <= 0:
                raise DiedError
            return written

        return counted


class Runs:
    """Trains one run at a time. The weights of a run are the list of what they have learned: seed, learning rate and
    step of each ten steps, so that a checkpoint names its whole ancestry."""

    def __init__(self, fails: Collection[int] = (), most_intervals: int = 10**9) -> None:
        """Runs of the members `fails` fail. The process dies after `most_intervals`."""
        self._fails, self._left = fails, most_intervals
        self._waiting: list[Task] = []

    def begin(self, tasks: Sequence[Task]) -> Iterator[RunRecord]:
        if self._left == 0:
            raise DiedError
        self._left -= 1
        for task in tasks:
            self._waiting.append(task)
            yield task.record

    def poll(self) -> list[RunRecord]:
        task = self._waiting.pop(0)
        member = task.run.seed - 3
        if member in self._fails:
            return [replace(task.record, state="failed", reason="it diverged")]
        reached, last_return = self._train(task)
        return [replace(task.record, state="finished", reason=None, env_step=reached, last_return=last_return)]

    def stop_runs(self, names: Collection[str]) -> None: ...

    def stop(self) -> None: ...

    def _train(self, task: Task) -> tuple[int, float]:
        run, config = RunFolder(task.run.run_dir), task.run.loaded.config
        if task.on_exists != "resume":
            shutil.rmtree(run.root, ignore_errors=True)
            run.ckpt.mkdir(parents=True)
            write_configs(run.root, config, {})
        index = CheckpointIndex(run.ckpt)
        if index.last is None:
            _save(index, 0, [])
        elif index.last.reward is not None:  # as if it were stopped at once: saved again, with other random states
            _save(index, index.last.env_step, weights(run, index.last), f"again in {run.root.name}")
        assert index.last is not None
        learned = weights(run, index.last)
        for step in range(index.last.env_step + 10, config.stop.max_env_steps + 1, 10):
            learned = [*learned, [config.seed, config.learner.learning_rate, step]]
            _save(index, step, learned)
        index.set_reward(index.last.train_iter, _return(learned), best=True)
        return config.stop.max_env_steps, _return(learned)


def _save(index: CheckpointIndex, step: int, learned: list[Any], random: str = "") -> None:
    content = json.dumps({"learned": learned, "random": random}).encode()
    file = f"iteration_{step}.pth.tar"
    write_bytes(index.folder / file, content, durable=False)
    sha256 = hashlib.sha256(content).hexdigest()
    index.add(
        CheckpointRecord(
            train_iter=step, env_step=step, wall_s=0.0, reward=None, file=file, sha256=sha256, created="today"
        ),
        keep=1,
    )


def _return(learned: list[Any]) -> float:
    """A learning rate of 1e-3 learns most."""
    return sum(1.0 - abs(math.log10(rate) + 3.0) for _, rate, _ in learned)


def weights(run: RunFolder, record: CheckpointRecord) -> list[Any]:
    learned: list[Any] = json.loads((run.ckpt / record.file).read_text())["learned"]
    return learned


def grid_of(tmp_path: Path) -> Grid:
    path = write_grid(tmp_path / "user", {"stop.max_env_steps": [MOST], "stop.stop_value": [None]})
    path.write_text(path.read_text() + POPULATION)
    return read_grid(path)


def evolved(grid: Grid, folder: Path, runs: Runs | None = None) -> SweepBook:
    """Begin or continue a population, to its end."""
    folder.mkdir(exist_ok=True)
    book = SweepBook(folder, name=grid.name, mode="serial")
    assert grid.population is not None
    evolution = Evolution(
        grid, grid.population, runs or Runs(), book, folder=folder, mode="serial", sleep=lambda s: None
    )
    assert evolution.run(ending=lambda: False)
    return book


def checked(folder: Path, lineage: Lineage) -> None:
    """The weights of every member are those of its ancestors by the lineage, step by step."""
    for last in lineage.intervals[-1].origins:
        expected: list[Any] = []
        member = last.member
        for interval in reversed(lineage.intervals):
            origin = interval.origins[member]
            begun = 0 if origin.checkpoint is None else origin.checkpoint.env_step
            steps = range(interval.until_env_step, begun, -10)
            expected = [[3 + member, origin.settings[LR], step] for step in reversed(steps)] + expected
            if origin.parent is not None:
                member = int(origin.parent.rpartition("_m")[2].partition("_g")[0])
        run = RunFolder(folder / last.run.rpartition("_g")[0] / last.run)
        newest = CheckpointIndex(run.ckpt).last
        assert newest is not None
        assert weights(run, newest) == expected


def test_the_lineage_is_exact_over_any_schedule_of_deaths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = grid_of(tmp_path)
    undisturbed = evolved(grid, tmp_path / "undisturbed").lineage
    assert undisturbed is not None
    assert len(undisturbed.intervals) == MOST // INTERVAL
    assert any(origin.generation for origin in undisturbed.intervals[-1].origins), "somebody was replaced"
    mortal = Mortal(monkeypatch)
    for schedule in range(2):
        folder, deaths, rng = tmp_path / f"schedule_{schedule}", 0, np.random.default_rng(schedule)
        book = None
        while book is None:
            mortal.left = int(rng.integers(1, 40))
            try:
                book = evolved(grid, folder)
            except DiedError:
                deaths += 1
            mortal.left = 10**9
        assert deaths > 3
        assert book.lineage == undisturbed
        checked(folder, undisturbed)
        assert len(list((folder / "origins").iterdir())) <= 4


def test_a_checkpoint_that_is_not_the_recorded_one_begins_nothing(tmp_path: Path) -> None:
    grid, folder = grid_of(tmp_path), tmp_path / "sweep"
    with pytest.raises(DiedError):
        evolved(grid, folder, Runs(most_intervals=1))
    lineage = SweepBook(folder, name="hills", mode="serial").lineage
    assert lineage is not None
    checkpoint = lineage.intervals[-1].origins[0].checkpoint
    assert checkpoint is not None
    kept = pinned(folder, checkpoint)
    right = kept.read_bytes()
    kept.write_bytes(right + b" ")
    before = (folder / "sweep.json").read_bytes()
    with pytest.raises(LineageError, match=f"{kept} has the SHA-256 .*, and the lineage says {checkpoint.sha256}"):
        evolved(grid, folder)
    assert (folder / "sweep.json").read_bytes() == before
    kept.write_bytes(right)
    checked(folder, evolved(grid, folder).lineage or Lineage({}, ()))


def test_a_failed_member_is_replaced_and_a_failed_population_says_why(tmp_path: Path) -> None:
    grid = grid_of(tmp_path)
    book = evolved(grid, tmp_path / "one", Runs(fails=[2]))
    assert book.lineage is not None
    first, second, *_ = book.lineage.intervals
    assert first.ends[2] is None
    assert second.origins[2].parent != first.origins[2].run
    assert book.runs["hills_m02_g0"].reason == f"replaced: goes on from {second.origins[2].parent}"
    assert book.runs["hills_m02_g1"].state == "failed"
    with pytest.raises(PopulationFailedError, match="every member has failed; the first: it diverged"):
        evolved(grid, tmp_path / "all", Runs(fails=range(4)))
    shows_each_run(book)


def shows_each_run(book: SweepBook) -> None:
    """Table and tree name members, parents and checkpoints."""
    assert book.lineage is not None
    origins = book.lineage.intervals[-1].origins
    (best, _), *_ = members(book.lineage, book.runs)
    assert book.runs[best.run].last_return == max(book.runs[origin.run].last_return or -99.0 for origin in origins)
    rows = members_table(book.lineage, book.runs).splitlines()
    assert rows[0].split() == ["run", "state", "parent", "env_step", "return", LR]
    assert rows[2].split()[0] == best.run
    assert {row.split()[0] for row in rows[2:]} == {origin.run for origin in origins}
    lines = tree(book.lineage).splitlines()
    assert len(lines) == len(book.runs)
    for origin in origins:
        if origin.generation:
            (line,) = (line for line in lines if origin.run in line)
            assert line.startswith(("├─ ", "└─ ", "│  ", "   "))


def test_what_no_population_can_be_is_said_with_its_line(tmp_path: Path) -> None:
    grid = grid_of(tmp_path)
    wrong = grid.path.with_name("wrong.yaml")
    text = grid.path.read_text()
    wrong.write_text(text.replace(LR, "policy.discount"))
    said = "wrong.yaml:[0-9]+: search.pbt.space.policy.discount: cannot change during a run; settings that can: .*"
    refused = read_grid(wrong)
    assert refused.population is not None
    with pytest.raises(ConfigError, match=said):
        refused.require_none(problems(refused.population, load_config(grid.config).config))
    wrong.write_text(text.replace("population: 4", "populatoin: 4"))
    with pytest.raises(ConfigError, match=r"search\.pbt\.populatoin: no such .* did you mean"):
        read_grid(wrong)
    with pytest.raises(DiedError):
        evolved(grid, tmp_path / "sweep", Runs(most_intervals=0))
    wrong.write_text(text.replace("high: 1.0e-1", "high: 1.0e-2"))
    with pytest.raises(ConfigError, match="was begun with another space"):
        evolved(read_grid(wrong), tmp_path / "sweep")
