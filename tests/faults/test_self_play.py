"""Two policies in self-play, with workers that do not see the runs folder: their collector, learner and coordinator are
killed, and the run is resumed."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from remuda.buffer.chunk import read_meta
from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import IN_WORK, assert_exact
from remuda.tests.faults.sizes import PAUSE_S
from remuda.tests.parallel.game_folder import HELD_GAME, TWO, make_game_folder
from remuda.tests.parallel.reading import assert_rows_are_there_once, index, texts
from remuda.tests.patience import until

pytestmark = pytest.mark.processes

POLICIES = tuple(TWO)
SHARE, KEEP = 0.5, 3
"""Of the episodes against older checkpoints; how many of these play."""


def test_all_policies_go_on_from_the_same_moment_against_the_same_opponents(tmp_path: Path, herds: Herds) -> None:
    changes: dict[str, dict[str, object]] = {
        "env": {**HELD_GAME["env"], "kwargs": {"pause_s": PAUSE_S}},
        "evaluator": {"episodes": 4, "interval_env_steps": 500},
        "self_play": {"share": SHARE, "keep": KEEP},
        "stop": {"max_env_steps": 10_000_000},
    }
    user, herd = make_game_folder(tmp_path / "user", TWO, changes), herds()
    coordinator = herd.coordinator()
    herd.workers(collectors=1, evaluators=0, learners=2)
    herd.hidden(collectors=1, evaluators=1)  # without the runs folder
    herd.wait_members(5)
    run = herd.submit(user)
    herd.wait_env_step("horse", 500)
    herd.kill_worker("collector", "horse")
    herd.kill_worker("learner", "horse")
    until(lambda: all(len(play) > 1 for play in playing(run)), "collectors play against learned checkpoints")
    played, judged = (
        playing(run, all_leases=True),
        {policy: max(evaluated(run, policy), default=-1) for policy in POLICIES},
    )
    incarnations = len(herd.incarnations())
    coordinator.kill()
    coordinator.wait()
    time.sleep(1.0)  # chunks pile up, and beats go unanswered
    herd.coordinator()
    herd.wait_members(5)
    until(
        lambda: all(len(a) < len(b) for a, b in zip(played, playing(run, all_leases=True), strict=True)),
        "they learn of newer ones",
    )
    until(lambda: all(evaluated(run, policy)[-1] > judged[policy] for policy in POLICIES), "newer ones are evaluated")
    assert len(herd.incarnations()) == incarnations, "no worker had to restart"
    first = herd.stop()
    assert_older_checkpoints_play(run)
    assert all(one.train_iter > 0 for one in first.policies)

    herd.submit(user, "horse", 0, f"stop.max_env_steps={first.env_step + 1_000}", resume=True)
    second = herd.wait_over("horse")
    herd.shut_down()
    lost = {"lost_at_most": IN_WORK}
    env_step = assert_exact(herd, run, user, all_kept=False, alone=False, policies=POLICIES, **lost)
    metas = {meta.chunk: meta for policy in POLICIES for meta in map(read_meta, (run / "data" / policy).iterdir())}
    assert sum(meta.env_steps for meta in metas.values()) == env_step, "who has no row in a chunk has no payload of it"
    assert env_step == second.env_step >= first.env_step + 1_000
    for policy, before in zip(POLICIES, first.policies, strict=True):
        assert_rows_are_there_once(run / "log" / policy)
        said = texts(run / "log" / policy / "learner" / "learner_logger.txt", "loaded checkpoint")
        assert said[-1].endswith(f"{policy}/iteration_{before.train_iter}.pth.tar")
        assert f"{policy}: evaluation of iteration_0.pth.tar" in herd.said()
        assert (run / "model" / policy / "model.pt").exists()
        against = run / "log" / policy / "commander" / "commander_evaluator_logger.txt"
        assert "against_past_mean" in texts(against)[-1]


def playing(run: Path, *, all_leases: bool = False) -> list[list[int]]:
    """Older checkpoints that have begun to play, by train_iter: of the newest lease of each collector at work, and of
    each policy."""
    newest = {log.name.partition("_")[0]: log for log in sorted((run / "log" / "collector").glob("*_logger.txt"))}
    texts = [log.read_text() for log in newest.values()]
    logs = texts if all_leases else [text.rpartition("n_sample: ")[2] for text in texts]
    return [iterations(log, policy, " plays") for log in logs for policy in POLICIES] or [[]]


def iterations(text: str, policy: str, then: str = "") -> list[int]:
    return [int(train_iter) for train_iter in re.findall(rf"{policy}/iteration_(\d+){then}", text)]


def evaluated(run: Path, policy: str) -> list[int]:
    """Its checkpoints that were evaluated, by train_iter."""
    return [one["train_iter"] for one in index(run, policy)["checkpoints"] if one["reward"] is not None] or [-1]


def assert_older_checkpoints_play(run: Path) -> None:
    for play in playing(run):
        assert play == sorted(set(play)), "each is told once, and none older after a newer one"
    for log in (run / "log" / "collector").glob("*_logger.txt"):
        playable: list[str] = []
        for text in texts(log):
            if " plays against newer policies" in text:
                playable.append(text.split()[0])
            drawn = re.findall(r"against (\w+/iteration_\d+)", text) if text.startswith("episodes begun") else []
            assert set(drawn) <= set(playable)
    (log,) = (run / "log" / "evaluator").glob("*_logger.txt")
    for policy in POLICIES:
        told = [
            text.partition(" plays against older checkpoints, too: ") for text in texts(log, f"{policy}/iteration_")
        ]
        judged = [iterations(newest, policy)[0] for newest, _, _ in told]
        assert judged == sorted(set(judged)), "each is played once"
        for newest, (_, _, older) in zip(judged, told, strict=True):
            assert 1 <= len(iterations(older, policy)) <= KEEP
            assert max(iterations(older, policy)) < newest
