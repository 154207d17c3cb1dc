"""What a grid comes to: valid configs, folders, and how runs begin in what lies there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from remuda.client.sweeps.grid import read_grid
from remuda.client.sweeps.plan import PlannedRun, beginning, changed, plan
from remuda.config.errors import ConfigError
from remuda.config.load import load_config
from remuda.runner.serial import Start
from remuda.tests.client.sweeps.grids import SHORT, write_grid
from remuda.tests.runner.runs import run_tiny

LR = {"learner.learning_rate": [1e-3, 3e-4]}


def planned(
    tmp_path: Path, parameters: Mapping[str, object], *, seeds: object = None, sets: list[str] | None = None
) -> list[PlannedRun]:
    grid = read_grid(write_grid(tmp_path / "user", parameters, seeds=seeds))
    return plan(grid, tmp_path / "sweep", sets=sets or [])


def problems(tmp_path: Path, parameters: Mapping[str, object], sets: list[str] | None = None) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as raised:
        planned(tmp_path, parameters, sets=sets)
    return raised.value.problems


def test_runs_their_configs_and_their_folders(tmp_path: Path) -> None:
    runs = planned(tmp_path, {**LR, "policy.double": [True]}, seeds=[0, 10], sets=["log.interval_train_iters=7"])
    assert [run.name for run in runs] == [
        "hills_lea-lea0-001_s0",
        "hills_lea-lea0-001_s10",
        "hills_lea-lea0-0003_s0",
        "hills_lea-lea0-0003_s10",
    ]
    last = runs[-1]
    assert last.run_dir == tmp_path / "sweep" / "hills_lea-lea0-0003" / "hills_lea-lea0-0003_s10"
    assert (last.variant, last.seed) == ("hills_lea-lea0-0003", 10)
    assert last.settings == {"learner.learning_rate": 3e-4, "policy.double": True}
    config = last.loaded.config
    assert (config.name, config.seed, config.learner.learning_rate) == ("hills_lea-lea0-0003", 10, 3e-4)
    assert config.log.interval_train_iters == 7
    assert last.loaded.provenance["learner.learning_rate"] == "command line"
    assert last.loaded.provenance["learner.batch_size"] == "file"
    assert not (tmp_path / "sweep").exists()


def test_a_run_by_hand_is_the_same_experiment(tmp_path: Path) -> None:
    """What `remuda train` is told comes to the very config."""
    for run in planned(tmp_path, {**LR, "env.kwargs": [{"fails_at": None}], "policy.hidden": [[4], [8, 8]]}, seeds=2):
        config, *rest = run.arguments
        texts = [text for flag, text in zip(rest[::2], rest[1::2], strict=True) if flag == "--set"]
        assert rest[-2] == "--seed"
        assert load_config(config, overrides=texts, seed=int(rest[-1])).config == run.loaded.config


def test_every_problem_of_every_variant_is_told_once_with_its_line(tmp_path: Path) -> None:
    said = problems(tmp_path, {"learner.bath_size": [1, 2], "policy.discount": [0.5, 7]})
    assert len(said) == len(set(said)) == 2
    grid = tmp_path / "user" / "grid.yaml"
    assert said[0] == f"{grid}:4: learner.bath_size: no such setting; did you mean learner.batch_size?"
    assert said[1].startswith(f"{grid}:7: policy.discount: should be less than or equal to 1")


@pytest.mark.parametrize("text", ["learner.learning_rate=1", "seed=3"])
def test_what_the_grid_varies_cannot_be_set_for_all(tmp_path: Path, text: str) -> None:
    (said,) = problems(tmp_path, dict(LR), [text])
    assert said.startswith(f"--set {text}: ")
    assert "change it there" in said


# --- what lies in a run's folder
@pytest.fixture
def run(tmp_path: Path) -> PlannedRun:
    (planned_run,) = planned(tmp_path, SHORT)
    return planned_run


def make(run: PlannedRun) -> None:
    run_tiny(run.loaded.config, Start(run.run_dir))


def test_a_run_with_a_checkpoint_goes_on(run: PlannedRun) -> None:
    make(run)
    assert beginning(run, "serial") == "resume"
    assert beginning(run, "serial", force=True) == "force"
    assert changed(run) == []


@pytest.mark.parametrize("missing", ["config.json", "ckpt/index.json"])
def test_a_run_that_died_at_its_very_beginning_starts_over(run: PlannedRun, missing: str) -> None:
    make(run)
    (run.run_dir / missing).unlink()
    assert beginning(run, "serial") == "force"


def test_a_run_with_other_settings_is_never_gone_on_with(run: PlannedRun, tmp_path: Path) -> None:
    make(run)
    (other,) = planned(tmp_path, {**SHORT, "learner.batch_size": [4], "stop.max_wall_s": [9]})
    assert changed(other) == ["learner.batch_size", "stop.max_wall_s"]
    with pytest.raises(
        ConfigError, match=r"hills_s3 was started with other settings \(learner\.batch_size\): start over"
    ):
        beginning(other, "serial")
    assert beginning(other, "serial", force=True) == "force"


def test_a_run_may_be_gone_on_with_for_longer(run: PlannedRun, tmp_path: Path) -> None:
    make(run)
    (longer,) = planned(tmp_path, {**SHORT, "stop.max_env_steps": [120], "log.interval_train_iters": [3]})
    assert beginning(longer, "serial") == "resume"
