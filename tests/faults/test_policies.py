"""The coordinator of a run with several policies dies, or all of its processes: a step counts once for each policy."""

from __future__ import annotations

import operator
import re
import time
from pathlib import Path

import pytest

from remuda.buffer.chunk import read_meta
from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import Journal, assert_exact, kill
from remuda.tests.faults.sizes import AWAY_S, PAUSE_S
from remuda.tests.parallel.command import Command
from remuda.tests.parallel.conftest import wait_until_held
from remuda.tests.parallel.game_folder import HELD_GAME, TWO, make_game_folder
from remuda.tests.parallel.reading import index, pids, progress, texts
from remuda.tests.patience import until
from remuda.training.snapshot import LedgerSnapshot

pytestmark = pytest.mark.processes

POLICIES = tuple(TWO)
KEEP = 3
"""Older checkpoints that play; `checkpoint.keep` is as many."""
IN_WORK = 2 * (32 + 4 - 1)
"""What a killed collector may have taken and not announced: a chunk being filled, one being written."""


def ledger_of(run: Path, policy: str) -> LedgerSnapshot:
    return Journal.of(run, policy).snapshot.experiment.replay.ledger


def assert_rows_are_there_once(run: Path) -> None:
    for policy in POLICIES:
        rows = [(int(row["Epoch"]), int(row["TotalEnvInteracts"])) for row in progress(run / "log" / policy)]
        assert [number for number, _ in rows] == list(range(len(rows)))
        assert [env_step for _, env_step in rows] == sorted(env_step for _, env_step in rows)


def test_coordinator_killed_and_then_the_run_is_resumed(tmp_path: Path, herds: Herds) -> None:
    """In self-play. All workers go on in the same processes. Both policies have counted the same chunks, none twice,
    and none is lost; they go on to play against older checkpoints, newer and newer ones. The run that was stopped goes
    on with `submit --resume`: both policies from where they were."""
    env = {**HELD_GAME["env"], "kwargs": {"pause_s": PAUSE_S}}
    changes: dict[str, dict[str, object]] = {
        "env": env,
        "evaluator": {"episodes": 4, "interval_env_steps": 500},
        "self_play": {"share": 0.5, "keep": KEEP},
        "stop": {"max_env_steps": 10_000_000},
    }
    user, herd = make_game_folder(tmp_path / "user", TWO, changes), herds()
    coordinator = herd.coordinator()
    herd.workers(collectors=2, evaluators=1, learners=2)
    herd.wait_members(5)
    run = herd.submit(user)
    until(lambda: all(len(play) > 1 for play in playing(run)), "both collectors play against learned checkpoints")
    coordinator.kill()
    coordinator.wait()
    played, judged = playing(run), {policy: max(evaluated(run, policy), default=-1) for policy in POLICIES}
    time.sleep(AWAY_S)
    herd.coordinator()
    herd.wait_members(5)
    until(lambda: all(map(operator.lt, map(len, played), map(len, playing(run)))), "collectors learn of newer ones")
    until(
        lambda: all(evaluated(run, policy)[-1:] > [judged[policy]] for policy in POLICIES), "newer ones are evaluated"
    )
    with herd.client() as client:
        client.stop("horse")
    first = herd.wait_over("horse", "stopped")
    assert_older_checkpoints_play(run, played)
    assert [one.name for one in first.policies] == list(POLICIES)
    assert all(one.train_iter > 0 for one in first.policies)

    herd.submit(user, "horse", 0, f"stop.max_env_steps={first.env_step + 1_000}", resume=True)
    second = herd.wait_over("horse")
    herd.shut_down()
    assert {one.incarnation for one in herd.incarnations()} == {1}, "no worker had to restart"
    env_step = assert_exact(herd, run, user, all_kept=False, alone=False, policies=POLICIES)
    metas = {meta.chunk: meta for policy in POLICIES for meta in map(read_meta, (run / "data" / policy).iterdir())}
    assert sum(meta.env_steps for meta in metas.values()) == env_step, "who has no row in a chunk has no payload of it"
    assert env_step == second.env_step >= first.env_step + 1_000
    assert_rows_are_there_once(run)
    for policy, before in zip(POLICIES, first.policies, strict=True):
        (said,) = texts(run / "log" / policy / "learner" / "learner_logger.txt", "loaded checkpoint")
        assert said.endswith(f"{policy}/iteration_{before.train_iter}.pth.tar")
        assert f"{policy}: evaluation of iteration_0.pth.tar" in herd.said()


