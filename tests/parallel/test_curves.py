"""What TensorBoard shows of a parallel run."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.tests.logbook.event_reader import curves
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
    assert steps == list(range(20, index(finished.run)["last"] + 1, 20))


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
