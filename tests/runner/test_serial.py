"""A serial run is reproducible, keeps its pace, ends as asked, and saves what it can."""

from __future__ import annotations

import errno
import json
import math
import re
import stat
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
import pytest
import torch

from remuda.config.load import load_config
from remuda.environments import record
from remuda.environments.errors import EnvironmentBuildError
from remuda.evaluator.player import EpisodePlayer
from remuda.learner.checkpoint import load
from remuda.policy.files.checkpoint_file import CheckpointError
from remuda.policy.files.functions import load_value
from remuda.policy.files.playable import load_checkpoint_policy
from remuda.policy.networks.tensors import DeviceError
from remuda.policy.row_plan import SmallBufferError
from remuda.policy.saved_state import require_finite
from remuda.runner.serial import Start, run
from remuda.storage import env_files
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.existing_folder import OnExists, RunFolderError
from remuda.storage.ownership import FolderOwnedError
from remuda.storage.run_folder import RunFolder
from remuda.tests.logbook.event_reader import curves
from remuda.tests.runner.runs import GAVE_WAY, Flag, Ticking, forget_steps, run_tiny, steps_really_taken, tiny_config
from remuda.wire.messages import ExperimentStatus


def models(folder: RunFolder) -> dict[str, dict[str, torch.Tensor]]:
    return {
        record.file: torch.load(folder.ckpt / record.file, weights_only=True)["model"]
        for record in CheckpointIndex(folder.ckpt).records
    }


def test_the_same_seed_gives_the_same_numbers_and_weights_twice(user: Path, tmp_path: Path) -> None:
    first, second = (
        RunFolder(run_tiny(tiny_config(user), Start(tmp_path / name)).run_dir) for name in ("first", "second")
    )
    assert first.progress.read_bytes() == second.progress.read_bytes()
    one, two = models(first), models(second)
    assert one.keys() == two.keys()
    assert len(one) >= 3
    for file, weights in one.items():
        assert all(torch.equal(weights[name], two[file][name]) for name in weights)


MUZERO = (
    "{type: muzero, hidden: [8], latent: 8, simulations: 3, support_size: 20, projection_units: 16, "
    "projection_bottleneck: 8, unroll_steps: 2, n_step: 2, target_update_iters: 10}"
)


@pytest.mark.parametrize(
    "policy",
    ["{type: ppo, hidden: [8], horizon_steps: 8}", "{type: impala, hidden: [8], horizon_steps: 8}", MUZERO],
)
def test_runs_of_other_algorithms_give_the_same_numbers_twice_too(user: Path, tmp_path: Path, policy: str) -> None:
    config = tiny_config(user, f"policy={policy}", "stop.max_env_steps=300")
    first, second = (RunFolder(run_tiny(config, Start(tmp_path / name)).run_dir) for name in ("first", "second"))
    assert first.progress.read_bytes() == second.progress.read_bytes()
    one, two = models(first), models(second)
    assert len(one) >= 3
    for file, weights in one.items():
        assert all(torch.equal(weights[name], two[file][name]) for name in weights)


@pytest.mark.parametrize("gumbel", [False, True])
def test_how_muzeros_searches_went_is_in_the_collectors_log_the_curves_and_progress(
    user: Path, tmp_path: Path, gumbel: bool
) -> None:
    policy = MUZERO.replace("}", f", gumbel: {str(gumbel).lower()}}}")
    config = tiny_config(user, f"policy={policy}", "stop.max_env_steps=150", "log.sinks=[jsonl]")
    run = RunFolder(run_tiny(config, Start(tmp_path / "run")).run_dir)
    names = ["visit_entropy_mean", *(["completed_value_mean"] if gumbel else [])]
    text, shown = run.serial_collector_log.read_text(), curves(run.serial_tb)
    header, *rows = (line.split("\t") for line in run.progress.read_text().splitlines())
    assert header[-1 - len(names) :] == [*names, "Time"]
    sunk = [json.loads(line) for line in run.progress_jsonl.read_text().splitlines()]
    for name in names:
        assert text.count(f"\n{name}: ") == text.count("collect end:") > 0
        assert (
            len(shown[f"collector_step/{name}"]) == len(shown[f"collector_iter/{name}"]) == text.count("collect end:")
        )
        assert f"collector/{name}" in sunk[-1]
        told = [float(row[header.index(name)]) for row in rows if row[header.index(name)] != "nan"]
        assert len(told) > 1
        assert name != "visit_entropy_mean" or all(0.0 <= value <= math.log(2) for value in told), "of two actions"
    assert ("completed_value_mean" in text) is gumbel