def playing(run: Path) -> list[list[int]]:
    """Of each collector and policy, the older checkpoints that have begun to play, by train_iter, in their order."""
    logs = [log.read_text() for log in sorted((run / "log" / "collector").glob("*_logger.txt"))]
    found = [
        [int(one) for one in re.findall(rf"{policy}/iteration_(\d+) plays", log)] for log in logs for policy in POLICIES
    ]
    return found if len(logs) == 2 else [[]]


def evaluated(run: Path, policy: str) -> list[int]:
    """Its checkpoints that were evaluated, by train_iter."""
    return [one["train_iter"] for one in index(run, policy)["checkpoints"] if one["reward"] is not None]


def assert_older_checkpoints_play(run: Path, before: list[list[int]]) -> None:
    """`before`: those of which the collectors knew when the coordinator died."""
    for known, now in zip(before, playing(run), strict=True):
        assert now[: len(known)] == known
        assert now == sorted(set(now)), "each is told once, and none older after a newer one"
    for log in (run / "log" / "collector").glob("*_logger.txt"):
        playable: list[str] = []
        for text in texts(log):
            if " plays against newer policies" in text:
                playable.append(text.split()[0])
            drawn = re.findall(r"against (\w+/iteration_\d+)", text) if text.startswith("episodes begun") else []
            assert set(drawn) <= set(playable)
        assert any(text.startswith("episodes begun") for text in texts(log))
    (log,) = (run / "log" / "evaluator").glob("*_logger.txt")
    for policy in POLICIES:
        told = [
            text.partition(" plays against older checkpoints, too: ") for text in texts(log, f"{policy}/iteration_")
        ]
        judged = [iterations(newest, policy)[0] for newest, _, _ in told]
        assert judged == sorted(set(judged)), "each is played once"
        assert set(evaluated(run, policy)) <= {0, *judged}, "the first has none before it"
        for newest, (_, _, older) in zip(judged, told, strict=True):
            assert 1 <= len(iterations(older, policy)) <= KEEP
            assert max(iterations(older, policy)) < newest


def iterations(text: str, policy: str) -> list[int]:
    return [int(train_iter) for train_iter in re.findall(rf"{policy}/iteration_(\d+)", text)]


def test_a_launch_whose_coordinator_was_killed_is_resumed_with_all_policies(tmp_path: Path) -> None:
    """It ends, says how to go on, and nothing outlives it. Both policies go on from their newest checkpoints and with
    their replays; at most what collectors had not announced is lost."""
    user, run = make_game_folder(tmp_path / "user", TWO), tmp_path / "run"
    user.hold()
    command = Command(tmp_path / "first", user.root, "launch", user.config, "--run-dir", run)
    try:
        wait_until_held(command, run, user)
        kill(command.coordinator_pid)
        user.release()
        ended = command.ended()
        assert ended.code == 1
        assert "the coordinator process ended with exit code -9" in ended.err
        typed = ended.err.splitlines()[-1].removeprefix("to continue from the last checkpoint, type: remuda ").split()
        assert typed == ["launch", "--resume", "--run-dir", str(run)]
        until(lambda: not command.family(), "nothing outlives it")
    finally:
        command.end()
    counted = {policy: ledger_of(run, policy).env_steps for policy in POLICIES}
    assert counted["little"] == counted["long"] > 0

    command = Command(tmp_path / "second", user.root, *typed)
    try:
        ended = command.ended()
        assert ended.code == 0, ended.err
    finally:
        command.end()
    (env_step,) = {index(run, policy)["checkpoints"][-1]["env_step"] for policy in POLICIES}
    assert f"env_step {env_step}, " in ended.out
    assert {ledger_of(run, policy).env_steps for policy in POLICIES} == {env_step}
    assert env_step >= 5_000
    taken = sum(map(user.steps, pids(run, "collector")))
    assert env_step <= taken <= env_step + 2 * IN_WORK, "of the two that were killed"
    assert_rows_are_there_once(run)
    for policy in POLICIES:
        assert index(run, policy)["checkpoints"][-1]["reward"] is not None
