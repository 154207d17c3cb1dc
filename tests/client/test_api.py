"""`remuda.train` and `remuda.launch`: what they take, what they return, and what they say of wrong input."""

from __future__ import annotations

import json
import math
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import remuda
from remuda.client.running import why_nothing_was_learned
from remuda.config.load import load_settings
from remuda.config.schema import ExperimentConfig
from remuda.storage.existing_folder import RunFolderError
from remuda.tests.parallel.user_folder import UserFolder
from remuda.tests.patience import HANG_S
from remuda.tests.runner.runs import GAVE_WAY, write_user_folder

ROOT = Path(__file__).resolve().parents[2]
CARTPOLE: dict[str, Any] = {
    "name": "pole",
    "env": {"id": "CartPole-v1", "num_envs": 2, "vectorization": "sync"},
    "policy": {"type": "dqn", "hidden": [16]},
    "evaluator": {"episodes": 2, "interval_env_steps": 200},
    "buffer": {"min_rows": 100},
}
SHORT = {"max_env_steps": 60}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder, from outside of which its config is used."""
    monkeypatch.chdir(tmp_path)
    return write_user_folder(tmp_path / "user")


def test_train_cartpole_and_play_what_was_learned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = remuda.ExperimentConfig.model_validate(CARTPOLE)
    result = remuda.train(settings, run_dir=tmp_path / "pole", progress=False, stop={"max_env_steps": 400})
    assert capsys.readouterr() == ("", "")
    assert settings.stop.max_env_steps != 400, "it is not changed"
    assert (result.state, result.reason, result.run_dir) == ("finished", "max_env_steps", tmp_path / "pole")
    assert result.env_step >= 400
    assert result.train_iter > 0
    assert result.episode > 0
    assert result.best_return is not None
    assert result.last_return is not None
    assert result.best_return >= result.last_return

    env, get_action = remuda.load_policy(result.run_dir)
    observation, _ = env.reset(seed=0)
    steps, over = 0, False
    while not over:
        observation, _, terminated, truncated, _ = env.step(get_action(observation))
        steps, over = steps + 1, terminated or truncated
    env.close()
    assert 0 < steps <= 500
    assert math.isfinite(remuda.load_value(result.run_dir)(observation))


def test_overrides_beat_a_file_one_by_one(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMUDA_RUNS_DIR", str(tmp_path / "elsewhere"))
    overrides: dict[str, Any] = {"env.num_envs": 1, "learner": {"batch_size": 4}}
    result = remuda.train(config, progress=False, seed=7, stop=SHORT, **overrides)
    assert result.run_dir == tmp_path / "elsewhere" / "tiny"
    used = json.loads((result.run_dir / "config.json").read_text())
    assert (used["seed"], used["env"]["num_envs"], used["env"]["make"]) == (7, 1, "walk:make")
    assert (used["learner"]["batch_size"], used["learner"]["prefetch_batches"]) == (4, 4)
    text = (result.run_dir / "formatted_total_config.py").read_text()
    assert "'batch_size': 4,  # command line" in text
    assert "'prefetch_batches': 4,  # file" in text


def test_a_run_that_is_there_is_refused_resumed_or_kept(config: Path) -> None:
    first = remuda.train(config, progress=False, stop=SHORT)
    with pytest.raises(RunFolderError, match="already holds a run"):
        remuda.train(config, progress=False, stop=SHORT)
    config.unlink()
    resumed = remuda.train(run_dir=first.run_dir, progress=False, stop={"max_env_steps": 120}, on_exists="resume")
    assert (resumed.run_dir, resumed.env_step) == (first.run_dir, 120)
    with pytest.raises(TypeError, match="give a config, or a run to continue"):
        remuda.train(run_dir=first.run_dir)
    renamed = remuda.train(first.run_dir / "config.json", progress=False, stop=SHORT, on_exists="rename")
    assert renamed.run_dir != first.run_dir


@pytest.mark.parametrize("start", [remuda.train, remuda.launch])
def test_wrong_settings_are_named_wherever_they_stand(start: Any, config: Path, tmp_path: Path) -> None:
    with pytest.raises(remuda.ConfigError) as caught:
        start({**CARTPOLE, "learner": {"bath_size": 8}, "sead": 1})
    assert len(caught.value.problems) == 2
    assert all(problem.startswith("config: ") for problem in caught.value.problems)
    assert "learner.bath_size: no such setting" in str(caught.value)
    assert "batch_size" in str(caught.value)
    with pytest.raises(remuda.ConfigError, match=r"^override: learner\.batch_size: should be"):
        start(config, learner={"batch_size": -1})
    with pytest.raises(remuda.ConfigError, match=r"^override: runs_dir: no such setting"):
        start(config, runs_dir="/elsewhere")
    with pytest.raises(remuda.ConfigError, match=r"^config: env: is required"):
        start({"name": "nothing"})
    with pytest.raises(remuda.ConfigError, match=r"missing\.yaml: cannot be read"):
        start("missing.yaml")
    assert not (tmp_path / "runs").exists()


def test_launch_starts_nothing_that_cannot_run(config: Path, tmp_path: Path) -> None:
    with pytest.raises(remuda.UnusableError, match="has no function 'fly'"):
        remuda.launch(config, env={"make": "walk:fly"})
    with pytest.raises(remuda.UnusableError, match=r"learner\.device = 'cuda:77' cannot be used"):
        remuda.launch(config, learner={"device": "cuda:77"})
    with pytest.raises(remuda.UnusableError, match=r"inference\.device = 'cuda:77' cannot be used"):
        remuda.launch(config, inference={"count": 1, "device": "cuda:77"})
    assert not (tmp_path / "runs").exists()


def test_a_run_that_fails_raises_with_the_place_of_its_log(config: Path, tmp_path: Path) -> None:
    with pytest.raises(remuda.TrainingFailedError, match="the floor gave way") as caught:
        remuda.train(config, progress=False, env={"kwargs": {"fails_at": 30}, "restarts_per_hour": 0})
    error = caught.value
    assert error.run_dir == tmp_path / "runs" / "tiny"
    assert re.fullmatch(GAVE_WAY, error.reason)
    log = error.run_dir / "log" / "evaluator" / "evaluator_logger.txt"
    assert str(log) in str(error)
    assert "the floor gave way" in log.read_text()


def test_only_the_main_thread_can_hear_of_ctrl_c(config: Path) -> None:
    errors: list[str] = []

    def call() -> None:
        for start in (remuda.train, remuda.launch):
            try:
                start(config, stop=SHORT)
            except RuntimeError as error:
                errors.append(str(error))

    thread = threading.Thread(target=call, name="helper")
    thread.start()
    thread.join(HANG_S)
    assert ["remuda.train was called in the thread 'helper'" in errors[0], "`remuda launch`" in errors[1]] == [True] * 2


class PressesCtrlC(remuda.Callback):
    """Once, when the first evaluation is over."""

    pressed = False

    def on_evaluation(self, event: object, run: object) -> None:
        if not self.pressed:
            self.pressed = True
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_saves_and_the_script_goes_on(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    result = remuda.train(config, run_dir="run", callbacks=(PressesCtrlC(),), stop={"max_env_steps": 100_000})
    assert (result.state, result.reason, result.run_dir.name) == ("stopped", "stopped", "run")
    assert "tiny: stopped | env_step " in capsys.readouterr().err, "progress is shown"
    assert (tmp_path / "run" / "ckpt" / "ckpt_interrupt.pth.tar").exists()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.processes
@pytest.mark.usefixtures("forked")
def test_launch_a_herd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    user = UserFolder.make(tmp_path / "user")
    result = remuda.launch(user.config, progress=False, stop={"max_env_steps": 600}, collector={"count": "auto"})
    assert (result.state, result.reason, result.run_dir) == ("finished", "max_env_steps", tmp_path / "runs" / "horse")
    assert result.env_step >= 600
    assert result.best_return is not None
    assert "  # measured" in (result.run_dir / "formatted_total_config.py").read_text()
    assert "auto: collector.count " in (result.run_dir / "log/commander/commander_logger.txt").read_text()


def test_the_example_runs_and_stands_in_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = ROOT / "examples" / "from_python.py"
    text = example.read_text(encoding="utf-8")
    code = text.partition("\n\n")[2]
    assert code in (ROOT / "README.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert "30_000" in code
    exec(compile(code.replace("30_000", "300"), str(example), "exec"), {})
    assert capsys.readouterr().out.startswith("max_env_steps after 30")


def loaded(**settings: Any) -> ExperimentConfig:
    given = {"name": "a", "env": {"id": "CartPole-v1", "num_envs": 4}, **settings}
    return load_settings(given, folder=Path()).config


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"policy": {"type": "dqn"}},
            "about 1020 environment steps (buffer.min_rows is 1000 rows, learner.batch_size 64)",
        ),
        ({"policy": {"type": "r2d2"}}, "about 40320 environment steps (buffer.min_rows is 1000 sequences,"),
        (
            {"policy": {"type": "ppo"}, "collector": {"count": 3}},
            "about 768 environment steps (12 segments of 64 steps)",
        ),
    ],
)
def test_it_says_how_many_steps_the_first_update_needs(settings: dict[str, Any], said: str) -> None:
    text = why_nothing_was_learned(loaded(**settings), reason="max_env_steps", train_iter=0)
    assert text is not None
    assert text.startswith("nothing was learned: the first update needs ")
    assert said in text
    assert "Raise stop.max_env_steps, or lower " in text