def test_a_disk_that_takes_no_description_of_the_environment_holds_nothing_up(
    user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, *_: object, **__: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(record, "write_text", full)
    monkeypatch.setattr(env_files, "replacing", full)
    result = run_tiny(tiny_config(user, "stop.max_env_steps=60"), Start(tmp_path / "run"))
    assert result.counters.env_step >= 60
    folder = RunFolder(result.run_dir)
    assert not folder.env_spec.exists()
    assert not folder.vars_pkl.exists()
    log = folder.serial_evaluator_log.read_text()
    for name in ("env_spec.json", "vars.pkl"):
        assert log.count(f"[WARNING] {name} was not written") == 1


def test_a_checkpoint_is_evaluated_by_what_its_file_holds(user: Path, tmp_path: Path) -> None:
    config = tiny_config(user)
    folder = RunFolder(run_tiny(config, Start(tmp_path / "run")).run_dir)
    evaluated = [record for record in CheckpointIndex(folder.ckpt).records if record.reward is not None]
    assert len(evaluated) >= 3
    with closing(EpisodePlayer(config, {"": config}, num_envs=2)) as player:
        for record in evaluated:
            policy = load_checkpoint_policy(folder.ckpt / record.file).policy
            episodes = player.evaluate([policy], 0, range(config.evaluator.episodes)).episodes
            assert record.reward == pytest.approx(sum(episode.return_ for episode in episodes) / len(episodes))


def test_another_seed_gives_other_numbers(user: Path, tmp_path: Path) -> None:
    first, second = (
        RunFolder(run_tiny(tiny_config(user, f"seed={seed}"), Start(tmp_path / str(seed))).run_dir) for seed in (1, 2)
    )
    assert first.progress.read_text() != second.progress.read_text()
    one, two = (next(iter(models(folder).values())) for folder in (first, second))
    assert not torch.equal(one["torso.0.weight"], two["torso.0.weight"])


@pytest.mark.parametrize("samples_per_insert", [0.5, 4.0, 20.0])
def test_updates_keep_pace_with_experience(user: Path, tmp_path: Path, samples_per_insert: float) -> None:
    config = tiny_config(user, f"buffer.samples_per_insert={samples_per_insert}", "stop.max_env_steps=500")
    counters = run_tiny(config, Start(tmp_path / "run")).counters
    rows = counters.env_step - config.buffer.min_rows
    band = config.learner.batch_size + samples_per_insert * (12 + 3)
    assert abs(counters.train_iter * 8 - samples_per_insert * rows) <= band + samples_per_insert * 12 + 8


def test_without_a_ratio_there_is_one_update_per_chunk(user: Path, tmp_path: Path) -> None:
    config = tiny_config(user, "buffer.samples_per_insert=null", "buffer.prioritized=false", "stop.max_env_steps=240")
    counters = run_tiny(config, Start(tmp_path / "run")).counters
    chunks_before_updates = -(-40 // 12)
    assert counters.train_iter == pytest.approx(240 / 12 - chunks_before_updates, abs=2)


def test_max_train_iters_is_reached_exactly(user: Path, tmp_path: Path) -> None:
    result = run_tiny(tiny_config(user, "stop.max_train_iters=37"), Start(tmp_path / "run"))
    assert (result.reason, result.counters.train_iter) == ("max_train_iters", 37)
    assert result.explanation == "train_iter 37 has reached max_train_iters 37"


def test_the_stop_value_ends_the_run_by_the_first_evaluation_that_reaches_it(user: Path, tmp_path: Path) -> None:
    result = run_tiny(tiny_config(user, "stop.stop_value=-1000"), Start(tmp_path / "run"))
    assert (result.reason, result.counters.env_step) == ("stop_value", 0)
    assert result.explanation.endswith("of iteration_0.pth.tar has reached stop_value -1000")


def test_max_wall_s_ends_the_run(user: Path, tmp_path: Path) -> None:
    result = run_tiny(tiny_config(user, "stop.max_wall_s=0.15"), Start(tmp_path / "run"))
    assert result.reason == "max_wall_s"
    assert result.counters.env_step > 0


@pytest.mark.parametrize("on_exists", ["resume", "force"])
def test_a_run_that_goes_on_is_neither_resumed_nor_moved_away(on_exists: OnExists, user: Path, tmp_path: Path) -> None:
    """Two runs would write one folder: what they save has the same names."""
    config, start = tiny_config(user), Start(tmp_path / "run")
    refused: list[str] = []

    def meanwhile(status: ExperimentStatus) -> None:
        if status.env_step > 0 and not refused:
            with pytest.raises(FolderOwnedError, match="which is alive") as error:
                run_tiny(config, Start(tmp_path / "run", on_exists))
            refused.append(str(error.value))

    result = run(config, start, stop=Flag(), on_progress=meanwhile, clock=Ticking())
    assert refused
    assert result.reason == "max_env_steps"
    assert not (tmp_path / "run" / ".replaced").exists()
    assert not RunFolder(tmp_path / "run").owner.exists()
    assert run_tiny(config, Start(tmp_path / "run", "force")).reason == "max_env_steps"


def test_an_interrupt_saves_what_was_learned_and_links_it(user: Path, tmp_path: Path) -> None:
    forget_steps()
    result = run_tiny(tiny_config(user), Start(tmp_path / "run"), stop=Flag(looks=100))
    folder = RunFolder(result.run_dir)
    last = CheckpointIndex(folder.ckpt).last
    assert not result.failed
    assert (result.reason, result.explanation) == ("stopped", "interrupted: the test says so")
    assert last is not None
    assert 0 < last.train_iter == result.counters.train_iter
    assert last.env_step == steps_really_taken()
    assert folder.interrupt.read_bytes() == (folder.ckpt / last.file).read_bytes()


def test_an_interrupt_does_not_wait_for_an_evaluation(user: Path, tmp_path: Path) -> None:
    result = run_tiny(tiny_config(user), Start(tmp_path / "run"), stop=Flag(looks=2))
    folder = RunFolder(result.run_dir)
    assert result.reason == "stopped"
    assert "the evaluation of iteration_0.pth.tar is given up" in folder.serial_evaluator_log.read_text()
    assert folder.interrupt.exists()
    assert not folder.best.exists()


def test_a_failing_environment_ends_the_run_and_loses_nothing_counted(user: Path, tmp_path: Path) -> None:
    config = tiny_config(user, "env.kwargs={fails_at: 40}", "env.restarts_per_hour=0")
    result = run_tiny(config, Start(tmp_path / "run"))
    folder = RunFolder(result.run_dir)
    assert result.failed
    assert re.fullmatch(GAVE_WAY, result.reason)
    last = CheckpointIndex(folder.ckpt).last
    assert last is not None
    assert last.env_step == result.counters.env_step > 60
    assert not folder.interrupt.exists()
    log = folder.serial_evaluator_log.read_text()
    assert "Traceback (most recent call last)" in log
    assert "RuntimeError: the floor gave way" in log
    assert folder.progress.read_text().splitlines()[-1].split("\t")[11] == str(last.env_step // 50 * 50)


def test_an_environment_that_calls_sys_exit_fails_the_run_and_says_where(user: Path, tmp_path: Path) -> None:
    config = tiny_config(user, "env.kwargs={fails_at: 40, ends_by: exit}", "env.restarts_per_hour=0")
    result = run_tiny(config, Start(tmp_path / "run"))
    assert result.failed
    # Another test of this process may have imported a walk.py of its own before.
    said = r": UserExitError: SystemExit\(0\) was raised in \S+/walk\.py, line \d+, in step: user code must not end"
    assert re.search(said, result.reason)
    assert CheckpointIndex(RunFolder(result.run_dir).ckpt).last is not None


@pytest.mark.parametrize("policy", ["{type: dqn, hidden: [8]}", "{type: ppo, horizon_steps: 8}", MUZERO])
@pytest.mark.parametrize("log_interval", [10, 100_000])
def test_a_run_that_diverges_fails_and_keeps_what_was_finite(
    user: Path, tmp_path: Path, policy: str, log_interval: int
) -> None:
    config = tiny_config(
        user, f"policy={policy}", "learner.learning_rate=1e30", f"log.interval_train_iters={log_interval}"
    )
    result = run_tiny(config, Start(tmp_path / "run"))
    folder = RunFolder(result.run_dir)
    assert result.failed
    assert result.reason.startswith("DivergedError: training has diverged: ")
    index = CheckpointIndex(folder.ckpt)
    assert index.last is not None
    saved = load(folder.ckpt / index.last.file)
    require_finite({name: tensor.numpy() for name, tensor in cast("Any", saved.algorithm["model"]).items()})
    assert np.isfinite(load_value(folder.root, "model")(np.zeros(2, np.float32)))
    log = folder.serial_evaluator_log.read_text()
    assert "the run is over" in log.splitlines()[-1]


def test_what_cannot_be_run_leaves_no_folder(user: Path, tmp_path: Path) -> None:
    start = Start(tmp_path / "run")
    for override, error in (
        ("env={id: CartPole-v7}", EnvironmentBuildError),
        ("env.make=nothing:make", EnvironmentBuildError),
        ("learner.device=gpu", DeviceError),
        ("learner.device=cuda:77", DeviceError),
        ("collector.device=cuda:77", DeviceError),
        ("collector.chunk_env_steps=350", SmallBufferError),
    ):
        with pytest.raises(error):
            run_tiny(tiny_config(user, override), start)
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        run_tiny(tiny_config(user, "learner.initialize_from=nothing.pth.tar"), Start(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_an_existing_run_is_never_mixed_with_a_new_one(user: Path, tmp_path: Path) -> None:
    config = tiny_config(user, "stop.max_env_steps=60")
    root = tmp_path / "run"
    run_tiny(config, Start(root))
    before = (root / "progress.txt").read_bytes()
    with pytest.raises(RunFolderError, match="already holds a run"):
        run_tiny(config, Start(root))
    renamed = run_tiny(config, Start(root, "rename")).run_dir
    assert renamed != root
    assert (root / "progress.txt").read_bytes() == before
    assert run_tiny(config, Start(root, "force")).run_dir == root
    assert [path.read_bytes() for path in root.glob(".replaced/*/progress.txt")] == [before]


def test_a_new_run_from_old_weights_starts_at_0_with_the_best_of_them(user: Path, tmp_path: Path) -> None:
    old = RunFolder(run_tiny(tiny_config(user), Start(tmp_path / "old")).run_dir)
    config = tiny_config(user, "stop.max_train_iters=1", "seed=9", f"learner.initialize_from={old.best}")
    new = RunFolder(run_tiny(config, Start(tmp_path / "new")).run_dir)
    assert load(new.checkpoint(0)).progress.counters.env_step == 0
    ours = torch.load(new.checkpoint(0), weights_only=True)
    best = torch.load(old.best, weights_only=True)
    for name, tensor in best["model"].items():
        assert torch.equal(ours["model"][name], tensor)
        assert torch.equal(ours["target_model"][name], tensor)
    assert ours["optimizer"]["step"] == 0
    assert "loaded weights " in new.learner_log.read_text()


def test_a_run_that_began_with_old_weights_is_resumed_with_its_own(user: Path, tmp_path: Path) -> None:
    old = RunFolder(run_tiny(tiny_config(user), Start(tmp_path / "old")).run_dir)
    config = tiny_config(user, f"learner.initialize_from={old.best}")
    first = run_tiny(config, Start(tmp_path / "new"), stop=Flag(looks=100))
    again = run_tiny(config, Start(tmp_path / "new", "resume"), stop=Flag(looks=0))
    assert again.counters.train_iter == first.counters.train_iter > 0
    said = RunFolder(again.run_dir).learner_log.read_text()
    assert said.count("loaded weights ") == 1


@pytest.mark.parametrize("policy", ["dqn", "ppo"])
def test_inference_learns_nothing_and_explores_as_little_as_it_ever_would(
    policy: str, user: Path, tmp_path: Path
) -> None:
    settings = ["policy={type: ppo, hidden: [8]}", "buffer.samples_per_insert=null"] if policy == "ppo" else []
    trained = RunFolder(run_tiny(tiny_config(user, *settings), Start(tmp_path / "old")).run_dir)
    config = tiny_config(user, *settings, f"learner.initialize_from={trained.best}", "learner.inference=true")
    result = run_tiny(config, Start(tmp_path / "new"))
    assert result.reason == "max_env_steps"
    assert result.counters.env_step >= 400
    assert result.counters.train_iter == result.counters.policy_version == 0
    assert result.counters.episode > 0
    assert result.best is not None
    saved = load(RunFolder(result.run_dir).checkpoint(0))
    if policy == "dqn":
        assert saved.progress.exploration == {"epsilon": config.policy.epsilon_end}  # type: ignore[union-attr]


def test_a_run_may_start_over_from_its_own_best_weights(user: Path, tmp_path: Path) -> None:
    old = RunFolder(run_tiny(tiny_config(user), Start(tmp_path / "run")).run_dir)
    best = torch.load(old.best, weights_only=True)["model"]
    weights = f"learner.initialize_from={old.best}"
    run_tiny(tiny_config(user, "stop.max_env_steps=30", weights), Start(old.root, "force"))
    assert torch.equal(models(old)["iteration_0.pth.tar"]["torso.0.weight"], best["torso.0.weight"])


def test_the_policy_that_acts_is_never_older_than_the_publish_interval(user: Path, tmp_path: Path) -> None:
    config = tiny_config(user, "learner.publish_interval_iters=3")
    counters = run_tiny(config, Start(tmp_path / "run")).counters
    assert counters.policy_version == counters.train_iter // 3


def test_a_secret_stands_in_the_files_that_a_resume_needs_and_in_no_other(
    user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # no repository, whose changes might name it
    config = tiny_config(user, "env.kwargs={token: hunter2}", "stop.max_env_steps=100")
    result = run_tiny(config, Start(tmp_path / "runs" / "a"))
    found = [path for path in result.run_dir.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    assert {path.name for path in found} <= {"config.json", "journal.sqlite", "journal.sqlite-wal"}
    for path in (*found, RunFolder(result.run_dir).journal):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for folder in (result.run_dir, result.run_dir.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_resumed_run_says_which_settings_are_others_now(user: Path, tmp_path: Path) -> None:
    run_tiny(tiny_config(user, "stop.max_env_steps=60"), Start(tmp_path / "run"))
    other = tiny_config(user, "stop.max_env_steps=90", "seed=8", "learner.learning_rate=0.5")
    folder = RunFolder(run_tiny(other, Start(tmp_path / "run", "resume")).run_dir)
    log = folder.serial_evaluator_log.read_text()
    assert "continues with changed settings: seed is 8 and was 3; " in log
    assert "stop.max_env_steps is 90 and was 60 (the former ones are in config_1.json)" in log
    assert load_config(folder.root / "config_1.json").config.seed == 3
