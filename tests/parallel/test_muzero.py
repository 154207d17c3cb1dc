"""MuZero with a reanalyzer and shared inference: every worker is killed, the run is resumed, and played."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from remuda.buffer.chunk import REANALYSIS_SUFFIX, read_chunk, read_meta
from remuda.policy.algorithms.muzero.targets import ROOT_VALUE, SEARCH_POLICY
from remuda.tests.faults.herd import Journal
from remuda.tests.parallel.conftest import Launcher, wait_until_held
from remuda.tests.parallel.reading import index, key_values, progress, texts
from remuda.tests.parallel.test_deaths import kill_first
from remuda.tests.parallel.user_folder import HELD, SMALL_MUZERO, UserFolder
from remuda.tests.patience import until

pytestmark = pytest.mark.processes

MUZERO = f"policy={{{SMALL_MUZERO}, reanalyze_ratio: 1.0, target_update_iters: 10}}"
SHARED = ("--set", "inference.count=1")


def test_it_survives_deaths_is_resumed_and_played(tmp_path: Path, launched: Launcher) -> None:
    user, run = UserFolder.make(tmp_path / "user", HELD), tmp_path / "run"
    user.hold()  # the run cannot end while its environments wait, so the deaths fall in its course
    launch = ("launch", user.config, "--run-dir", run, "--set", MUZERO, "--reanalyzers", 1, *SHARED)
    command = launched(user.root, *launch, "--set", "stop.max_env_steps=2000")
    wait_until_held(command, run, user)

    def works(incarnation: int) -> bool:
        logs = (run / "log" / "reanalyzer").glob(f"*_{incarnation:06d}_logger.txt")
        return command.process.poll() is not None or any(texts(log, "computed ") for log in logs)

    until(lambda: works(1), "a chunk is computed again")
    for role in ("reanalyzer", "inference", "collector", "learner"):
        kill_first(run, role)
    user.release()
    until(lambda: works(2), "the next incarnation computes")
    first = command.ended()
    assert first.code == 0, first.err
    before = index(run)["checkpoints"][-1]
    metas = [read_meta(path) for path in (run / "data").iterdir() if REANALYSIS_SUFFIX not in path.name]
    assert len({meta.chunk for meta in metas}) == len(metas)
    assert sum(meta.env_steps for meta in metas) == before["env_step"] >= 2_000
    results_of_reanalysis_count_once(run)
    said = [texts(log, "computed ") for log in sorted((run / "log" / "inference").iterdir())]
    assert len(said) == 2, "the next incarnation has searched for the collectors"
    assert said[1]
    entropies = [float(row["visit_entropy_mean"]) for row in progress(run) if row["visit_entropy_mean"] != "nan"]
    reports = texts(run / "log" / "commander" / "commander_collector_logger.txt", "[COLLECTOR]")
    entropies += [float(key_values(text)["visit_entropy_mean"]) for text in reports]
    assert len(entropies) > 1
    assert all(0.0 <= entropy <= math.log(2) for entropy in entropies), "of two actions"

    again = launched(user.root, *launch, "--set", "stop.max_env_steps=2400", "--resume").ended()
    assert again.code == 0, again.err
    after = index(run)["checkpoints"][-1]
    assert after["env_step"] >= 2_400
    assert after["train_iter"] > before["train_iter"] > 0
    played = launched(user.root, "evaluate", run, "-i", "-1", "-n", 2, "-nr", "--json").ended()
    assert played.code == 0, played.err
    assert json.loads(played.out)["episodes"] == 2


def results_of_reanalysis_count_once(run: Path) -> None:
    book = Journal.of(run).snapshot.experiment.reanalysis
    newest = [row.reanalysis for row in book.newest]
    assert book.rows > sum(each.meta.rows for each in newest) / 2 > 0
    assert {each.meta.id.incarnation for each in newest} <= {1, 2}
    assert len({each.number for each in newest}) == len(newest) <= book.accepted
    assert {path.name for path in (run / "data").glob(f"*{REANALYSIS_SUFFIX}")} == {each.meta.file for each in newest}
    for each in newest:
        assert set(read_chunk(run / "data" / each.meta.file, each.meta)) == {SEARCH_POLICY, ROOT_VALUE}
        assert each.meta.target <= book.target
    said = f"{book.rows} rows of {book.accepted} chunks were computed again"
    assert len(texts(run / "log" / "commander" / "commander_logger.txt", said)) == 1
    taken = texts(run / "log" / "learner" / "learner_logger.txt", "took over")
    assert 0 < int(taken[-1].split()[2]) <= book.rows
