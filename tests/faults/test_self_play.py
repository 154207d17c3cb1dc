"""A league with shared inference, and with workers that do not see the runs folder: a worker of each role and the
coordinator are killed, and the run is resumed."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from remuda.buffer.chunk import read_meta
from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import IN_WORK, assert_exact
from remuda.tests.faults.sizes import PAUSE_S
from remuda.tests.parallel.game_folder import HELD_GAME, make_game_folder
from remuda.tests.parallel.reading import assert_rows_are_there_once, index, texts
from remuda.tests.patience import until
from remuda.wire.messages import Role

pytestmark = pytest.mark.processes
pytest.importorskip("openskill", reason="a league rates with openskill: pip install 'remuda[league]'")

POLICIES = ("hunter", "main")
ROLES: tuple[Role, ...] = ("collector", "evaluator", "learner", "inference")
POOL, EPISODES = 4, 8
"""Checkpoints that play against newer policies; games of an evaluation."""


def test_a_league_goes_on_from_the_same_moment_against_the_same_opponents(tmp_path: Path, herds: Herds) -> None:
    changes: dict[str, dict[str, object]] = {
        "env": {**HELD_GAME["env"], "kwargs": {"pause_s": PAUSE_S}},
        "evaluator": {"episodes": EPISODES, "interval_env_steps": 500},
        "self_play": {"share": 0.5, "league": {"pool": POOL, "exploiters": {"hunter": {"reset_env_steps": 500}}}},
        "checkpoint": {"keep": 0},
        "inference": {"count": 1},
        "stop": {"max_env_steps": 10_000_000},
    }
    policies: dict[str, object] = {name: {"agents": ["*"]} for name in POLICIES}
    user, herd = make_game_folder(tmp_path / "user", policies, changes), herds()
    coordinator = herd.coordinator()
    herd.workers(collectors=1, evaluators=0, learners=2, inference=1)
    herd.hidden(collectors=1, evaluators=1)  # without the runs folder
    herd.wait_members(6)
    run = herd.submit(user)
    herd.wait_env_step("horse", 500)
    for role in ROLES:
        herd.kill_worker(role, "horse")
    until(lambda: all(any(play) for play in playing(run)), "collectors play against learned checkpoints")
    before, incarnations = league(run), len(herd.incarnations())
    coordinator.kill()
    coordinator.wait()
    time.sleep(1.0)  # chunks pile up, and beats go unanswered
    herd.coordinator()
    herd.wait_members(6)
    until(lambda: league(run)["games"] > before["games"], "more games are played")
    until(lambda: len(league(run)["resets"]) > len(before["resets"]), "the exploiter begins again")
    until(lambda: all(texts(log, "computed ") for log in (run / "log" / "inference").iterdir()), "each has worked")
    assert len(herd.incarnations()) == incarnations, "no worker had to restart"
    first = herd.stop()
    stopped = league(run)
    assert_games_and_lineage(run, before, stopped)
    assert_checkpoints_play(run)
    assert all(one.train_iter > 0 for one in first.policies)

    herd.submit(user, "horse", 0, f"stop.max_env_steps={first.env_step + 1_000}", resume=True)
    second = herd.wait_over("horse")
    herd.shut_down()
    assert_games_and_lineage(run, stopped, league(run))
    lost = {"lost_at_most": IN_WORK}
    env_step = assert_exact(herd, run, user, all_kept=False, alone=False, policies=POLICIES, **lost)
    payloads = [path for policy in POLICIES for path in (run / "data" / policy).iterdir()]
    metas = {meta.chunk: meta for meta in map(read_meta, payloads)}
    assert sum(meta.env_steps for meta in metas.values()) == env_step, "who has no row in a chunk has no payload of it"
    assert env_step == second.env_step >= first.env_step + 1_000
    for policy, before_resume in zip(POLICIES, first.policies, strict=True):
        assert_rows_are_there_once(run / "log" / policy)
        said = texts(run / "log" / policy / "learner" / "learner_logger.txt", "loaded checkpoint")
        assert said[-1].endswith(f"{policy}/iteration_{before_resume.train_iter}.pth.tar")
        assert (run / "model" / policy / "model.pt").exists()
        against = run / "log" / policy / "commander" / "commander_evaluator_logger.txt"
        assert "against_past_mean" in texts(against)[-1]


def league(run: Path) -> dict[str, Any]:
    """What league.json says, once there is any."""
    path = run / "league.json"
    return json.loads(path.read_text()) if path.exists() else {"games": 0, "resets": [], "members": []}


def assert_games_and_lineage(run: Path, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Each game counts once, whoever was killed; nothing of the lineage is lost."""
    evaluated = [one for policy in POLICIES for one in index(run, policy)["checkpoints"] if one["reward"] is not None]
    assert after["games"] == EPISODES * (len(evaluated) - len(POLICIES)) > before["games"], "the first meet nobody"
    assert after["resets"][: len(before["resets"])] == before["resets"]
    assert len(after["members"]) <= POOL


def playing(run: Path) -> list[list[int]]:
    """Checkpoints that have begun to play, by train_iter: of the newest lease of each collector at work, and of each
    policy."""
    newest = {log.name.partition("_")[0]: log for log in sorted((run / "log" / "collector").glob("*_logger.txt"))}
    logs = [log.read_text().rpartition("n_sample: ")[2] for log in newest.values()]
    return [iterations(log, policy, " plays") for log in logs for policy in POLICIES] or [[]]


def iterations(text: str, policy: str, then: str = "") -> list[int]:
    return [int(train_iter) for train_iter in re.findall(rf"{policy}/iteration_(\d+){then}", text)]


def assert_checkpoints_play(run: Path) -> None:
    for play in playing(run):
        assert play == sorted(set(play)), "each is told once, and none older after a newer one"
    for log in (run / "log" / "collector").glob("*_logger.txt"):
        playable: list[str] = []
        for text in texts(log):
            if " plays against newer policies" in text:
                playable.append(text.split()[0])
            drawn = re.findall(r"against (\w+/iteration_\d+)", text) if text.startswith("episodes begun") else []
            assert set(drawn) <= set(playable)
