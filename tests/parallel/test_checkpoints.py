"""The checkpoints of a parallel run and the index that lists them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
import torch

from remuda.tests.parallel.conftest import Finished
from remuda.tests.parallel.reading import index, names, sha256, table, texts

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("a finished parallel run")]

KEYS = names("""
format model target_model optimizer schedules last_iter last_step counters policy exploration best_reward
normalisation precision rng observation action config versions
""")


def test_every_file_is_listed_with_its_sum_and_nothing_else_is(finished: Finished) -> None:
    content = index(finished.run)
    listed = {record["file"] for record in content["checkpoints"]}
    assert {path.name for path in (finished.run / "ckpt").iterdir()} == listed | {"index.json", "ckpt_best.pth.tar"}
    for record in content["checkpoints"]:
        assert {"train_iter", "env_step", "wall_s", "reward", "file", "sha256", "created"} <= set(record)
        assert record["file"] == f"iteration_{record['train_iter']}.pth.tar"
        assert record["sha256"] == sha256(finished.run / "ckpt" / record["file"])
        assert datetime.fromisoformat(record["created"]).tzinfo is not None
    counters = [(record["train_iter"], record["env_step"], record["wall_s"]) for record in content["checkpoints"]]
    assert counters == sorted(counters)


def test_the_first_and_the_last_are_there_and_old_ones_are_not(finished: Finished) -> None:
    content = index(finished.run)
    iterations = [record["train_iter"] for record in content["checkpoints"]]
    assert iterations[0] == 0
    assert content["last"] == iterations[-1]
    assert len(iterations) <= 1 + 3 + 1, "the initial, keep=3, and the best"
    saved = texts(finished.run / "log" / "learner" / "learner_logger.txt", "saved checkpoint")
    assert len(saved) > len(iterations), "the run was to save more than it keeps"


def test_the_best_is_the_very_file_with_the_highest_return(finished: Finished) -> None:
    log = finished.run / "log" / "commander" / "commander_logger.txt"
    returns = {
        int(values["train_iter"]): float(values["reward_mean"])
        for values in (table(text) for text in texts(log, "=== Evaluation"))
    }
    content = index(finished.run)
    assert content["best"] == max(returns, key=lambda train_iter: returns[train_iter])
    (best,) = (record for record in content["checkpoints"] if record["train_iter"] == content["best"])
    assert sha256(finished.run / "ckpt" / "ckpt_best.pth.tar") == best["sha256"]
    for record in content["checkpoints"]:
        if record["train_iter"] in returns:
            assert record["reward"] == pytest.approx(returns[record["train_iter"]], abs=1e-6)
        else:
            assert record["reward"] is None


def test_they_open_without_executing_anything_and_hold_what_a_resume_needs(finished: Finished) -> None:
    for record in index(finished.run)["checkpoints"]:
        content = torch.load(finished.run / "ckpt" / record["file"], weights_only=True)
        assert sorted(content) == sorted(KEYS)
        assert (content["last_iter"], content["last_step"]) == (record["train_iter"], record["env_step"])
        assert content["counters"]["wall_s"] == record["wall_s"]
        assert content["config"]["name"] == "horse"
        assert {"remuda", "torch"} <= set(content["versions"])
        assert all(torch.isfinite(tensor).all() for tensor in content["model"].values())


def test_training_has_changed_the_weights(finished: Finished) -> None:
    folder: Path = finished.run / "ckpt"
    first = torch.load(folder / "iteration_0.pth.tar", weights_only=True)["model"]
    last = torch.load(folder / f"iteration_{index(finished.run)['last']}.pth.tar", weights_only=True)["model"]
    assert first.keys() == last.keys()
    assert not all(torch.equal(first[name], last[name]) for name in first)
