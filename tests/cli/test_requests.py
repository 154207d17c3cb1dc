"""`remuda submit --follow` while the coordinator is away."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.cli.requests import follow_to_the_end
from remuda.client import Client
from remuda.config.environment import EnvConfig
from remuda.config.schema import ExperimentConfig
from remuda.tests.client.statuses import status
from remuda.tests.worker.fake_coordinator import UUID, FakeCoordinator
from remuda.wire import connection_file
from remuda.wire.messages import CoordinatorStatus, Status

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
