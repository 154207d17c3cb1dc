"""Every path is the promised one, and no name leads out of the folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.storage.run_folder import RunFolder

UUID = "6f1c9c3e-0d0a-4c5b-8a39-2f6f6f5c1e77"


def test_every_promised_path() -> None:
    run = RunFolder(Path("/r"))
    relative = {
        "config.json": run.config_json,
        "total_config.py": run.total_config,
        "formatted_total_config.py": run.formatted_total_config,
        "git_log.txt": run.git_log,
        "git_diff.txt": run.git_diff,
        "progress.txt": run.progress,
        "progress.csv": run.progress_csv,
        "progress.jsonl": run.progress_jsonl,
        "journal.sqlite": run.journal,
        ".owner": run.owner,
        "vars.pkl": run.vars_pkl,
        "notes.json": run.notes,
        "manifest.json": run.manifest,
        "league.json": run.league,
        "env_spec.json": run.env_spec,
        "model": run.model,
        "ckpt": run.ckpt,
        "ckpt/iteration_0.pth.tar": run.checkpoint(0),
        "ckpt/iteration_10000.pth.tar": run.checkpoint(10_000),
        "ckpt/ckpt_best.pth.tar": run.best,
        "ckpt/ckpt_interrupt.pth.tar": run.interrupt,
        "ckpt/index.json": run.index,
        "data": run.data,
        "steps": run.steps,
        "steps/counted_before.json": run.counted_before,
        "policy": run.policy,
        f"policy/policy_{UUID}_000007": run.policy_file(UUID, 7),
        "log": run.log,
        "log/timers.json": run.timers,
        "log/series.msgpack": run.series,
        "log/buffer/buffer_logger.txt": run.buffer_log,
        "log/buffer/buffer_tb_logger": run.buffer_tb,
        "log/collector/collector_logger.txt": run.serial_collector_log,
        "log/evaluator/evaluator_logger.txt": run.serial_evaluator_log,
        "log/learner/learner_logger.txt": run.learner_log,
        "log/learner/learner_tb_logger": run.learner_tb,
        "log/serial": run.serial_tb,
        "log/coordinator_logger.txt": run.coordinator_log,
        f"log/collector/{UUID}_000002_logger.txt": run.worker_log("collector", UUID, 2),
        f"log/evaluator/{UUID}_123456_logger.txt": run.worker_log("evaluator", UUID, 99_123_456),
        "log/commander/commander_logger.txt": run.commander_log,
        "log/commander/commander_collector_logger.txt": run.commander_collector_log,
        "log/commander/commander_evaluator_logger.txt": run.commander_evaluator_log,
        "log/commander/commander_tb_logger": run.commander_tb,
    }
    assert {name: path.relative_to("/r").as_posix() for name, path in relative.items()} == {n: n for n in relative}
    known = {name for name in vars(RunFolder) if not name.startswith("_") and isinstance(getattr(run, name), Path)}
    assert {getattr(run, name) for name in known} <= set(relative.values()), "none is left out"


@pytest.mark.parametrize("uuid", ["../../etc/x", "", "a/b", "a\nb", "a" * 65, "."])
def test_a_worker_name_cannot_leave_the_folder(uuid: str) -> None:
    with pytest.raises(ValueError, match="file name"):
        RunFolder(Path("/r")).policy_file(uuid, 0)
