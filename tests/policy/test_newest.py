"""Who follows a run is given each policy once, the newest first, wherever it lies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from remuda.learner import checkpoint
from remuda.policy.algorithms.dqn import Dqn
from remuda.policy.checkpoint_file import CheckpointError
from remuda.policy.newest import NewestPolicy
from remuda.policy.playable import Playable
from remuda.policy.policy_file import publish
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.tests.policy.cases import config, dqn
from remuda.wire.messages import Counters, PolicyRef

SEEN = np.random.default_rng(3).normal(size=(40, 4)).astype(np.float32)
UUID = "0000-1111"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    folder.ckpt.mkdir()
    folder.policy.mkdir()
    return folder


def save(run: RunFolder, algorithm: Dqn, train_iter: int) -> None:
    progress = checkpoint.Progress(Counters(env_step=10 * train_iter, train_iter=train_iter), PolicyRef(), {})
    record = checkpoint.save(run.checkpoint(train_iter), algorithm, progress, config=config())
    CheckpointIndex(run.ckpt).add(record)


def put_out(run: RunFolder, algorithm: Dqn, train_iter: int, *, number: int = 1) -> None:
    ref = PolicyRef(1, train_iter, train_iter)
    publish(run.policy_file(UUID, number), algorithm.acting_state(), ref, warn=pytest.fail)


def acts_as(playable: Playable | None, algorithm: Dqn) -> bool:
    assert playable is not None
    with torch.no_grad():
        expected = algorithm.network(torch.tensor(SEEN)).argmax(1).numpy()
    acted = playable.actor.act(SEEN, {}, np.random.default_rng(0), deterministic=True)
    return bool((acted == expected).all())


def test_nothing_is_newer_than_nothing(run: RunFolder) -> None:
    newest = NewestPolicy(run.root)
    assert newest.newer() is None
    put_out(run, dqn(), 5)
    assert newest.newer() is None, "nobody knows what it is of"


def test_each_checkpoint_is_given_once(run: RunFolder) -> None:
    newest, algorithms = NewestPolicy(run.root), [dqn(seed=seed) for seed in range(3)]
    save(run, algorithms[0], 0)
    save(run, algorithms[1], 4)
    playable = newest.newer()
    assert acts_as(playable, algorithms[1])
    assert playable is not None
    assert (playable.train_iter, playable.env_step, playable.source) == (4, 40, run.checkpoint(4))
    assert newest.newer() is None
    save(run, algorithms[2], 9)
    assert acts_as(newest.newer(), algorithms[2])
    assert newest.newer() is None


def test_a_published_policy_comes_before_an_older_checkpoint_and_after_a_newer_one(run: RunFolder) -> None:
    newest, algorithms = NewestPolicy(run.root), [dqn(seed=seed) for seed in range(4)]
    save(run, algorithms[0], 0)
    put_out(run, algorithms[1], 7)
    playable = newest.newer()
    assert acts_as(playable, algorithms[1])
    assert playable is not None
    assert (playable.train_iter, playable.env_step, playable.source) == (7, None, run.policy_file(UUID, 1))
    assert newest.newer() is None
    save(run, algorithms[1], 7)
    assert newest.newer() is None, "the same policy again"
    put_out(run, algorithms[2], 12)
    save(run, algorithms[3], 15)
    assert acts_as(newest.newer(), algorithms[3])
    assert newest.newer() is None


def test_of_a_run_that_went_through_several_coordinators_the_last_ones_file_is_taken(run: RunFolder) -> None:
    newest, algorithms = NewestPolicy(run.root), [dqn(seed=seed) for seed in range(3)]
    save(run, algorithms[0], 0)
    put_out(run, algorithms[1], 3, number=1)
    assert acts_as(newest.newer(), algorithms[1])
    put_out(run, algorithms[2], 6, number=2)
    assert acts_as(newest.newer(), algorithms[2])


def test_a_checkpoint_that_was_just_pruned_is_no_failure_but_a_damaged_one_is(run: RunFolder) -> None:
    newest = NewestPolicy(run.root)
    save(run, dqn(), 4)
    run.checkpoint(4).rename(run.root / "away")
    assert newest.newer() is None
    run.checkpoint(4).write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="damaged"):
        newest.newer()
    (run.root / "away").rename(run.checkpoint(4))
    assert acts_as(newest.newer(), dqn())


def test_a_damaged_policy_file_is_passed_over(run: RunFolder) -> None:
    newest = NewestPolicy(run.root)
    save(run, dqn(), 4)
    run.policy_file(UUID, 1).write_bytes(b"damaged")
    assert acts_as(newest.newer(), dqn())
