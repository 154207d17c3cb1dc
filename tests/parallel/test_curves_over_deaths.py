"""Everything is killed, and goes on: progress.txt and every curve show each step once, and none is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.tests.faults.herd import Herd
from remuda.tests.logbook.event_reader import curves, histograms
from remuda.tests.parallel.command import Command
from remuda.tests.parallel.reading import index, progress, table, texts
from remuda.tests.parallel.user_folder import CONFIG, HELD, UserFolder
from remuda.tests.patience import until

pytestmark = pytest.mark.processes

END = 6_500
"""Environment steps: more than the herd takes until it notices that it is to die at 2,500."""
LONG: dict[str, dict[str, object]] = {
    **HELD,
    "stop": {"max_env_steps": END},
    "log": {**CONFIG["log"], "progress_interval_env_steps": 250, "buffer_interval_s": 2.0},
}


def assert_shown_once(run: Path, *, end: int) -> None:
    """Every row and every point, on each of its axes."""
    rows = [(int(row["Epoch"]), int(row["TotalEnvInteracts"])) for row in progress(run)]
    assert [epoch for epoch, _ in rows] == list(range(len(rows)))
    assert [env_step for _, env_step in rows] == list(range(0, end + 1, 250))
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
    evaluated = [record for record in index(run)["checkpoints"] if record["reward"] is not None]
    shown = dict(curves(run / "log" / "commander" / "commander_tb_logger")["evaluator_iter/reward_mean"])
    for record in evaluated:
        assert shown[record["train_iter"]] == pytest.approx(record["reward"], rel=1e-5)
    weights = histograms(run / "log" / "learner" / "learner_tb_logger")["weights_iter/advantage.weight"]
    assert {record["train_iter"] for record in index(run)["checkpoints"]} <= {step for step, _ in weights}
    told = [table(text) for text in texts(run / "log" / "commander" / "commander_logger.txt", "=== Evaluation")]
    assert [int(values["train_iter"]) for values in told] == sorted(shown)


def test_all_killed_and_started_again(tmp_path: Path) -> None:
    """Coordinator, nanny and workers, twice, at moments that nothing else decides."""
    user, herd = UserFolder.make(tmp_path / "user", LONG), Herd(tmp_path / "herd", "lost_after_s=2")
    try:
        herd.coordinator()
        herd.workers()
        user.hold()
        run = herd.submit(user)
        release_after_row_0(user, run)
        for env_step in (800, 2_500):
            herd.wait_env_step("horse", env_step)
            herd.kill_all()
            herd.coordinator()
            herd.workers()
        herd.wait_over("horse")
        herd.shut_down()
    finally:
        herd.end()
    assert_shown_once(run, end=END)


def test_all_killed_and_resumed(tmp_path: Path) -> None:
    user, run = UserFolder.make(tmp_path / "user", LONG), tmp_path / "run"
    user.hold()
    commands: list[Command] = []
    try:
        for number, env_step in enumerate((1_000, 2_500)):
            more = ("--resume",) if number else ()
            command = Command(tmp_path / f"{number}", user.root, "launch", user.config, "--run-dir", run, *more)
            commands.append(command)
            if not number:
                release_after_row_0(user, run)
            kill_at(env_step, command, run)
        last = Command(tmp_path / "last", user.root, "launch", user.config, "--run-dir", run, "--resume")
        commands.append(last)
        ended = last.ended()
        assert ended.code == 0, ended.err
    finally:
        for command in commands:
            command.end()
    assert_shown_once(run, end=END)


def release_after_row_0(user: UserFolder, run: Path) -> None:
    until(lambda: (run / "progress.txt").exists() and progress(run), "the initial policy is evaluated")
    user.release()


def kill_at(env_step: int, command: Command, run: Path) -> None:
    """All of its processes, once the run has come so far."""
    until(lambda: last_row(run) >= env_step, f"it is at {env_step}")
    command.kill_all()


def last_row(run: Path) -> int:
    try:
        return int(progress(run)[-1]["TotalEnvInteracts"])
    except (OSError, IndexError, KeyError, ValueError, TypeError):
        return 0  # not there yet, or being written
