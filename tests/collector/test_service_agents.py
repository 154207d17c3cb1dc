"""A collector's lease in an environment with several agents: a step counts once, and every agent's step is a row."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remuda.buffer.chunk import read_chunk
from remuda.collector.service import CollectorWork
from remuda.config.schema import ExperimentConfig
from remuda.environments.assignment import config_of_policy
from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.make import check_environment
from remuda.learner import checkpoint
from remuda.learner.checkpoint import new_algorithm
from remuda.policy.files.policy_file import publish
from remuda.tests.parallel.reading import texts
from remuda.tests.worker.games import AGENTS, COPIES, games, shared_config
from remuda.tests.worker.leases import EXPERIMENT, assign_to, new_run, sha256_of, stores_of
from remuda.tests.worker.recording_link import WORKER, RecordingLink
from remuda.wire.messages import (
    CheckpointFile,
    ChunkAccepted,
    ChunkMeta,
    ChunkReady,
    CollectorReport,
    Counters,
    Credit,
    Opponents,
    PolicyRef,
)
from remuda.worker.link import WorkerIdentity

FIRST = PolicyRef(1, 0, 0)


class Lease:
    """The other side of a collector's link."""

    def __init__(self, folder: Path, config: ExperimentConfig, index: int = 0) -> None:
        self.run, self.link = new_run(folder), RecordingLink()
        own = config_of_policy(config)
        algorithm = new_algorithm(own, *check_environment(own))
        path = self.run.policy_file(EXPERIMENT, 0)
        publish(path, algorithm.acting_state(), FIRST, warn=lambda text: None)
        games().clear()
        assign = assign_to(self.run, config, index=index)
        self.work = CollectorWork(assign, WorkerIdentity(WORKER, 1), self.link, stores_of(self.run))
        self.exploration = {"epsilon": 0.5}

    def collect(self, credit: int) -> list[ChunkMeta]:
        """Let it use so much credit up, and let go."""
        self.work.handle(Credit(1, credit, FIRST, self.exploration))
        answered = 0
        while self.work.step() or answered < len(self.link.sent_of(ChunkReady)):
            for ready in self.link.sent_of(ChunkReady)[answered:]:
                self.work.handle(ChunkAccepted(ready.meta.chunk, credit, FIRST, self.exploration))
                answered += 1
        self.work.drain()
        return [ready.meta for ready in self.link.sent_of(ChunkReady)]

    def columns(self, metas: list[ChunkMeta]) -> list[dict[str, Any]]:
        return [dict(read_chunk(self.run.data / meta.file, meta)) for meta in metas]


@pytest.fixture
def opened() -> Iterator[list[Lease]]:
    leases: list[Lease] = []
    yield leases
    for lease in leases:
        lease.work.close()


def acted() -> int:
    return sum(len(game.log) for game in games())


def test_each_step_of_each_agent_is_a_row_once_within_the_credit(tmp_path: Path, opened: list[Lease]) -> None:
    opened.append(lease := Lease(tmp_path, shared_config(tmp_path / "user")))
    metas = lease.collect(60)
    assert len(games()) == COPIES
    assert sum(meta.env_steps for meta in metas) == sum(game.steps for game in games())
    assert 60 <= sum(meta.env_steps for meta in metas) < 60 + 16 + COPIES
    assert sum(meta.rows for meta in metas) == acted(), "the last ones come when the lease ends"
    ends = [done for game in games() for done in game.log if done.terminated or done.truncated]
    assert sum(len(meta.episode_returns) for meta in metas) == len(ends)
    for agent in AGENTS:
        of_agent = sum(done.agent == agent for done in ends)
        assert sum(len(meta.episode_info.get(f"return_{agent}", ())) for meta in metas) == of_agent
    assert any("return_a1_mean" in report.statistics for report in lease.link.sent_of(CollectorReport))
    assert set(json.loads(lease.run.env_spec.read_text())["agents"]) == set(AGENTS)
    seen = np.concatenate([columns["obs"] for columns in lease.columns(metas)])
    assert sorted(map(tuple, seen.tolist())) == sorted(done.seen for game in games() for done in game.log)


def save(lease: Lease, train_iter: int, config: ExperimentConfig) -> CheckpointFile:
    own, path = config_of_policy(config), lease.run.checkpoint(train_iter)
    progress = checkpoint.Progress(Counters(train_iter=train_iter), PolicyRef(), {})
    checkpoint.save(path, new_algorithm(own, *check_environment(own)), progress, config=own)
    return CheckpointFile(path.name, sha256_of(path))


def said(lease: Lease, start: str) -> list[str]:
    return texts(lease.run.worker_log("collector", WORKER, 1), start)


def test_in_self_play_older_checkpoints_teach_nothing(tmp_path: Path, opened: list[Lease]) -> None:
    """In each episode one agent learns, and the log says against which checkpoint. One that is gone does not play."""
    config = shared_config(tmp_path / "user", self_play={"share": 1.0, "keep": 2})
    opened.append(lease := Lease(tmp_path, config))
    played = list(games())
    files = [save(lease, 10, config), CheckpointFile("iteration_20.pth.tar", "0" * 64), save(lease, 30, config)]
    for _ in range(2):  # the coordinator repeats itself
        lease.work.handle(Opponents(1, [files]))
    metas = lease.collect(60)
    [warned] = said(lease, "iteration_20 does not play: ")
    assert "no such checkpoint" in warned
    assert len(said(lease, "iteration_10 plays against newer policies from now on")) == 1
    learned = sum(meta.rows for meta in metas)
    episodes = sum(len(meta.episode_returns) for meta in metas)
    steps = sum(game.steps for game in played)
    assert 0 < learned <= steps, "in each step of a copy one agent at most"
    assert learned < 0.7 * sum(len(game.log) for game in played)
    assert sum(meta.env_steps for meta in metas) == steps
    assert sum(len(meta.episode_info["against_past"]) for meta in metas if meta.episode_returns) == episodes
    told = " ".join(said(lease, "episodes begun: "))
    drawn = [(int(count), int(name)) for count, name in re.findall(r"(\d+) against iteration_(\d+)", told)]
    assert {name for _, name in drawn} <= {10, 30}
    assert sum(count for count, _ in drawn) >= episodes > 0


def test_an_environment_with_other_agents_than_were_submitted_is_refused(tmp_path: Path) -> None:
    config = shared_config(tmp_path / "user")
    other = config.model_copy(update={"env": config.env.model_copy(update={"agents": ("a0", "a1")})})
    run = new_run(tmp_path)
    with pytest.raises(EnvironmentBuildError, match="an agent a2"):
        CollectorWork(assign_to(run, other), WorkerIdentity(WORKER, 1), RecordingLink(), stores_of(run))
