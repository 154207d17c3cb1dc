"""Checkpoints restore everything, name what does not fit, and execute nothing."""

from __future__ import annotations

import copy
import hashlib
import io
import os
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.learner.checkpoint import Progress, load, restore, restore_rngs, save
from remuda.policy.algorithms.dqn.learning import Dqn
from remuda.policy.files.checkpoint_file import CheckpointError
from remuda.tests.policy.cases import ACTION, OBSERVATION, batch, config, dqn
from remuda.wire.messages import CheckpointRecord, Counters, PolicyRef

PROGRESS = Progress(
    Counters(env_step=640, train_iter=20, episode=3, policy_version=2, wall_s=1.5),
    PolicyRef(epoch=4, version=2, train_iter=20),
    {"epsilon": 0.25},
    best_reward=17.5,
)


def trained(updates: int = 20, seed: int = 0) -> Dqn:
    algorithm, rng = dqn(seed=seed), np.random.default_rng(seed)
    for _ in range(updates):
        algorithm.learn(batch(rng))
    return algorithm


def weights(algorithm: Dqn) -> bytes:
    return b"".join(array.tobytes() for array in algorithm.acting_state().values())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "iteration_20.pth.tar"


@pytest.fixture
def saved(path: Path) -> Path:
    save(path, trained(), PROGRESS, config=config(), rngs={"replay": np.random.default_rng(5)})
    return path


def edited(path: Path, edit: Callable[[dict[str, Any]], object]) -> Path:
    content = torch.load(path, weights_only=True)
    edit(content)
    torch.save(content, path)
    return path


# --- what is in it
def test_the_file_is_the_dict_that_the_run_folder_promises(saved: Path) -> None:
    content = torch.load(saved, weights_only=True)
    assert {"model", "target_model", "optimizer", "last_iter", "last_step"} <= content.keys()
    assert (content["last_iter"], content["last_step"]) == (20, 640)
    assert content["counters"] == {
        "env_step": 640, "train_iter": 20, "episode": 3, "policy_version": 2, "wall_s": 1.5,
    }  # fmt: skip
    assert content["policy"] == {"epoch": 4, "version": 2, "train_iter": 20}
    assert content["best_reward"] == 17.5
    assert content["normalisation"] is None
    assert content["config"] == config().model_dump(mode="json")
    assert content["versions"].keys() == {"remuda", "torch", "numpy", "python"}
    assert content["format"] == 1


def test_the_record_describes_exactly_this_file(path: Path) -> None:
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    record = save(path, trained(), PROGRESS, config=config(), now=now)
    created = now.astimezone().isoformat(timespec="seconds")
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    assert record == CheckpointRecord(20, 640, 1.5, None, "iteration_20.pth.tar", sha256, created, 3, PROGRESS.policy)
    assert datetime.fromisoformat(record.created) == now
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_run_resumed_from_it_goes_on_bit_for_bit(path: Path) -> None:
    through, rng = trained(), np.random.default_rng(9)
    save(path, through, PROGRESS, config=config(), rngs={"replay": rng})
    drawn = torch.rand(3)
    for _ in range(10):
        through.learn(batch(rng))
    resumed, other = dqn(seed=3), np.random.default_rng(0)
    state = load(path)
    assert (state.progress, state.saved.observation, state.saved.action) == (PROGRESS, OBSERVATION, ACTION)
    assert state.saved.config == config().model_dump(mode="json")
    assert restore(state, resumed) == []
    torch.rand(100)
    restore_rngs(state, {"replay": other})
    assert torch.equal(torch.rand(3), drawn)
    for _ in range(10):
        resumed.learn(batch(other))
    assert weights(resumed) == weights(through)


def test_generators_that_cannot_be_saved_or_were_not_are_named(saved: Path) -> None:
    with pytest.raises(CheckpointError, match="random state of 'collector' is missing"):
        restore_rngs(load(saved), {"collector": np.random.default_rng(0)})
    before = saved.read_bytes()
    with pytest.raises(ValueError, match="MT19937"):
        save(saved, trained(), PROGRESS, config=config(), rngs={"x": np.random.Generator(np.random.MT19937(0))})
    assert saved.read_bytes() == before


