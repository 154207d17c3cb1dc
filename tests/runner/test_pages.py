"""What TensorBoard shows of a serial run besides curves: histograms of each checkpoint and evaluation, and films."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from remuda.runner.serial import RunResult, Start
from remuda.storage.run_folder import RunFolder
from remuda.tests.environments.gifs import pictures_of
from remuda.tests.environments.painter import HEIGHT, LENGTH, WIDTH
from remuda.tests.logbook.event_reader import curves, films, histograms
from remuda.tests.runner.conftest import Finished
from remuda.tests.runner.runs import Flag, run_tiny, tiny_config

ENVS = "remuda.tests.environments"
WEIGHTS = {"torso.0", "streams.0", "advantage", "value"}


def steps_of(points: Sequence[tuple[int, object]]) -> list[int]:
    return [step for step, _ in points]


def saved(folder: RunFolder) -> list[int]:
    """Each checkpoint that was ever saved, by its iteration."""
    log = folder.learner_log.read_text()
    return sorted({int(found) for found in re.findall(r"saved checkpoint .*/iteration_(\d+)\.pth\.tar", log)})


def evaluated(folder: RunFolder) -> list[int]:
    return steps_of(curves(folder.serial_tb)["evaluator_iter/reward_mean"])


def test_every_checkpoint_has_its_weights_and_every_evaluation_its_actions(finished: Finished) -> None:
    found, folder = histograms(finished.folder.serial_tb), finished.folder
    weights = {tag for tag in found if tag.startswith("weights_iter/")}
    assert weights == {f"weights_iter/{layer}.{kind}" for layer in WEIGHTS for kind in ("weight", "bias")}
    assert all(steps_of(found[tag]) == saved(folder) for tag in weights)
    assert found.keys() - weights == {"actions_iter/action"}
    actions = found["actions_iter/action"]
    assert steps_of(actions) == evaluated(folder)
    lengths = dict(curves(folder.serial_tb)["evaluator_iter/envstep_count"])
    assert {step: sum(buckets.counts) for step, buckets in actions} == lengths, "each action of each evaluation"
    assert all(set(buckets.edges) <= {-0.5, 0.5, 1.5} for _, buckets in actions)
    assert films(folder.serial_tb) == {}, "nobody has asked for films"


def test_a_resumed_run_shows_each_once(user: Path, tmp_path: Path) -> None:
    config = tiny_config(user)
    run_tiny(config, Start(tmp_path / "run"), stop=Flag(looks=80))
    folder = RunFolder(run_tiny(config, Start(tmp_path / "run", "resume")).run_dir)
    found = histograms(folder.serial_tb)
    assert steps_of(found["actions_iter/action"]) == evaluated(folder)
    assert steps_of(found["weights_iter/advantage.weight"]) == saved(folder)


def test_histograms_can_be_switched_off_and_change_nothing_else(finished: Finished, user: Path, tmp_path: Path) -> None:
    result = run_tiny(tiny_config(user, "log.histograms=false"), Start(tmp_path / "run"))
    folder = RunFolder(result.run_dir)
    assert histograms(folder.serial_tb) == {}
    assert result.counters.train_iter == finished.result.counters.train_iter
    assert evaluations(folder) == evaluations(finished.folder)


def evaluations(folder: RunFolder) -> list[tuple[int, float]]:
    return curves(folder.serial_tb)["evaluator_step/reward_mean"]


def painted(user: Path, run: Path, env: str, *overrides: str) -> RunResult:
    """A run in an environment of the tests' own, which can be filmed or not."""
    config = tiny_config(user, f"env.make={ENVS}.{env}", "log.film_interval_env_steps=150", *overrides)
    return run_tiny(config, Start(run))


def test_evaluations_are_filmed(user: Path, tmp_path: Path) -> None:
    result = painted(user, tmp_path / "run", "painter:WidePainter")
    folder = RunFolder(result.run_dir)
    ((tag, found),) = films(folder.serial_tb).items()
    assert tag == "film_iter/first_episode"
    at = dict(zip(evaluated(folder), steps_of(evaluations(folder)), strict=True))
    shown = [at[step] for step, _ in found]
    assert [step // 150 for step in shown] == sorted({step // 150 for step in at.values()}), "one per multiple"
    assert shown[0] == 0
    for _, film in found:
        assert len(pictures_of(film.gif, height=HEIGHT, width=WIDTH)) == LENGTH + 1
    assert "not filmed" not in folder.serial_evaluator_log.read_text()


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("Blind", "RuntimeError: no display"),
        ("BlindLater", "RuntimeError: the renderer is gone"),
        ("Leaving", "UserExitError"),
    ],
)
def test_what_cannot_be_filmed_costs_one_warning(user: Path, tmp_path: Path, env: str, said: str) -> None:
    failed = painted(user, tmp_path / "failed", f"unfilmable:{env}")
    filmed = painted(user, tmp_path / "filmed", "painter:WidePainter")
    folder = RunFolder(failed.run_dir)
    assert (failed.reason, failed.failed) == ("max_env_steps", False)
    assert films(folder.serial_tb) == {}
    log = folder.serial_evaluator_log.read_text()
    assert log.count("not filmed") == log.count(f"[WARNING] evaluations are not filmed: {said}") == 1
    assert evaluations(folder) == evaluations(RunFolder(filmed.run_dir)), "the same figures"
    assert failed.counters.train_iter == filmed.counters.train_iter


def test_a_stop_ends_a_film_and_keeps_the_evaluation(user: Path, tmp_path: Path) -> None:
    """Looked for at each step: four episodes of the first evaluation, on six environments, are over after ten."""
    config = tiny_config(user, f"env.make={ENVS}.painter:WidePainter", "log.film_interval_env_steps=1")
    result = run_tiny(config, Start(tmp_path / "run"), stop=Flag(looks=LENGTH + 3))
    folder = RunFolder(result.run_dir)
    assert result.reason == "stopped"
    assert films(folder.serial_tb) == {}
    log = folder.serial_evaluator_log.read_text()
    assert "evaluation of iteration_0.pth.tar at env_step 0: mean return 10 over 4 episodes" in log
    assert "not filmed" not in log
