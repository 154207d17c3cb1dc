"""A follower of a run gets each policy once, the newest first, from any place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from remuda.policy.algorithms.dqn.learning import Dqn
from remuda.policy.files.checkpoint_file import CheckpointError
from remuda.policy.files.playable import NewestPolicy, Playable
from remuda.policy.files.policy_file import publish
from remuda.storage.run_folder import RunFolder
from remuda.tests.policy.cases import dqn
from remuda.tests.policy.files.saved_runs import save
from remuda.wire.messages import PolicyRef

SEEN = np.random.default_rng(3).normal(size=(40, 4)).astype(np.float32)
UUID = "0000-1111"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    folder.policy.mkdir()
    return folder


def put_out(run: RunFolder, algorithm: Dqn, train_iter: int, *, number: int = 1) -> None:
    ref = PolicyRef(1, train_iter, train_iter)
    publish(run.policy_file(UUID, number), algorithm.acting_state(), ref, warn=pytest.fail)


def acts_as(playable: Playable | None, algorithm: Dqn) -> bool:
    assert playable is not None
    with torch.no_grad():
        expected = algorithm.network(torch.tensor(SEEN)).argmax(1).numpy()
    acted = playable.actor.act(SEEN, {}, np.random.default_rng(0), deterministic=True)
    return bool((acted == expected).all())


def assert_gives_once(
    newest: NewestPolicy, algorithm: Dqn, *, train_iter: int, env_step: int | None, source: Path
) -> None:
    """The next policy acts as `algorithm` and names its source; then there is no newer one."""
    playable = newest.newer()
    assert acts_as(playable, algorithm)
    assert playable is not None
    assert (playable.train_iter, playable.env_step, playable.source) == (train_iter, env_step, source)
    assert newest.newer() is None


def test_each_checkpoint_is_given_once(run: RunFolder) -> None:
    newest, algorithms = NewestPolicy(run), [dqn(seed=seed) for seed in range(3)]
    save(run.root, algorithms[0], 0)
    save(run.root, algorithms[1], 4)
    assert_gives_once(newest, algorithms[1], train_iter=4, env_step=40, source=run.checkpoint(4))
    save(run.root, algorithms[2], 9)
    assert_gives_once(newest, algorithms[2], train_iter=9, env_step=90, source=run.checkpoint(9))


def test_a_published_policy_comes_before_an_older_checkpoint_and_after_a_newer_one(run: RunFolder) -> None:
    newest, algorithms = NewestPolicy(run), [dqn(seed=seed) for seed in range(4)]
    save(run.root, algorithms[0], 0)
    put_out(run, algorithms[1], 7)
    assert_gives_once(newest, algorithms[1], train_iter=7, env_step=None, source=run.policy_file(UUID, 1))
    save(run.root, algorithms[1], 7)
    assert newest.newer() is None, "the same policy again"
    put_out(run, algorithms[2], 12)
    save(run.root, algorithms[3], 15)
    assert_gives_once(newest, algorithms[3], train_iter=15, env_step=150, source=run.checkpoint(15))


def test_a_policy_file_that_is_gone_when_it_is_looked_at_is_passed_over(run: RunFolder) -> None:
    """A coordinator removes earlier policy files when it starts."""
    newest, algorithms = NewestPolicy(run), [dqn(seed=seed) for seed in range(2)]
    save(run.root, algorithms[0], 0)
    put_out(run, algorithms[1], 3, number=2)
    run.policy_file(UUID, 1).symlink_to("gone")  # in its folder's list, and cannot be looked at
    assert acts_as(newest.newer(), algorithms[1])


def test_a_checkpoint_that_was_just_pruned_is_no_failure_but_a_damaged_one_is(run: RunFolder) -> None:
    newest = NewestPolicy(run)
    save(run.root, dqn(), 4)
    run.checkpoint(4).rename(run.root / "away")
    assert newest.newer() is None
    run.checkpoint(4).write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="damaged"):
        newest.newer()
    (run.root / "away").rename(run.checkpoint(4))
    assert acts_as(newest.newer(), dqn())


def test_a_damaged_policy_file_is_passed_over(run: RunFolder) -> None:
    newest = NewestPolicy(run)
    save(run.root, dqn(), 4)
    run.policy_file(UUID, 1).write_bytes(b"damaged")
    assert acts_as(newest.newer(), dqn())
