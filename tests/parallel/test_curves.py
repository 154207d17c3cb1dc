"""What TensorBoard shows of a parallel run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from remuda.tests.logbook.event_reader import curves, films, histograms
from remuda.tests.parallel.conftest import Finished
from remuda.tests.parallel.reading import index, table, texts
from remuda.tests.parallel.test_logs import EVALUATION, LEARN, SAMPLE, THROUGHPUT, WORKER

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("a finished parallel run")]

BOTH = ("iter", "step")

ROLES = ("learner", "collector", "evaluator")
VITALS = ("processes", "cpu_cores", "rss_mib", "work", "env", "wait_data", "wait_policy", "wait_credit", "wait_other")


def tags(role: str, keys: list[str]) -> set[str]:
    return {f"{role}_{axis}/{key}" for axis in BOTH for key in keys}


def numeric(keys: list[str]) -> list[str]:
    return [key for key in keys if key not in ("ckpt_name", "each_reward")]


def test_learner(finished: Finished) -> None:
    found = curves(finished.run / "log" / "learner" / "learner_tb_logger")
    assert set(found) == tags("learner", LEARN)
    steps = [step for step, _ in found["learner_iter/total_loss_avg"]]
    assert steps == sorted(set(steps)), "one for each interval, and for rows of progress.txt in between"
    assert set(range(20, index(finished.run)["last"] + 1, 20)) <= set(steps)


def test_buffer(finished: Finished) -> None:
    found = curves(finished.run / "log" / "buffer" / "buffer_tb_logger")
    assert set(found) == tags("buffer", SAMPLE) | {f"buffer_sec/{key}" for key in THROUGHPUT}


def test_commander(finished: Finished) -> None:
    found = curves(finished.run / "log" / "commander" / "commander_tb_logger")
    vitals = {tag for tag in found if tag.startswith("vitals_sec/")}
    results = {f"results/{name}" for name in ("best_return", "last_return", "env_step", "train_iter", "wall_s")}
    assert set(found) - vitals == tags("collector", WORKER) | tags("evaluator", numeric(EVALUATION)) | results
    assert vitals >= {f"vitals_sec/{role}_{name}" for role in ROLES for name in VITALS}


def test_the_curve_of_evaluations_is_that_of_the_log(finished: Finished) -> None:
    found = curves(finished.run / "log" / "commander" / "commander_tb_logger")
    log: Path = finished.run / "log" / "commander" / "commander_logger.txt"
    told = [table(text) for text in texts(log, "=== Evaluation")]
    shown = found["evaluator_iter/reward_mean"]
    assert [step for step, _ in shown] == [int(values["train_iter"]) for values in told]
    assert [value for _, value in shown] == pytest.approx([float(values["reward_mean"]) for values in told], rel=1e-5)


def test_no_axis_goes_backwards(finished: Finished) -> None:
    for folder in finished.run.rglob("*_tb_logger"):
        for tag, points in curves(folder).items():
            steps = [step for step, _ in points]
            if not tag.startswith("collector_iter/"):  # each collector reports at the age of the policy it acts with
                assert steps == sorted(steps), tag


def test_every_checkpoint_has_its_weights_in_the_learners_file(finished: Finished) -> None:
    found = histograms(finished.run / "log" / "learner" / "learner_tb_logger")
    layers = ("torso.0", "streams.0", "advantage", "value")
    assert set(found) == {f"weights_iter/{layer}.{kind}" for layer in layers for kind in ("weight", "bias")}
    log = (finished.run / "log" / "learner" / "learner_logger.txt").read_text()
    saved = sorted({int(step) for step in re.findall(r"saved checkpoint .*/iteration_(\d+)\.pth\.tar", log)})
    for points in found.values():
        assert [step for step, _ in points] == saved


def test_every_evaluation_has_its_actions_and_some_have_films_in_the_commanders_file(finished: Finished) -> None:
    folder = finished.run / "log" / "commander" / "commander_tb_logger"
    shown = curves(folder)
    evaluated = [step for step, _ in shown["evaluator_iter/reward_mean"]]
    lengths = dict(shown["evaluator_iter/envstep_count"])
    ((tag, actions),) = histograms(folder).items()
    assert tag == "actions_iter/action"
    assert [step for step, _ in actions] == evaluated
    assert {step: sum(buckets.counts) for step, buckets in actions} == lengths
    env_steps = [step for step, _ in shown["evaluator_step/reward_mean"]]
    ((tag, filmed),) = films(folder).items()
    assert tag == "film_iter/first_episode"
    due = {
        env_step // 1000: train_iter for env_step, train_iter in reversed(list(zip(env_steps, evaluated, strict=True)))
    }
    assert [step for step, _ in filmed] == sorted(due.values()), "that of the last checkpoint too"
    assert all((film.height, film.width) == (8, 16) for _, film in filmed)