# --- what does not fit
def test_other_versions_are_warned_of(saved: Path) -> None:
    def older(content: dict[str, Any]) -> None:
        content["versions"].update(torch="1.0", numpy="1.0")
        del content["versions"]["python"]

    edited(saved, older)
    warnings = restore(load(saved), dqn())
    assert len(warnings) == 3
    assert "saved with torch 1.0, this is" in warnings[0]
    assert "python of unknown version" in warnings[2]


def test_a_checkpoint_of_another_network_names_every_key(saved: Path) -> None:
    other = dqn(DqnConfig(hidden=(16, 16, 8), dueling=False))
    before = weights(other)
    with pytest.raises(CheckpointError) as caught:
        restore(load(saved), other)
    message = str(caught.value)
    assert str(saved) in message
    for part in ("model", "target_model"):
        for problem in (
            "missing torso.2.weight", "missing torso.2.bias", "unexpected value.weight", "unexpected value.bias",
            "streams.0.weight has shape (16, 16), needed is (8, 16)", "streams.0.bias has shape (16,), needed is (8,)",
        ):  # fmt: skip
            assert f"{part}: {problem}" in message
    assert "optimizer: exp_avg has shape" in message
    assert weights(other) == before


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        ("counters", None, "counters"),
        ("target_model", None, "target_model: missing"),
        ("optimizer", None, "optimizer: missing"),
        ("counters.env_step", -1, r"counters\.env_step"),
        ("rng.torch", 1, r"rng\.torch"),
        ("observation.shape", "4", r"observation\.shape"),
        ("format", None, "format"),
        ("format", 2, "format 2 is newer than this Remuda reads"),
    ],
)
def test_a_part_that_is_missing_or_wrong_is_named(saved: Path, where: str, value: object, message: str) -> None:
    def spoil(content: dict[str, Any]) -> None:
        *parents, key = where.split(".")
        for parent in parents:
            content = content[parent]
        if value is None:
            del content[key]
        else:
            content[key] = value

    with pytest.raises(CheckpointError, match=message):
        restore(load(edited(saved, spoil)), dqn())


# --- damage and malice
def test_only_the_recorded_file_is_loaded_or_one_that_has_overwritten_it(path: Path) -> None:
    """A learner may die between a save under the same name and the record of it, several times."""
    first, *others = (save(path, trained(), PROGRESS, config=config()) for _ in range(3))
    assert load(path, recorded=first.sha256).progress == PROGRESS
    path.unlink()
    foreign = save(path, dqn(seed=3), PROGRESS, config=config())
    for record in (first, *others):
        with pytest.raises(CheckpointError) as caught:
            load(path, recorded=record.sha256)
        assert str(caught.value).startswith(
            f"{path} has the SHA-256 {foreign.sha256}, and the record of this checkpoint says {record.sha256}: "
        )


def test_a_zip_bomb_is_not_unpacked(saved: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(saved) as source, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        for member in source.infolist():
            target.writestr(member.filename, source.read(member))
    saved.write_bytes(buffer.getvalue())
    with pytest.raises(CheckpointError, match="compressed"):
        load(saved)


def test_members_that_share_their_bytes_are_not_loaded(saved: Path) -> None:
    """Forty tensors on the bytes of one: each would be read separately."""
    with zipfile.ZipFile(saved, "a") as archive:
        largest = max(archive.infolist(), key=lambda member: member.file_size)
        for number in range(40):
            twin = copy.copy(largest)
            twin.filename = f"{largest.filename}{number}"
            archive.filelist.append(twin)
        archive.comment = b"written again at its end"
    with pytest.raises(CheckpointError, match="overlap"):
        load(saved)


def test_a_full_disk_leaves_the_old_checkpoint(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = saved.read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save(saved, trained(1), PROGRESS, config=config())
    assert saved.read_bytes() == before
    assert [entry.name for entry in saved.parent.iterdir()] == [saved.name]
