"""An evaluator's lease in an environment with several agents: the policy acts for all, and its return is their mean."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.environments.assignment import config_of_policy
from remuda.environments.make import check_environment
from remuda.environments.seeding import episode_seed
from remuda.evaluator.service import EvaluatorWork
from remuda.learner import checkpoint
from remuda.learner.checkpoint import new_algorithm
from remuda.tests.parallel.reading import texts
from remuda.tests.worker.games import AGENTS, LENGTHS, games, shared_config
from remuda.tests.worker.leases import assign_to, new_run, sha256_of, stores_of
from remuda.tests.worker.recording_link import WORKER, RecordingLink
from remuda.wire.messages import CheckpointFile, Counters, Evaluate, EvaluationDone, PolicyRef
from remuda.worker.link import WorkerIdentity
from remuda.worker.shutdown_guard import ShutdownGuard

RETURN = {f"a{n}": 100 * n * length + length * (length + 1) / 2 for n, length in enumerate(LENGTHS)}
"""Of each agent: it does not depend on actions."""


@pytest.fixture
def played(tmp_path: Path) -> Iterator[RecordingLink]:
    """Episodes 4, 5 and 6 of an evaluation."""
    config, run, link = shared_config(tmp_path / "user"), new_run(tmp_path), RecordingLink()
    own = config_of_policy(config)
    path = run.checkpoint(20)
    progress = checkpoint.Progress(Counters(train_iter=20), PolicyRef(), {"epsilon": 1.0})
    checkpoint.save(path, new_algorithm(own, *check_environment(own)), progress, config=own)
    games().clear()
    work = EvaluatorWork.under(assign_to(run, config), WorkerIdentity(WORKER, 2), link, ShutdownGuard(), stores_of(run))
    work.handle(Evaluate(1, 1, path.name, sha256_of(path), 20, 4_000, 4, 3))
    yield link
    work.close()


def test_the_return_is_the_mean_of_the_agents_and_theirs_are_told(played: RecordingLink) -> None:
    [done] = played.sent_of(EvaluationDone)
    assert (done.evaluation, done.first_episode, done.cut) == (1, 4, 0)
    assert done.actions["action"].total == 3 * sum(LENGTHS), "each agent's"
    assert done.returns == [pytest.approx(sum(RETURN.values()) / len(AGENTS))] * 3
    assert done.lengths == [max(LENGTHS)] * 3
    assert {name: done.info[f"return_{name}"] for name in AGENTS} == {name: [RETURN[name]] * 3 for name in AGENTS}


def test_an_episode_number_has_the_same_seed_as_elsewhere(played: RecordingLink) -> None:
    assert sorted(seed for game in games() for seed in game.seeds if seed is not None) == sorted(
        episode_seed(7, number) for number in (4, 5, 6)
    )


def test_in_self_play_one_agent_also_plays_against_older_checkpoints(tmp_path: Path) -> None:
    """In the episodes of the evaluation, and its return is told; the log says against whom. Older ones are read once,
    so that their files may go."""
    config, run, link = shared_config(tmp_path / "user", self_play={"share": 0.5}), new_run(tmp_path), RecordingLink()
    own = config_of_policy(config)
    files: dict[int, CheckpointFile] = {}
    for train_iter in (0, 10, 20):
        path = run.checkpoint(train_iter)
        progress = checkpoint.Progress(Counters(train_iter=train_iter), PolicyRef(), {})
        checkpoint.save(path, new_algorithm(own, *check_environment(own)), progress, config=own)
        files[train_iter] = CheckpointFile(path.name, sha256_of(path))
    work = EvaluatorWork.under(assign_to(run, config), WorkerIdentity(WORKER, 2), link, ShutdownGuard(), stores_of(run))
    try:
        asked: list[list[list[CheckpointFile]]] = [[], [[files[0], files[10]]], [[files[10]]]]
        for evaluation, older in enumerate(asked, 1):
            judged = files[20]
            work.handle(Evaluate(1, evaluation, judged.file, judged.sha256, 20, 4_000, 4, 3, older=older))
            if evaluation == 2:
                run.checkpoint(10).unlink()
    finally:
        work.close()
    first, second, third = link.sent_of(EvaluationDone)
    assert "against_past" not in first.info
    assert first.returns == second.returns == third.returns
    expected = [RETURN[AGENTS[number % len(AGENTS)]] for number in (4, 5, 6)]
    assert second.info["against_past"] == third.info["against_past"] == expected, "agents take turns"
    told = texts(run.worker_log("evaluator", WORKER, 2), "iteration_20.pth.tar plays against older checkpoints, too: ")
    assert [text.partition(": ")[2] for text in told] == [
        "iteration_0.pth.tar, iteration_10.pth.tar",
        "iteration_10.pth.tar",
    ]
