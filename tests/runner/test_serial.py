"""A serial run is reproducible, keeps its pace, ends as asked, and saves what it can."""

from __future__ import annotations

import re
import stat
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from remuda.config.current import values_at
from remuda.config.load import load_config
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
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.existing_folder import OnExists
from remuda.storage.lock import FolderOwnedError
from remuda.storage.run_folder import RunFolder
from remuda.tests.logbook.event_reader import curves
from remuda.tests.runner.runs import GAVE_WAY, Flag, Ticking, run_tiny, tiny_config
from remuda.wire.messages import ExperimentStatus


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


def test_without_a_ratio_there_is_one_update_per_chunk(user: Path, tmp_path: Path) -> None:
    config = tiny_config(user, "buffer.samples_per_insert=null", "buffer.prioritized=false", "stop.max_env_steps=240")
    counters = run_tiny(config, Start(tmp_path / "run")).counters
    chunks_before_updates = -(-40 // 12)
    assert counters.train_iter == pytest.approx(240 / 12 - chunks_before_updates, abs=2)


def test_a_run_that_goes_on_is_neither_resumed_nor_moved_away(user: Path, tmp_path: Path) -> None:
    """Two runs would write one folder: what they save has the same names."""
    config, start = tiny_config(user), Start(tmp_path / "run")
    refused: list[OnExists] = []

    def meanwhile(status: ExperimentStatus) -> None:
        if status.env_step > 0 and not refused:
            for on_exists in ("resume", "force"):
                with pytest.raises(FolderOwnedError, match="which is alive"):
                    run_tiny(config, Start(tmp_path / "run", on_exists))
                refused.append(on_exists)

    result = run(config, start, stop=Flag(), on_progress=meanwhile, clock=Ticking())
    assert refused == ["resume", "force"]
    assert result.reason == "max_env_steps"
    assert not (tmp_path / "run" / ".replaced").exists()
    assert not RunFolder(tmp_path / "run").owner.exists()
    assert run_tiny(config, Start(tmp_path / "run", "force")).reason == "max_env_steps"


def test_an_interrupt_does_not_wait_for_an_evaluation(user: Path, tmp_path: Path) -> None:
    result = run_tiny(tiny_config(user), Start(tmp_path / "run"), stop=Flag(looks=2))
    folder = RunFolder(result.run_dir)
    assert result.reason == "stopped"
    assert "the evaluation of iteration_0.pth.tar is given up" in folder.serial_evaluator_log.read_text()
    assert folder.interrupt.exists()
    assert not folder.best.exists()


@pytest.mark.parametrize(
    ("ends_by", "reason", "said"),
    [
        ("error", GAVE_WAY, "RuntimeError: the floor gave way"),
        # Another test of this process may have imported a walk.py of its own before.
        (
            "exit",
            r".*: UserExitError: SystemExit\(0\) was raised in \S+/walk\.py, line \d+, in step: user code must .*",
            "SystemExit: 0",
        ),
    ],
)
def test_a_failed_environment_loses_nothing(user: Path, tmp_path: Path, ends_by: str, reason: str, said: str) -> None:
    config = tiny_config(user, f"env.kwargs={{fails_at: 40, ends_by: {ends_by}}}", "env.restarts_per_hour=0")
    result = run_tiny(config, Start(tmp_path / "run"))
    folder = RunFolder(result.run_dir)
    assert result.failed
    assert re.fullmatch(reason, result.reason)
    last = CheckpointIndex(folder.ckpt).last
    assert last is not None
    assert last.env_step == result.counters.env_step > 60
    assert not folder.interrupt.exists()
    log = folder.serial_evaluator_log.read_text()
    assert "Traceback (most recent call last)" in log
    assert said in log
    assert folder.progress.read_text().splitlines()[-1].split("\t")[11] == str(last.env_step // 50 * 50)


MUZERO = (
    "{type: muzero, hidden: [8], latent: 8, simulations: 3, support_size: 20, projection_units: 16, "
    "projection_bottleneck: 8, unroll_steps: 2, n_step: 2, target_update_iters: 10}"
)


@pytest.mark.parametrize(
    ("policy", "log_interval"),
    [("{type: dqn, hidden: [8]}", 10), ("{type: ppo, horizon_steps: 8}", 100_000), (MUZERO, 100_000)],
)
def test_a_run_that_diverges_keeps_finite_weights(user: Path, tmp_path: Path, policy: str, log_interval: int) -> None:
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


def test_a_new_run_begins_with_old_weights_and_is_resumed_with_its_own(user: Path, tmp_path: Path) -> None:
    """Also where the new run takes the place of the old one."""
    old = RunFolder(run_tiny(tiny_config(user), Start(tmp_path / "run")).run_dir)
    best = torch.load(old.best, weights_only=True)
    config = tiny_config(user, "seed=9", f"learner.initialize_from={old.best}")
    first = run_tiny(config, Start(tmp_path / "run", "force"), stop=Flag(looks=100))
    new = RunFolder(first.run_dir)
    assert load(new.checkpoint(0)).progress.counters.env_step == 0
    ours = torch.load(new.checkpoint(0), weights_only=True)
    for name, tensor in best["model"].items():
        assert torch.equal(ours["model"][name], tensor)
        assert torch.equal(ours["target_model"][name], tensor)
    assert ours["optimizer"]["step"] == 0
    again = run_tiny(tiny_config(user, "seed=9"), Start(new.root, "resume"), stop=Flag(looks=0))
    assert again.counters.train_iter == first.counters.train_iter > 0
    assert new.learner_log.read_text().count("loaded weights ") == 1


def test_inference_learns_nothing_and_explores_as_little_as_it_ever_would(user: Path, tmp_path: Path) -> None:
    trained = RunFolder(run_tiny(tiny_config(user, "stop.max_env_steps=100"), Start(tmp_path / "old")).run_dir)
    config = tiny_config(user, f"learner.initialize_from={trained.best}", "learner.inference=true")
    result = run_tiny(config, Start(tmp_path / "new"))
    assert (result.reason, result.best is not None) == ("max_env_steps", True)
    assert result.counters.env_step >= 400
    assert result.counters.train_iter == result.counters.policy_version == 0
    assert result.counters.episode > 0
    saved = load(RunFolder(result.run_dir).checkpoint(0))
    assert saved.progress.exploration == {"epsilon": config.policy.epsilon_end}  # type: ignore[union-attr]


def test_a_secret_is_only_where_a_resume_needs_it(user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


ENDLESS = "env.kwargs={endless: true}"


def test_an_episode_that_never_ends_is_cut_with_a_warning(user: Path, tmp_path: Path) -> None:
    result = run_tiny(tiny_config(user, ENDLESS, "evaluator.max_episode_steps=50"), Start(tmp_path / "run"))
    folder = RunFolder(result.run_dir)
    log = folder.serial_evaluator_log.read_text()
    assert (result.reason, result.failed) == ("max_env_steps", False)
    assert "[WARNING] 4 of 4 evaluation episodes had not ended after 50 steps and were cut" in log
    assert "current episode: 4, cut after 50 steps" in log
    assert "; 4 of them cut at evaluator.max_episode_steps" in log
    assert "| cut_count" in log


def test_max_wall_s_bounds_an_evaluation(user: Path, tmp_path: Path) -> None:
    """A millisecond passes with each step: half a second, and five seconds more for the evaluation."""
    result = run_tiny(tiny_config(user, ENDLESS, "stop.max_wall_s=0.5"), Start(tmp_path / "run"))
    folder = RunFolder(result.run_dir)
    log = folder.serial_evaluator_log.read_text()
    assert (result.reason, result.failed, result.best) == ("max_wall_s", False, None)
    assert 5.5 < result.counters.wall_s < 6.5
    assert "the evaluation of iteration_0.pth.tar is given up: stop.max_wall_s is over" in log
    assert CheckpointIndex(folder.ckpt).last is not None


def test_it_is_seen_and_said_that_an_evaluation_is_waited_for(user: Path, tmp_path: Path) -> None:
    config = tiny_config(user, ENDLESS, "stop.max_wall_s=32", "evaluator.max_episode_steps=60000")
    seen: list[ExperimentStatus] = []
    result = run(config, Start(tmp_path / "run"), stop=Flag(), on_progress=seen.append, clock=Ticking(tick_s=0.005))
    waiting = [status.waiting_for for status in seen if status.waiting_for is not None]
    assert set(waiting) == {"evaluating iteration_0.pth.tar: 0 of 4 episodes are over"}
    assert len(waiting) > 100
    assert seen[-1].waiting_for is None
    log = RunFolder(result.run_dir).serial_evaluator_log.read_text()
    assert "evaluating iteration_0.pth.tar: 0 of 4 episodes are over after 30 s" in log


RATE, CLIP = "learner.learning_rate", "learner.max_grad_norm"
OVERRIDES = (f"{RATE}=[[100, 0.01], [350, 0]]", f"{CLIP}=[[0, 1], [200, 3]]", "log.interval_train_iters=1")


def shown(root: Path) -> dict[str, list[tuple[int, float]]]:
    """Curves of the rates that updates had and of the settings: (env_step, value)."""

    tags = {tag.rpartition("/")[2]: points for tag, points in curves(RunFolder(root).serial_tb).items()
            if tag.startswith("learner_step")}  # fmt: skip
    return {name: tags[name] for name in ("cur_lr_avg", RATE, CLIP)}


def test_updates_follow_the_schedule_to_the_last_digit(user: Path, tmp_path: Path) -> None:
    config = tiny_config(user, *OVERRIDES)
    first = run_tiny(config, Start(tmp_path / "parts"), stop=Flag(looks=40))
    assert 100 < first.counters.env_step < 350
    run_tiny(config, Start(tmp_path / "parts", "resume"))
    found = shown(tmp_path / "parts")
    for name, setting in (("cur_lr_avg", RATE), (RATE, RATE), (CLIP, CLIP)):
        assert len({at for at, _ in found[name]}) > 20
        for at, value in found[name]:
            assert value == np.float32(values_at(config, at, {})[setting]), (name, at)
