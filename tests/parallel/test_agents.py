"""A game of two agents that share a policy is learned in parallel mode, though a collector and a learner are killed."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from remuda.buffer.chunk import read_meta
from remuda.config.load import load_config
from remuda.tests.parallel.game_folder import LEARNED, Survived, launched_with_deaths
from remuda.tests.parallel.reading import index, pids, progress, texts

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("a game with deaths")]


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> Survived:
    return launched_with_deaths(tmp_path_factory.mktemp("game"))


def test_it_is_learned(survived: Survived) -> None:
    run, _, ended = survived
    assert "horse finished: max_env_steps" in ended.out
    last = index(run)["checkpoints"][-1]
    assert last["reward"] is not None
    assert last["reward"] > LEARNED


def test_a_step_in_which_two_act_counts_once_and_none_is_lost_that_was_announced(survived: Survived) -> None:
    run, user, ended = survived
    env_step = index(run)["checkpoints"][-1]["env_step"]
    metas = [read_meta(path) for path in (run / "data").iterdir()]
    assert max(Counter(meta.chunk for meta in metas).values()) == 1
    assert sum(meta.env_steps for meta in metas) == env_step
    assert f"env_step {env_step}, " in ended.out
    assert int(progress(run)[-1]["TestEnvInteracts"]) == env_step
    taken = sum(map(user.steps, pids(run, "collector")))
    assert env_step <= taken <= env_step + 32 + 4, "at most the chunk that the killed collector was filling"
    rows = sum(meta.rows for meta in metas)
    assert rows == pytest.approx(1.6 * env_step, rel=0.05), "16 steps of agents in 10 of the environment"


def test_the_run_folder_says_which_agents_there_are_and_how_each_did(survived: Survived) -> None:
    run, user, _ = survived
    described = json.loads((run / "env_spec.json").read_text())["agents"]
    assert {agent: each["policy"] for agent, each in described.items()} == {"small": "", "tall": ""}
    assert load_config(run / "config.json").config.env.agents == ("small", "tall")
    assert load_config(user.config).config.env.agents == ()
    evaluated = texts(run / "log" / "commander" / "commander_evaluator_logger.txt")
    assert "return_small_mean" in evaluated[-1]
    assert "return_tall_mean" in evaluated[-1]
