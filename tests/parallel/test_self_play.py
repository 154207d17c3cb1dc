"""Two policies learn a game in parallel mode against older checkpoints, though a collector and a learner are killed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from remuda.buffer.chunk import read_meta
from remuda.tests.parallel.game_folder import LEARNED, TWO, Survived, launched_with_deaths
from remuda.tests.parallel.reading import index, pids, texts

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("self-play with deaths")]
POLICIES = tuple(TWO)
SHARE, KEEP = 0.5, 3


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> Survived:
    self_play = {"self_play": {"share": SHARE, "keep": KEEP}}
    return launched_with_deaths(tmp_path_factory.mktemp("self_play"), TWO, self_play)


def logs(run: Path, role: str) -> list[Path]:
    return sorted((run / "log" / role).glob("*_logger.txt"))


def iterations(text: str, policy: str) -> list[int]:
    return [int(train_iter) for train_iter in re.findall(rf"{policy}/iteration_(\d+)", text)]


def test_both_are_learned_and_the_newest_counts_as_the_best(survived: Survived) -> None:
    run, _, ended = survived
    assert "horse finished: max_env_steps; best returns: little " in ended.out
    for policy in POLICIES:
        known = index(run, policy)
        evaluated = [one for one in known["checkpoints"] if one["reward"] is not None]
        assert known["best"] == evaluated[-1]["train_iter"]
        assert (evaluated[-1]["reward"] or 0.0) > LEARNED


def test_steps_count_once_and_only_those_of_agents_that_learn_are_rows(survived: Survived) -> None:
    """In a share of episodes one of the two learns, either as often as the other; in all others both."""
    run, user, _ = survived
    (env_step,) = {index(run, policy)["checkpoints"][-1]["env_step"] for policy in POLICIES}
    found = {policy: [read_meta(path) for path in (run / "data" / policy).iterdir()] for policy in POLICIES}
    steps = {meta.chunk: meta.env_steps for metas in found.values() for meta in metas}
    assert sum(steps.values()) == env_step
    taken = sum(map(user.steps, pids(run, "collector")))
    assert env_step <= taken <= env_step + 32 + 4, "at most the chunk that the killed collector was filling"
    learns = 1 - SHARE / 2
    rows = {policy: sum(meta.rows for meta in metas) for policy, metas in found.items()}
    assert rows["long"] == pytest.approx(learns * env_step, rel=0.15)
    assert rows["little"] == pytest.approx(learns * 0.6 * env_step, rel=0.15), "6 steps of 10"


def test_collectors_log_which_checkpoints_play(survived: Survived) -> None:
    """Also the one that was started again. The one that was killed may have waited in its environments before both
    policies had a checkpoint."""
    run, _, _ = survived
    assert len(logs(run, "collector")) == 3
    (again,) = [log for log in logs(run, "collector") if log.name.endswith("_000002_logger.txt")]
    killed = again.with_name(again.name.replace("_000002_", "_000001_"))
    for log in logs(run, "collector"):
        for policy in POLICIES:
            known = {text.split()[0] for text in texts(log, f"{policy}/iteration_") if "from now on" in text}
            drawn = {
                name for text in texts(log, "episodes begun: ") for name in re.findall(rf"{policy}/iteration_\d+", text)
            }
            assert known or log == killed
            assert drawn <= known
    said = "".join(log.read_text() for log in logs(run, "collector"))
    assert all(f"against {policy}/iteration_" in said for policy in POLICIES)


def test_evaluations_tell_the_return_against_older_checkpoints_and_which_they_were(survived: Survived) -> None:
    run, _, _ = survived
    for policy in POLICIES:
        log = run / "log" / policy / "commander"
        assert "against_past_mean" in texts(log / "commander_evaluator_logger.txt")[-1]
        assert any("against_past_mean" in text for text in texts(log / "commander_collector_logger.txt"))
    for policy in POLICIES:
        told = [text for log in logs(run, "evaluator") for text in texts(log, f"{policy}/iteration_")]
        named: list[bool] = []
        for text in told:
            judged, _, older = text.partition(" plays against older checkpoints, too: ")
            assert iterations(older, "[a-z]+"), "or nothing would be said"
            before = iterations(older, policy)
            assert len(before) <= KEEP
            assert [*before, *iterations(judged, policy)] == sorted({*before, *iterations(judged, policy)})
            named.append(bool(before))
        assert any(named)
        assert named == sorted(named), "those of a policy play as soon as it has some"
