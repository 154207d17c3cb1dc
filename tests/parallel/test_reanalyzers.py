"""MuZero whose stored rows workers of their own search again: one of them is killed, and nothing is counted twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.buffer.chunk import REANALYSIS_SUFFIX, read_meta
from remuda.buffer.reanalysis_file import read_reanalysis
from remuda.policy.algorithms.muzero.targets import ROOT_VALUE, SEARCH_POLICY
from remuda.tests.logbook.event_reader import curves
from remuda.tests.parallel.conftest import Launcher, wait_until_held
from remuda.tests.parallel.reading import index, joined, table, texts
from remuda.tests.parallel.test_deaths import kill_first
from remuda.tests.parallel.user_folder import HELD, SMALL_MUZERO, UserFolder
from remuda.tests.patience import until
from remuda.training.journal import RunJournal

pytestmark = pytest.mark.processes

MUZERO = f"policy={{{SMALL_MUZERO}, reanalyze_ratio: 1.0, target_update_iters: 10}}"


def test_a_killed_one_is_replaced_and_everything_adds_up(tmp_path: Path, launched: Launcher) -> None:
    user = UserFolder.make(tmp_path / "user", HELD)
    user.hold()  # the run cannot end while its environments wait, so the death falls in its midst
    run = tmp_path / "run"
    command = launched(user.root, "launch", user.config, "--run-dir", run, "--set", MUZERO, "--reanalyzers", 1)
    wait_until_held(command, run, user)

    def works(incarnation: int) -> bool:
        logs = (run / "log" / "reanalyzer").glob(f"*_{incarnation:06d}_logger.txt")
        return command.process.poll() is not None or any(texts(log, "computed ") for log in logs)

    until(lambda: works(1), "a chunk is computed again")
    killed = kill_first(run, "reanalyzer")
    user.release()
    until(lambda: works(2), "the next incarnation computes")
    ended = command.ended()
    assert ended.code == 0, ended.err

    journal = RunJournal(run / "journal.sqlite")
    recovered = journal.read()
    journal.close()
    assert recovered is not None
    book = recovered.snapshot.experiment.reanalysis
    newest = [row.reanalysis for row in book.newest]
    assert book.rows > sum(each.meta.rows for each in newest) / 2 > 0
    assert {each.meta.id.incarnation for each in newest} <= {1, 2}
    assert len({each.number for each in newest}) == len(newest) <= book.accepted
    assert {path.name for path in (run / "data").glob(f"*{REANALYSIS_SUFFIX}")} == {each.meta.file for each in newest}
    for each in newest:
        columns = read_reanalysis(run / "data" / each.meta.file, each.meta)
        assert set(columns) == {SEARCH_POLICY, ROOT_VALUE}
        assert each.meta.target <= book.target
    metas = [read_meta(path) for path in (run / "data").iterdir() if REANALYSIS_SUFFIX not in path.name]
    assert sum(meta.env_steps for meta in metas) == index(run)["checkpoints"][-1]["env_step"] >= 3000

    shown = curves(run / "log" / "buffer" / "buffer_tb_logger")["buffer_sec/reanalyze_time_ms"]
    assert all(time_ms > 0 for _, time_ms in shown)
    tables = texts(run / "log" / "buffer" / "buffer_logger.txt", "In the past")
    assert 0 < len(shown) <= sum(table(text)["reanalyze_time_ms"] != "nan" for text in tables)
    said = f"{book.rows} rows of {book.accepted} chunks were computed again"
    assert len(texts(run / "log" / "commander" / "commander_logger.txt", said)) == 1
    (taken,) = texts(run / "log" / "learner" / "learner_logger.txt", "took over")
    assert 0 < int(taken.split()[2]) <= book.rows
    assert (killed.uuid, 2) in {
        (each.uuid, each.incarnation) for each in joined(run / "log" / "coordinator_logger.txt")
    }
