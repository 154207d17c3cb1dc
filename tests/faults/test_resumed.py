"""38. Everything is killed and resumed: counters are exact, and each row and point is there once."""

from __future__ import annotations

import random
import re
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from remuda.tests.faults.herd import CHUNK, ENDLESS, VECTOR, Journal
from remuda.tests.faults.sizes import LONG, RESUMES
from remuda.tests.logbook.event_reader import curves, histograms
from remuda.tests.parallel.command import Command
from remuda.tests.parallel.reading import assert_rows_are_there_once, index, pids, progress, table, texts
from remuda.tests.parallel.user_folder import CONFIG, UserFolder
from remuda.tests.patience import until

pytestmark = pytest.mark.processes

LEARNING, EVALUATIONS = (4_000, 4) if LONG else (1_000, 1)
"""Environment steps and evaluations before everything is killed."""
ROW_ENV_STEPS = 250
SETTINGS: dict[str, dict[str, object]] = {
    **ENDLESS,
    "evaluator": {**CONFIG["evaluator"], "episodes": 20, "interval_env_steps": 500},
    "log": {**CONFIG["log"], "progress_interval_env_steps": ROW_ENV_STEPS, "buffer_interval_s": 2.0},
}


def test_everything_killed_and_resumed(tmp_path: Path) -> None:
    """Counters never fall; at most the chunk in work is lost of each collector; the policy plays as well as before."""
    user, run, chance = UserFolder.make(tmp_path / "user", SETTINGS), tmp_path / "run", random.Random(38)
    known, before = 0, list[Evaluation]()
    for incarnation in range(RESUMES + 1):
        goal = known + LEARNING if incarnation == RESUMES else 10_000_000
        options = ("--set", f"stop.max_env_steps={goal}", *(("--resume",) if incarnation else ()))
        launch = ("launch", user.config, "--run-dir", run, *options)
        command = Command(tmp_path / f"launch{incarnation}", user.root, *launch)
        try:
            if incarnation < RESUMES:
                until_it_has_learned(command, run, known)
                time.sleep(chance.random())
                command.kill_all()
                saved, known = index(run)["checkpoints"][-1]["env_step"], counted(run, at_least=known)
                assert known >= saved
                before = evaluations(run)
            else:
                ended = command.ended()
                assert ended.code == 0, ended.err
                assert command.family() == []
        finally:
            command.end()
    env_step = index(run)["checkpoints"][-1]["env_step"]
    assert env_step == counted(run, at_least=known + LEARNING)
    taken = sum(map(user.steps, pids(run, "collector")))
    assert env_step <= taken <= env_step + RESUMES * 2 * (CHUNK + VECTOR)
    assert_shown_once(run)
    if LONG:
        plays_as_well_as(before, next(each for each in evaluations(run) if each.incarnation == RESUMES))


def counted(run: Path, at_least: int) -> int:
    env_steps = Journal.of(run).snapshot.experiment.replay.ledger.env_steps
    assert env_steps >= at_least
    return env_steps


def assert_shown_once(run: Path) -> None:
    """Every row and every point, on each of its axes."""
    assert_rows_are_there_once(run)
    steps = [int(row["TotalEnvInteracts"]) for row in progress(run)]
    assert steps[:-1] == list(range(0, ROW_ENV_STEPS * (len(steps) - 1), ROW_ENV_STEPS))
    for folder in sorted(run.rglob("*_tb_logger")):
        for tag, points in curves(folder).items():
            steps = [step for step, _ in points]
            assert tag.startswith("collector_") or steps == sorted(steps), (folder.name, tag, steps)
            if tag.startswith(("learner_iter/", "evaluator_", "buffer_sec/", "vitals_sec/")):
                # others have several values at one step
                assert len(set(steps)) == len(steps), (folder.name, tag, steps)
        for tag, points_of in histograms(folder).items():
            steps = [step for step, _ in points_of]
            assert steps == sorted(set(steps)), (folder.name, tag, steps)
    checkpoints = index(run)["checkpoints"]
    shown = dict(curves(run / "log" / "commander" / "commander_tb_logger")["evaluator_iter/reward_mean"])
    for record in checkpoints:
        assert record["reward"] is None or shown[record["train_iter"]] == pytest.approx(record["reward"], rel=1e-5)
    weights = histograms(run / "log" / "learner" / "learner_tb_logger")["weights_iter/advantage.weight"]
    assert {record["train_iter"] for record in checkpoints} <= {step for step, _ in weights}
    told = [table(text) for text in texts(run / "log" / "commander" / "commander_logger.txt", "=== Evaluation")]
    assert [int(values["train_iter"]) for values in told] == sorted(shown)


@dataclass(frozen=True)
class Evaluation:
    """One of the evaluator's tables."""

    incarnation: int
    """Of the whole run: how often it was resumed before."""
    returns: list[float]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.returns)


def evaluations(run: Path) -> list[Evaluation]:
    """Oldest first; each incarnation of the run has an evaluator of its own, whose log begins with the time."""
    logs = sorted((run / "log" / "evaluator").glob("*_logger.txt"), key=lambda log: log.read_text().partition("\n")[0])
    return [
        Evaluation(incarnation, [float(each) for each in re.findall(r"-?\d+\.\d{6}", table(text)["each_reward"])])
        for incarnation, log in enumerate(logs)
        for text in texts(log, "=== Evaluation")
    ]


def until_it_has_learned(command: Command, run: Path, known: int) -> None:
    def learned() -> bool:
        assert command.process.poll() is None
        if not (run / "ckpt" / "index.json").exists():
            return False
        now = len(list((run / "log" / "evaluator").glob("*_logger.txt"))) - 1
        if index(run)["checkpoints"][-1]["env_step"] < known + LEARNING:
            return False
        return sum(each.incarnation == now for each in evaluations(run)) >= EVALUATIONS

    until(learned, "it has learned for a while")


def plays_as_well_as(before: list[Evaluation], at_resume: Evaluation) -> None:
    """Within a confidence interval of 99 %: of episodes within an evaluation, and of policies between them."""
    means = [each.mean for each in before[-4:]]
    spread = statistics.stdev(before[-1].returns) / len(before[-1].returns) ** 0.5
    score, half_width = statistics.fmean(means), 2.6 * (spread + statistics.stdev(means))
    print(f"38: return {score:.2f} ± {half_width:.2f} before, {at_resume.mean:.2f} after")
    assert abs(at_resume.mean - score) <= half_width
