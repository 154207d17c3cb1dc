"""What the ports promise, of files and of streams alike."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Generator
from typing import TypeVar

import numpy as np
import pytest

from remuda.buffer.chunk import ChunkError, Columns, read_chunk, read_meta, reanalysis_name, write_chunk
from remuda.policy.files.policy_file import PolicyFileError, publish
from remuda.storage.run_folder import target_file
from remuda.tests.patience import HANG_S
from remuda.tests.worker.stores.served import OTHER, WORKER, Kind, Ranch, chunk
from remuda.wire.messages import PolicyRef, Reanalysis, ReanalysisId, Role
from remuda.worker.stores.ports import NotNowError, RunStores

T = TypeVar("T")


def at_last(call: Callable[[], T]) -> T:
    """Call again as long as it cannot be done now, as a role does."""
    end_s = time.monotonic() + HANG_S
    while True:
        try:
            return call()
        except NotNowError as error:
            if time.monotonic() > end_s:
                raise AssertionError("still not now") from error
            time.sleep(0.001)


@pytest.fixture(params=["files", "streams"])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def stores(ranch: Ranch, kind: Kind) -> Generator[Callable[..., RunStores]]:
    """Makes stores of this kind; the server runs as long as the test."""

    def make(role: Role = "collector") -> RunStores:
        return ranch.stores(kind, role)

    if kind == "files":
        yield make
        return
    with ranch.serve():
        yield make


@pytest.mark.parametrize("rows", [1, 200_000])
def test_a_written_chunk_is_in_data_as_announced(ranch: Ranch, stores: Callable[..., RunStores], rows: int) -> None:
    """Of one piece, or of many."""
    meta, columns = chunk(0, rows)
    store = stores().payloads
    announced = at_last(lambda: store.write(meta, columns))
    path = ranch.run.data / announced.file
    found = read_chunk(path, announced)
    assert read_meta(path) == announced
    assert found.keys() == columns.keys()
    for name, column in columns.items():
        np.testing.assert_array_equal(found[name], column)
    assert [each.name for each in ranch.run.data.iterdir()] == [announced.file]  # nothing half done beside it


def test_a_chunk_can_be_read(ranch: Ranch, stores: Callable[..., RunStores]) -> None:
    meta, columns = chunk(3, 100_000, worker=OTHER)
    store = stores("reanalyzer").payloads
    with pytest.raises(ChunkError) as error:
        at_last(lambda: store.read(meta))
    assert error.value.fault == "missing"
    announced = write_chunk(ranch.run.data, meta, columns)
    found = at_last(lambda: store.read(announced))
    np.testing.assert_array_equal(found["obs"], columns["obs"])
    with open(ranch.run.data / announced.file, "r+b") as file:
        file.seek(-5, os.SEEK_END)
        file.write(b"\xff")
    with pytest.raises(ChunkError) as error:
        at_last(lambda: store.read(announced))
    assert error.value.fault == "wrong checksum"


def test_a_reanalysis_is_written_and_read(ranch: Ranch, stores: Callable[..., RunStores]) -> None:
    chunk_meta, _ = chunk(0)
    id = ReanalysisId(WORKER, 1, 7)
    meta = Reanalysis(id, reanalysis_name(id), chunk_meta.chunk, 0, 50, PolicyRef(1, 2, 30), 0, 0)
    columns: Columns = {"root_value": np.linspace(0.0, 1.0, 50, dtype=np.float32)}
    store = stores("reanalyzer").payloads
    announced = at_last(lambda: store.write(meta, columns))
    assert read_chunk(ranch.run.data / announced.file, announced).keys() == {"root_value"}
    found = at_last(lambda: store.read(announced))
    np.testing.assert_array_equal(found["root_value"], columns["root_value"])


@pytest.mark.parametrize("target", [False, True])
def test_the_newest_policy_is_loaded_once(ranch: Ranch, stores: Callable[..., RunStores], target: bool) -> None:
    path = ranch.policy_file.with_name(target_file(ranch.policy_file.name)) if target else ranch.policy_file
    opened = stores("reanalyzer" if target else "collector")
    store = opened.targets if target else opened.policies
    for version in range(3):
        ref = PolicyRef(2, version, 10 * version)
        state = {"w": np.full((300, 700), version, np.float32)}
        publish(path, state, ref, warn=pytest.fail)
        loaded = at_last(lambda: store.load(newer_than=PolicyRef(2, version - 1) if version else None))  # noqa: B023
        assert loaded is not None
        assert loaded.ref == ref
        np.testing.assert_array_equal(loaded.state["w"], state["w"])
        assert at_last(lambda: store.load(newer_than=ref)) is None  # noqa: B023  (called at once)
    assert at_last(lambda: store.load(newer_than=PolicyRef(3, 0, 0))) is None, "an older epoch is never newer"


def test_a_policy_that_is_not_there_or_damaged_is_an_error(ranch: Ranch, stores: Callable[..., RunStores]) -> None:
    store = stores().policies
    with pytest.raises(PolicyFileError, match="cannot be read"):
        at_last(store.load)
    publish(ranch.policy_file, {"w": np.ones(500, np.float32)}, PolicyRef(1), warn=pytest.fail)
    with open(ranch.policy_file, "r+b") as file:
        file.seek(-5, os.SEEK_END)
        file.write(b"\xff")
    with pytest.raises(PolicyFileError, match="damaged"):
        at_last(store.load)


def test_a_checkpoint_is_fetched_whole_under_its_name(ranch: Ranch, stores: Callable[..., RunStores]) -> None:
    store = stores("evaluator").checkpoints
    for train_iter in (0, 10, 20, 30):
        content = np.random.default_rng(train_iter).bytes(3_000_000)
        ranch.run.checkpoint(train_iter).write_bytes(content)
        sha256 = hashlib.sha256(content).hexdigest()
        for _ in range(2):
            path = at_last(lambda: store.fetch(f"iteration_{train_iter}.pth.tar", sha256))  # noqa: B023
            assert path.name == f"iteration_{train_iter}.pth.tar"
            assert path.read_bytes() == content
    again = at_last(lambda: store.fetch("iteration_30.pth.tar", "0" * 64))
    assert again.read_bytes() == content, "saved again since it was recorded"
