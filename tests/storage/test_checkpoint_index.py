"""The index on disk is always the truth about ckpt/, and pruning never takes initial, best or last."""

from __future__ import annotations

import errno
import json
import math
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from remuda.storage import checkpoint_index
from remuda.storage.atomic import link
from remuda.storage.checkpoint_index import (
    CheckpointIndex,
    CheckpointIndexError,
    drop_models,
    to_prune,
    unlisted,
)
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import CheckpointRecord


def record(train_iter: int, reward: float | None = None) -> CheckpointRecord:
    return CheckpointRecord(
        train_iter=train_iter,
        env_step=train_iter * 8,
        wall_s=train_iter / 10,
        reward=reward,
        file=f"iteration_{train_iter}.pth.tar",
        sha256="0" * 64,
        created="2026-08-21T11:26:24+02:00",
    )


def saved(folder: Path, *train_iters: int) -> CheckpointIndex:
    index = CheckpointIndex(folder)
    for train_iter in train_iters:
        (folder / record(train_iter).file).write_text(f"weights {train_iter}")
        index.add(record(train_iter))
    return index


# --- what may go ----------------------------------------------------------------------------------------------------
@given(
    iters=st.lists(st.integers(0, 40), unique=True, max_size=30),
    keep=st.integers(0, 12),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_whatever_the_history_the_promises_hold(iters: list[int], keep: int, seed: int, data: st.DataObject) -> None:
    one_of_them = st.sampled_from(iters) if iters else st.none()
    best, last = data.draw(st.none() | one_of_them), data.draw(one_of_them)
    in_use = data.draw(st.sets(st.sampled_from(iters), max_size=3) if iters else st.just(set[int]()))
    records = [record(i) for i in iters]
    random.Random(seed).shuffle(records)
    gone = [r.train_iter for r in to_prune(records, keep=keep, best=best, last=last, in_use=in_use)]
    stay = set(iters) - set(gone)
    assert gone == sorted(gone), "oldest first"
    protected = {0, best, last, *in_use}
    assert not protected & set(gone)
    later = sorted(i for i in iters if i > 0)
    assert gone == [] if keep == 0 else stay - protected <= set(later[-keep:]) <= stay
    again = to_prune([record(i) for i in stay], keep=keep, best=best, last=last, in_use=in_use)
    assert again == [], "nothing more to prune after"


def test_with_all_checkpoints_kept_the_index_lists_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index of 64 MiB could not be read again."""
    monkeypatch.setattr(checkpoint_index, "MOST_LISTED", 2)
    index = saved(tmp_path, 0, 100)
    index.set_reward(100, 195.5, best=True)
    for train_iter in (200, 300, 400):
        (tmp_path / record(train_iter).file).touch()
        assert index.add(record(train_iter)) == []
    assert [each.train_iter for each in CheckpointIndex(tmp_path).records] == [0, 100, 300, 400]
    assert (tmp_path / record(200).file).exists()


# --- the file -------------------------------------------------------------------------------------------------------
def test_saving_the_best_iteration_again_keeps_it_the_best_and_its_link_the_very_file(tmp_path: Path) -> None:
    index = saved(tmp_path, 0, 100)
    index.set_reward(100, 195.5, task="walk", best=True)
    again = tmp_path / "again"
    again.write_bytes(b"same weights, later counters")
    again.replace(tmp_path / "iteration_100.pth.tar")
    index.add(structs.replace(record(100), env_step=900))
    assert index.best == index.last == structs.replace(record(100, reward=195.5), env_step=900, task="walk")
    assert (tmp_path / "ckpt_best.pth.tar").samefile(tmp_path / "iteration_100.pth.tar")
    index.add(record(50))
    assert index.last == record(50), "the last is the latest added, also after going back"
    assert [each.train_iter for each in index.records] == [0, 50, 100]
    index.add(record(100, reward=9.0))
    assert index.best == record(100, reward=9.0), "a new reward replaces the known"


def test_the_layout_of_the_file(tmp_path: Path) -> None:
    index = saved(tmp_path, 0, 100)
    index.set_reward(100, 195.5, task="walk", best=True)
    assert json.loads((tmp_path / "index.json").read_text()) == {
        "format": 1,
        "best": 100,
        "last": 100,
        "checkpoints": [
            {
                "train_iter": 0,
                "env_step": 0,
                "wall_s": 0.0,
                "reward": None,
                "file": "iteration_0.pth.tar",
                "sha256": "0" * 64,
                "created": "2026-08-21T11:26:24+02:00",
                "episode": 0,
                "policy": {"epoch": 0, "version": 0, "train_iter": 0},
                "task": "",
            },
            {
                "train_iter": 100,
                "env_step": 800,
                "wall_s": 10.0,
                "reward": 195.5,
                "file": "iteration_100.pth.tar",
                "sha256": "0" * 64,
                "created": "2026-08-21T11:26:24+02:00",
                "episode": 0,
                "policy": {"epoch": 0, "version": 0, "train_iter": 0},
                "task": "walk",
            },
        ],
        "tasks": [{"task": "walk", "train_iter": 100, "env_step": 800, "wall_s": 10.0, "kwargs_json": None}],
    }
    assert (tmp_path / "index.json").read_text().endswith("}\n")


def test_each_task_is_noted_with_the_checkpoint_that_was_evaluated_on_it_first(tmp_path: Path) -> None:
    index = saved(tmp_path, 0, 100, 200)
    for train_iter, task in ((0, ""), (0, "walk"), (100, "walk"), (100, "climb"), (200, "climb")):
        index.set_reward(train_iter, 1.0, task=task, best=True)
    assert [(each.task, each.train_iter) for each in CheckpointIndex(tmp_path).tasks] == [("walk", 0), ("climb", 100)]
    assert [record.task for record in index.records] == ["walk", "climb", "climb"]


def test_every_change_is_read_back_by_another(tmp_path: Path) -> None:
    index = saved(tmp_path, 0, 10, 20)
    reader = CheckpointIndex(tmp_path)
    for change in (
        lambda: index.set_reward(10, 3.0),
        lambda: index.set_reward(10, 4.0, best=True),
        lambda: index.add(record(30)),
        lambda: index.add(record(30), keep=1),
    ):
        change()
        reader.load()
        assert (reader.records, reader.best, reader.last) == (index.records, index.best, index.last)
    assert [r.train_iter for r in reader.records] == [0, 10, 30]


def test_what_the_disk_refuses_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = saved(tmp_path, 0)

    def full(path: Path, data: bytes, *, durable: bool) -> None:
        assert durable
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_index, "write_bytes", full)
        with pytest.raises(OSError, match="No space"):
            index.add(record(10))
    assert index.records == CheckpointIndex(tmp_path).records == (record(0),)


def test_a_number_that_json_cannot_hold_never_reaches_the_file(tmp_path: Path) -> None:
    index = saved(tmp_path, 0)
    index.set_reward(0, math.nan)
    assert index.best is None, "nothing said that it is the best"
    with pytest.raises(ValueError, match="wall_s is inf"):
        index.add(structs.replace(record(10), wall_s=math.inf))
    assert index.records == CheckpointIndex(tmp_path).records == (record(0),)
    with pytest.raises(CheckpointIndexError, match="lists no checkpoint of iteration 10"):
        index.record(10)


def test_an_index_that_is_a_link_is_read_unless_links_are_refused(tmp_path: Path) -> None:
    index = saved(tmp_path, 0)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "index.json").symlink_to(tmp_path / "index.json")
    assert CheckpointIndex(tmp_path / "linked").records == index.records
    with pytest.raises(OSError, match="symbolic link"):
        CheckpointIndex(tmp_path / "linked", follow_link=False)


VALID = '{"format":1,"best":null,"last":null,"checkpoints":[]}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "\x00\xff",
        VALID.replace('"format":1', '"format":2'),
        VALID.replace('"best":null', '"best":5'),
        VALID.replace("[]", "[{}]"),
        VALID.replace("}", ',"more":1}'),
    ],
)
def test_a_damaged_index_is_a_typed_error_that_names_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "index.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointIndexError) as caught:
        CheckpointIndex(tmp_path)
    assert str(tmp_path / "index.json") in str(caught.value)


def test_a_record_listed_twice_or_pointing_elsewhere_is_damage(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    path = tmp_path / "index.json"
    whole = json.loads(path.read_text())
    path.write_text(json.dumps({**whole, "checkpoints": whole["checkpoints"] * 2}))
    with pytest.raises(CheckpointIndexError, match="twice"):
        CheckpointIndex(tmp_path)
    whole["checkpoints"][0]["file"] = "../../outside"
    path.write_text(json.dumps(whole))
    with pytest.raises(CheckpointIndexError, match="file"):
        CheckpointIndex(tmp_path)


# --- the files beside it --------------------------------------------------------------------------------------------
def test_best_is_that_very_file_and_follows_it(tmp_path: Path) -> None:
    index = saved(tmp_path, 0, 10)
    for train_iter in (0, 10, 10):
        index.set_reward(train_iter, 9.0, best=True)
        assert (tmp_path / "ckpt_best.pth.tar").samefile(tmp_path / f"iteration_{train_iter}.pth.tar")
        assert index.best == record(train_iter, reward=9.0)
    assert sorted(os.listdir(tmp_path)) == [
        "ckpt_best.pth.tar",
        "index.json",
        "iteration_0.pth.tar",
        "iteration_10.pth.tar",
    ]


def test_the_interrupted_one_is_linked_at_once_and_is_not_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = saved(tmp_path, 0, 10)

    def linked(source: Path, target: Path, *, durable: bool) -> None:
        assert durable, "no write of the index follows"
        link(source, target, durable=durable)

    monkeypatch.setattr(checkpoint_index, "link", linked)
    index.link_interrupt(10)
    assert (tmp_path / "ckpt_interrupt.pth.tar").samefile(tmp_path / "iteration_10.pth.tar")
    assert index.best is None


def test_best_is_a_copy_where_links_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    index = saved(tmp_path, 0)
    index.set_reward(0, 9.0, best=True)
    assert (tmp_path / "ckpt_best.pth.tar").read_text() == "weights 0"


def test_best_stays_what_it_was_when_the_file_is_gone(tmp_path: Path) -> None:
    index = saved(tmp_path, 0, 10)
    index.set_reward(0, 9.0, best=True)
    (tmp_path / "iteration_10.pth.tar").unlink()
    with pytest.raises(CheckpointIndexError, match="missing"):
        index.set_reward(10, 10.0, best=True)
    assert index.records == (record(0, reward=9.0), record(10))
    assert index.best == record(0, reward=9.0)
    assert (tmp_path / "ckpt_best.pth.tar").read_text() == "weights 0"


def test_pruning_removes_files_and_records_alike(tmp_path: Path) -> None:
    index = saved(tmp_path, 0, 10, 20, 30)
    index.set_reward(10, 9.0, best=True)
    (tmp_path / record(40).file).write_text("weights 40")
    assert [r.train_iter for r in index.add(record(40), keep=1, in_use=(20,))] == [30]
    assert [r.train_iter for r in index.add(record(40), keep=1)] == [20]
    assert sorted(p.name for p in tmp_path.glob("iteration_*")) == [r.file for r in index.records]
    assert [r.train_iter for r in index.records] == [0, 10, 40]
    assert index.add(record(40), keep=1) == []


def test_models_go_with_their_checkpoints(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.model.mkdir()
    for train_iter in (10, 20):
        run.model_of(train_iter).touch()
    drop_models(run, [record(10), record(30)])
    assert list(run.model.iterdir()) == [run.model_of(20)]


def test_a_crash_while_pruning_is_made_good_by_the_next(tmp_path: Path) -> None:
    index = saved(tmp_path, 0, 10, 20)
    (tmp_path / "iteration_10.pth.tar").unlink()
    assert [r.train_iter for r in index.add(record(20), keep=1)] == [10]
    assert [r.train_iter for r in CheckpointIndex(tmp_path).records] == [0, 20]


def test_only_a_later_checkpoint_that_no_index_names_is_unlisted(tmp_path: Path) -> None:
    index = saved(tmp_path, 6)
    for name in (record(5).file, record(30).file, "iteration_x.pth.tar"):
        (tmp_path / name).write_text("weights")
    assert [path.name for path in unlisted(tmp_path, beyond=5)] == [record(30).file]
    (index.folder / "index.json").write_text("damaged")
    assert unlisted(tmp_path, beyond=5) == []
