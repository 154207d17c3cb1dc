"""`remuda submit --follow` while the coordinator is away, and of a run that it has forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.cli.requests import follow_to_the_end
from remuda.client import Client
from remuda.config.environment import EnvConfig
from remuda.config.schema import ExperimentConfig
from remuda.storage.run_folder import RunFolder
from remuda.tests.client.statuses import status
from remuda.tests.page.folders import say, write_checkpoints
from remuda.tests.worker.fake_coordinator import UUID, FakeCoordinator
from remuda.wire import connection_file
from remuda.wire.messages import CoordinatorStatus, Rejected, Status

ANSWER_S = 0.5
"""For questions that nobody answers."""


def test_a_follower_waits_for_a_restarted_coordinator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run goes on meanwhile, so an error after one unanswered question would be wrong."""
    path, over = tmp_path / "connection.json", status(state="finished", reason="max_env_steps")
    with FakeCoordinator() as coordinator:
        coordinator.answer = lambda message: Status(CoordinatorStatus(UUID, "here", 1, 1.0, 1), [], [over])
        coordinator.lose = lambda envelope: len(coordinator.peers) < 3  # two questions have no answer
        connection_file.write(path, coordinator.connection)
        with Client(path, answer_deadline_s=ANSWER_S) as client:
            follow_to_the_end(client, over.id, ExperimentConfig(name="mine", env=EnvConfig(id="CartPole-v1")), [])
    assert "mine finished: max_env_steps; best return 195.50" in capsys.readouterr().err


def test_a_follower_of_a_forgotten_run_learns_the_end_from_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A coordinator keeps the last runs to end: more may end while the follower's machine sleeps. The command ended
    with code 2."""
    path, folder = tmp_path / "connection.json", RunFolder(tmp_path / "mine")
    folder.ckpt.mkdir(parents=True)
    write_checkpoints(folder, [9.0, 100.0, 50.0])
    say(folder.commander_log, "the run is over after 180.0 s: max_env_steps; env_step 160 has reached max_env_steps 60")
    running = status(run_dir=str(folder.root))
    answers = iter([Status(CoordinatorStatus(UUID, "here", 1, 1.0, 1), [], [running])])
    with FakeCoordinator() as coordinator:
        coordinator.answer = lambda message: next(answers, Rejected("unknown", "no experiment is called that"))
        connection_file.write(path, coordinator.connection)
        with Client(path) as client:
            follow_to_the_end(client, running.id, ExperimentConfig(name="mine", env=EnvConfig(id="CartPole-v1")), [])
    shown = capsys.readouterr().err
    assert "mine finished: max_env_steps; best return 100.00" in shown
    assert "env_step 160, train_iter 20, 3.0 s" in shown
