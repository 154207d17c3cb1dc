"""examples/custom_algorithm.py in serial mode: it learns, its run is played and resumed, no code is run unasked."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest

from remuda.config.load import load_config
from remuda.config.schema import ExperimentConfig
from remuda.learner.settings import LearnerSettings
from remuda.policy.algorithms import UnknownAlgorithmError, make_algorithm, make_policy
from remuda.policy.files.checkpoint_file import CheckpointError
from remuda.policy.files.functions import load_action, load_policy, load_value
from remuda.policy.saved_state import StateMismatchError
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.runner.serial import RunResult, Start, run
from remuda.tests.runner.runs import Flag

EXAMPLES = Path(__file__).parents[2] / "examples"
SPACES = ObservationSpec((4,), "float32"), ActionSpec(2)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """A user's folder with the example in it."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    user = tmp_path / "user"
    user.mkdir()
    for name in ("custom_algorithm.py", "custom_algorithm.yaml"):
        shutil.copy(EXAMPLES / name, user / name)
    yield user
    sys.modules.pop("custom_algorithm", None)


def config_in(folder: Path, *overrides: str) -> ExperimentConfig:
    return load_config(folder / "custom_algorithm.yaml", overrides=overrides).config


def trained(folder: Path, run_dir: Path, *overrides: str, resume: bool = False) -> RunResult:
    start = Start(run_dir, "resume" if resume else "error")
    return run(config_in(folder, *overrides), start, stop=Flag())


def short(folder: Path, run_dir: Path, *, env_steps: int, resume: bool = False) -> RunResult:
    settings = (f"stop.max_env_steps={env_steps}", "buffer.min_rows=100", "evaluator.episodes=1")
    return trained(folder, run_dir, *settings, resume=resume)


def test_it_fits_a_page() -> None:
    assert len((EXAMPLES / "custom_algorithm.py").read_text("utf-8").splitlines()) < 115


def test_its_settings_and_its_optimizer_follow_schedules(folder: Path) -> None:
    overrides = "learner.learning_rate=[[0, 0.1], [100, 0]]", "policy.target_update_iters=[[0, 100], [100, 300]]"
    config = config_in(folder, *overrides)
    algorithm = make_algorithm(config, *SPACES, seed=0)
    settings = LearnerSettings(config, lambda config, values: algorithm.adjust(config))
    optimizer, own = vars(algorithm)["optimizer"], "target_update_iters"
    assert (optimizer.param_groups[0]["lr"], getattr(vars(algorithm)["settings"], own)) == (0.1, 100)
    settings.follow(50)
    assert (optimizer.param_groups[0]["lr"], getattr(vars(algorithm)["settings"], own)) == (0.05, 200)


def test_it_learns_on_the_device_of_the_config(folder: Path) -> None:
    """The device meta computes shapes and no numbers: it is there on every machine, and refuses what is on another."""
    algorithm = make_algorithm(config_in(folder, "learner.device=meta"), *SPACES, seed=0)
    steps = {name: np.ones((2, 4), np.float32) for name in ("obs", "next_obs")}
    numbers = {name: np.ones(2, np.float32) for name in ("reward", "discount", "weights")}
    result = algorithm.learn({**steps, **numbers, "action": np.ones(2, np.int64)})
    assert {str(getattr(metric, "device", None)) for metric in result.metrics.values()} == {"meta"}


def test_it_learns(folder: Path, tmp_path: Path) -> None:
    result = trained(folder, tmp_path / "run")
    assert result.reason == "stop_value", result
    assert result.best is not None
    assert result.best.reward_mean >= 195


def test_a_run_of_it_is_resumed_and_played(folder: Path, tmp_path: Path) -> None:
    first = short(folder, tmp_path / "run", env_steps=300)
    second = short(folder, tmp_path / "run", env_steps=600, resume=True)
    assert not second.failed, second
    assert second.counters.env_step > first.counters.env_step
    assert second.counters.train_iter > first.counters.train_iter > 0
    env, get_action = load_policy(second.run_dir)
    observation, _ = env.reset(seed=0)
    assert get_action(observation) in (0, 1)
    assert get_action(observation, deterministic=False) in (0, 1)
    assert isinstance(load_value(second.run_dir)(observation), float)
    header = (second.run_dir / "progress.txt").read_text().splitlines()[0].split("\t")
    assert {"LossQ", "AverageQVals"} <= set(header)
    assert "no model/ is written" in (second.run_dir / "log" / "learner" / "learner_logger.txt").read_text()
    assert not list((second.run_dir / "model").glob("*"))


def test_another_network_at_resume_is_refused_by_the_name_of_its_setting(folder: Path, tmp_path: Path) -> None:
    short(folder, tmp_path / "run", env_steps=200)
    config = config_in(folder, "policy.hidden=5")
    with pytest.raises(CheckpointError, match=r"is of another network: policy\.hidden is 5 and was 128"):
        run(config, Start(tmp_path / "run", "resume"), stop=Flag())
    acting = make_policy(config, *SPACES)
    with pytest.raises(StateMismatchError, match=r"0\.weight has shape \(128, 4\), needed is \(5, 4\)"):
        acting.load_state(weights_of(config_in(folder)))


def weights_of(config: ExperimentConfig) -> dict[str, np.ndarray]:
    return make_algorithm(config, *SPACES, 0).acting_state()


def test_code_that_came_with_a_run_folder_is_not_imported_unasked(folder: Path, tmp_path: Path) -> None:
    short(folder, tmp_path / "run", env_steps=200)
    moved = tmp_path / "moved"
    shutil.copytree(tmp_path / "run", moved)
    shutil.copy(folder / "custom_algorithm.py", moved / "custom_algorithm.py")
    shutil.rmtree(folder)
    sys.path[:] = [str(moved), *sys.path]
    with pytest.raises(CheckpointError, match=r"policy\.type = 'custom_algorithm:BoltzmannQ'.*is in the run folder"):
        load_action(moved)
    assert load_action(moved, trust_code=True) is not None


def test_code_that_has_changed_what_it_declares_is_refused_by_its_workers(folder: Path) -> None:
    config = config_in(folder)
    code = folder / "custom_algorithm.py"
    code.write_text(code.read_text().replace("n_step=1", "n_step=13"))
    with pytest.raises(UnknownAlgorithmError, match="its code has changed"):
        make_policy(config, *SPACES)
