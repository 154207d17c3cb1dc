"""A search on a real herd, by the command that a user types: killed and gone on with, and a trial that is given up."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path

import optuna
import pytest
import yaml
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from remuda.tests.faults.herd import Herd
from remuda.tests.parallel.command import Command
from remuda.tests.patience import until
from remuda.wire.messages import ExperimentStatus

pytestmark = pytest.mark.processes

WELL = '''"""Each step pays what the settings say. Wells wait in some of their steps as long as a file is there."""

import time
from pathlib import Path

import gymnasium
import numpy as np

HERE = Path(__file__).parent
WAITS = {True: {50: HERE / "deep_50", 85: HERE / "deep_85"}, False: {85: HERE / "other_85"}}


class Well(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, pays, deep):
        self.pays, self.deep, self.taken = pays, deep, 0

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.taken += 1
        self.time += 1
        file = WAITS[self.deep].get(self.taken)
        while file is not None and file.exists():
            time.sleep(0.01)
        return np.zeros(1, np.float32), self.pays, self.time == 5, False, {}


def make(pays, deep=False):
    return Well(pays, deep)
'''
CONFIG = {
    "name": "well",
    "env": {"make": "well:make", "num_envs": 1, "vectorization": "sync"},
    "policy": {"type": "dqn", "hidden": [8]},
    "learner": {"batch_size": 8},
    "collector": {"count": 1, "chunk_env_steps": 10},
    "evaluator": {"count": 1, "episodes": 2, "interval_env_steps": 20},
    "buffer": {"samples_per_insert": 4},
    "checkpoint": {"interval_env_steps": 100, "keep": 2},
}
SEARCH = {
    "name": "wells",
    "config": "well.yaml",
    "grid": {"stop.max_env_steps": [120]},
    "search": {
        "trials": 3,
        "at_once": 1,
        "sampler": "random",
        "seed": 270,
        "space": {
            "env.kwargs": [{"pays": 1.0}, {"pays": 0.0, "deep": True}],
            "buffer.capacity": [300, 1000],
            "buffer.min_rows": [20, 500],
        },
        "pruning": {"after_trials": 1, "after_env_steps": 80},
    },
}
"""Its seed draws: a well that pays, settings that do not go together, and a deep well."""


@pytest.fixture
def herd(tmp_path: Path) -> Generator[Herd]:
    """In the user's folder, where its files lie. Its environments wait for as long as it takes."""
    herd = Herd(tmp_path / "user", "stuck_after_s=600,hopeless_after_s=1200")
    for name, content in (("well.yaml", CONFIG), ("wells.yaml", SEARCH)):
        (herd.root / name).write_text(yaml.safe_dump(content, sort_keys=False))
    (herd.root / "well.py").write_text(WELL)
    yield herd
    herd.end()


def test_killed_and_gone_on_with_over_a_coordinators_death_it_ends_as_if_nothing_had_been(
    herd: Herd, tmp_path: Path
) -> None:
    """The trial under way is followed again, not begun twice; worse than another it is given up, and stops; and the
    trial whose settings do not go together is named."""
    for name in ("other_85", "deep_50", "deep_85"):
        (herd.root / name).touch()
    coordinator = herd.coordinator()
    herd.workers(collectors=1)
    commands: list[Command] = []

    def search() -> Command:
        commands.append(Command(tmp_path / f"sweep{len(commands)}", herd.root, "sweep", "wells.yaml", "--on", "herd"))
        return commands[-1]

    def deep() -> ExperimentStatus:
        (found,) = (one for one in herd.status().experiments if one.name == "wells_t002_s0")
        return found

    try:
        first = search()
        until(lambda: first.process.poll() is not None or 80 in _reported(herd), "the first trial has reported")
        (herd.root / "other_85").unlink()
        until(lambda: first.process.poll() is not None or _in_work(herd, "wells_t002_s0"), "the deep well is tried")
        assert first.process.poll() is None, first.ended()
        before = deep()
        first.process.kill()
        first.process.wait()

        second = search()
        until(lambda: "wells_t002_s0: running" in second.said(), "it is followed again")
        herd.kill_coordinator(coordinator)
        (herd.root / "deep_50").unlink()
        until(lambda: second.process.poll() is not None or deep().state == "stopping", "it is given up")
        assert second.process.poll() is None, second.ended()
        (herd.root / "deep_85").unlink()
        ended = second.ended()
    finally:
        for command in commands:
            command.end()
    assert ended.code == 0, ended.err
    stopped = herd.wait_over("wells_t002_s0", "stopped")
    assert (stopped.id, stopped.env_step < 120) == (before.id, True)
    assert len(herd.status().experiments) == 2, "nothing was begun twice"
    assert [line.split()[:2] for line in ended.out.splitlines()[2:5]] == [
        ["t000", "complete"],
        ["t002", "pruned"],
        ["t001", "failed"],
    ]
    assert "1 of 3 runs failed:\n  wells_t001: " in ended.out
    assert "buffer.min_rows (500) is more than buffer.capacity (300)" in ended.out
    folder = herd.runs / "wells"
    assert (folder / "study.png").read_bytes().startswith(b"\x89PNG")
    stored = {run["name"]: run for run in json.loads((folder / "sweep.json").read_text())["runs"]}
    assert [(stored[name]["state"], stored[name]["reason"]) for name in ("wells_t000_s0", "wells_t002_s0")] == [
        ("finished", "max_env_steps"),
        ("stopped", "pruned: other trials were better"),
    ]
    herd.shut_down()


def _reported(herd: Herd) -> dict[int, float]:
    """What the first trial has reported, by environment steps, as whoever opens the study sees it."""
    file = herd.runs / "wells" / "study.log"
    if not file.exists():
        return {}
    try:
        study = optuna.load_study(study_name="wells", storage=JournalStorage(JournalFileBackend(str(file))))
    except KeyError:  # the file is there before the study is in it
        return {}
    return next((trial.intermediate_values for trial in study.get_trials(deepcopy=False)), {})


def _in_work(herd: Herd, name: str) -> bool:
    return any(one.name == name and one.env_step > 0 for one in herd.status().experiments)
