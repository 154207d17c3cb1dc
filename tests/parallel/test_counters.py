"""One set of counters, wherever one looks, and equal to what the environment really did."""

from __future__ import annotations

import re

import pytest

from remuda.buffer.chunk import parse_name, read_meta
from remuda.config.load import load_config
from remuda.policy.files.policy_file import read_ref
from remuda.policy.row_plan import row_plan
from remuda.tests.logbook.event_reader import curves
from remuda.tests.parallel.conftest import Finished
from remuda.tests.parallel.reading import index, key_values, pids, policy_file, progress, texts
from remuda.training.replay.limiters import replay_limiter

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("a finished parallel run")]


def env_step(finished: Finished) -> int:
    """As index.json has it."""
    return index(finished.run)["checkpoints"][-1]["env_step"]


def test_env_step_is_what_the_collectors_environments_really_did(finished: Finished) -> None:
    assert env_step(finished) == sum(map(finished.user.steps, pids(finished.run, "collector")))
    assert sum(map(finished.user.steps, pids(finished.run, "learner"))) == 0


def test_evaluations_are_counted_apart(finished: Finished) -> None:
    (evaluator,) = pids(finished.run, "evaluator")
    reports = texts(finished.run / "log" / "commander" / "commander_evaluator_logger.txt")
    assert finished.user.steps(evaluator) == sum(int(key_values(text)["step_count"]) for text in reports)


def test_env_step_is_the_sum_over_payload_files(finished: Finished) -> None:
    metas = [read_meta(path) for path in (finished.run / "data").iterdir()]
    assert sum(meta.env_steps for meta in metas) == env_step(finished)


def test_payload_files_are_numbered_without_holes(finished: Finished) -> None:
    sequences: dict[str, list[int]] = {}
    for path in sorted((finished.run / "data").iterdir()):
        chunk = parse_name(path.name)
        assert chunk.incarnation == 1
        sequences.setdefault(chunk.worker, []).append(chunk.sequence)
    assert len(sequences) == 2
    assert all(found == list(range(len(found))) for found in sequences.values())


def test_every_view_agrees(finished: Finished) -> None:
    last = index(finished.run)["checkpoints"][-1]
    said = "\n".join(texts(finished.run / "log" / "commander" / "commander_logger.txt"))
    assert f"env_step {env_step(finished)}, train_iter {last['train_iter']}, " in finished.ended.out  # the status
    decided = re.search(r"the run ends: env_step (\d+) has reached max_env_steps 3000", said)
    assert decided is not None
    assert 3000 <= int(decided[1]) <= env_step(finished), "chunks on their way when the end was decided count as well"
    assert f"evaluation of {last['file']} at env_step {env_step(finished)}: " in said
    assert int(progress(finished.run)[-1]["TotalEnvInteracts"]) == 3000, "the boundary"
    assert int(progress(finished.run)[-1]["TestEnvInteracts"]) == env_step(finished)
    shown = curves(finished.run / "log" / "commander" / "commander_tb_logger")
    assert shown["evaluator_step/reward_mean"][-1][0] == env_step(finished)
    assert shown["evaluator_iter/reward_mean"][-1][0] == last["train_iter"]


def test_the_collectors_totals_add_up(finished: Finished) -> None:
    totals = [
        int(key_values(texts(log)[-1])["total_envstep_count"])
        for log in (finished.run / "log" / "collector").glob("*_logger.txt")
    ]
    assert sum(totals) == env_step(finished)


def test_the_published_policy_is_the_last_one(finished: Finished) -> None:
    ref = read_ref(policy_file(finished.run))
    assert ref is not None
    assert (ref.epoch, ref.train_iter) == (1, index(finished.run)["last"])
    published = texts(finished.run / "log" / "learner" / "learner_logger.txt", "published policy version")
    assert re.match(rf"published policy version {ref.version} of iteration {ref.train_iter} in ", published[-1])
    assert len(set(published)) == len(published), "each is logged once"


def test_updates_keep_to_samples_per_insert(finished: Finished) -> None:
    rows = sum(read_meta(path).rows for path in (finished.run / "data").iterdir())
    config = load_config(finished.user.config).config
    limiter = replay_limiter(config, row_plan(config), serial=False)
    drawn = index(finished.run)["last"] * config.learner.batch_size
    assert drawn <= limiter.sampleable_rows(rows, 0)
    asked = 4 * (rows - 200) // 32
    owed = texts(finished.run / "log" / "commander" / "commander_logger.txt", f"{asked - drawn // 32} updates are owed")
    assert len(owed) == (drawn // 32 < asked)


def test_nothing_of_the_run_is_left(finished: Finished) -> None:
    assert [process.pid for process in finished.command.family()] == []
    assert finished.command.leftovers() == []
