"""Two policies learn a game in parallel mode, though a collector and a learner are killed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from remuda.buffer.chunk import read_meta
from remuda.tests.parallel.game_folder import LEARNED, TWO, Survived, launched_with_deaths
from remuda.tests.parallel.reading import index, pids, texts

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("a game of two policies with deaths")]
POLICIES = ("little", "long")


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> Survived:
    return launched_with_deaths(tmp_path_factory.mktemp("policies"), TWO)


def test_both_are_learned(survived: Survived) -> None:
    run, _, ended = survived
    assert "horse finished: max_env_steps; best returns: little " in ended.out
    for policy in POLICIES:
        last = index(run, policy)["checkpoints"][-1]
        assert last["reward"] is not None
        assert last["reward"] > LEARNED


def test_a_step_counts_once_for_both_and_none_is_lost_that_was_announced(survived: Survived) -> None:
    run, user, ended = survived
    (env_step,) = {index(run, policy)["checkpoints"][-1]["env_step"] for policy in POLICIES}
    assert f"env_step {env_step}, " in ended.out
    found = {policy: [read_meta(path) for path in (run / "data" / policy).iterdir()] for policy in POLICIES}
    for metas in found.values():
        assert max(Counter(meta.chunk for meta in metas).values()) == 1
        assert sum(meta.env_steps for meta in metas) == env_step
    assert {meta.chunk for meta in found["little"]} == {meta.chunk for meta in found["long"]}
    taken = sum(map(user.steps, pids(run, "collector")))
    assert env_step <= taken <= env_step + 32 + 4, "at most the chunk that the killed collector was filling"
    rows = {policy: sum(meta.rows for meta in metas) for policy, metas in found.items()}
    assert rows["long"] == pytest.approx(env_step, rel=0.02)
    assert rows["little"] == pytest.approx(0.6 * env_step, rel=0.05), "6 steps of 10"


def test_the_command_names_a_log_that_is_there(survived: Survived) -> None:
    run, _, ended = survived
    (log,) = [Path(line.split()[1]) for line in ended.out.splitlines() if line.startswith("  less ")]
    assert log == run / "log" / "little" / "commander" / "commander_logger.txt"
    assert texts(log, "the run is over after")


def test_each_policy_has_logs_and_curves_of_its_own(survived: Survived) -> None:
    run, _, _ = survived
    for policy in POLICIES:
        log = run / "log" / policy
        assert texts(log / "learner" / "learner_logger.txt", "saved checkpoint")
        assert texts(log / "commander" / "commander_logger.txt", "the run is over after")
        assert (log / "progress.txt").read_text().count("\n") > 5
        assert list((log / "learner" / "learner_tb_logger").iterdir())
        assert (run / "model" / policy / "model.pt").exists()
    assert len(list((run / "log" / "collector").iterdir())) == 3
    assert not (run / "progress.txt").exists()
