"""A reanalyzer's lease: it computes what it is asked for with the target network, and announces it once."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from remuda.buffer.chunk import chunk_name, read_chunk, write_chunk
from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.config.schema import ExperimentConfig
from remuda.learner import reanalyzer as module
from remuda.learner.reanalyzer import ReanalyzerWork, recompute
from remuda.policy.algorithms.muzero.learning import MuZero
from remuda.policy.algorithms.muzero.targets import ROOT_VALUE, SEARCH_POLICY
from remuda.policy.base import Arrays, Reanalyzer
from remuda.policy.files.policy_file import publish
from remuda.storage.run_folder import target_file
from remuda.tests.policy.algorithms.muzero.cases import batch
from remuda.tests.worker.leases import algorithm_of, assign_to, new_run, small_config, stores_of
from remuda.tests.worker.recording_link import WORKER, RecordingLink
from remuda.wire.messages import ChunkId, ChunkMeta, IndexedChunk, NotReanalyzed, PolicyRef, Reanalyze, Reanalyzed
from remuda.worker.link import WorkerIdentity
from remuda.worker.stores import ports

COLLECTOR = "bbbbbbbb-0000-4000-8000-000000000001"
POLICY = {
    "type": "muzero",
    "simulations": 6,
    "unroll_steps": 2,
    "n_step": 2,
    "hidden": (9,),
    "latent": 8,
    "support_size": 5,
    "reanalyze_ratio": 0.5,
}
FIRST, SECOND = PolicyRef(1, 0, 100), PolicyRef(1, 1, 200)


def config(**sections: Any) -> ExperimentConfig:
    return small_config(policy=POLICY, reanalyzer={"count": 1}, **sections)


class Lease:
    """One reanalyzer's lease in a run with a target network and chunks."""

    def __init__(self, folder: Path) -> None:
        self.config = config()
        self.run = new_run(folder)
        self.assign = assign_to(self.run, self.config, lease=3)
        self.link = RecordingLink()
        self.publish(FIRST)
        self.work = ReanalyzerWork(self.assign, WorkerIdentity(WORKER, 2), self.link, stores_of(self.run))
        self.requests = 0

    def publish(self, target: PolicyRef) -> None:
        rng = np.random.default_rng(target.version)
        state = {
            name: array + rng.normal(size=array.shape).astype(array.dtype)
            for name, array in cast("MuZero", algorithm_of(self.config)).target_state().items()
            if array.dtype == np.float32 and "running" not in name
        }
        state = {**cast("MuZero", algorithm_of(self.config)).target_state(), **state}
        publish(self.run.policy / target_file(self.assign.policy_file), state, target, warn=pytest.fail)

    def chunk(self, sequence: int, rows: int = 5) -> IndexedChunk:
        assert isinstance(self.config.policy, MuZeroConfig)
        columns = batch(np.random.default_rng(sequence), self.config.policy, rows=rows)
        del columns["weights"]
        columns["obs"] = np.concatenate([columns["obs"], columns["obs"][..., :1]], -1)  # CartPole's are of four numbers
        id = ChunkId(COLLECTOR, 1, sequence)
        meta = ChunkMeta(id, chunk_name(id), rows, rows, 0, 0, PolicyRef(), 0.1)
        return IndexedChunk(100 * sequence, write_chunk(self.run.data, meta, columns))

    def ask(self, chunk: IndexedChunk, target: PolicyRef = FIRST) -> Reanalyze:
        self.requests += 1
        asked = Reanalyze(3, self.requests, chunk, target)
        self.work.handle(asked)
        return asked

    @property
    def announced(self) -> list[Reanalyzed]:
        return self.link.sent_of(Reanalyzed)


@pytest.fixture
def lease(tmp_path: Path) -> Any:
    made = Lease(tmp_path)
    yield made
    made.work.close()


def test_what_it_announces_is_in_data_with_the_target_network_that_computed_it(lease: Lease) -> None:
    assert not lease.work.step()
    assert lease.link.doing.text == "waiting for chunks"
    chunk = lease.chunk(0)
    asked = lease.ask(chunk)
    assert lease.work.step()
    (said,) = lease.announced
    assert (said.lease, said.request) == (3, asked.request)
    meta = said.meta
    assert (meta.chunk, meta.first_row, meta.rows, meta.target) == (chunk.meta.chunk, 0, 5, FIRST)
    assert (meta.id.worker, meta.id.incarnation, meta.id.sequence) == (WORKER, 2, 0)
    stored = read_chunk(lease.run.data / chunk.meta.file, chunk.meta)
    found = read_chunk(lease.run.data / meta.file, meta)
    assert set(found) == {SEARCH_POLICY, ROOT_VALUE}
    assert found[SEARCH_POLICY].shape == stored[SEARCH_POLICY].shape
    assert not np.array_equal(found[SEARCH_POLICY], stored[SEARCH_POLICY])
    assert lease.link.progressed == 5
    assert meta.compute_s > 0
    text = lease.run.worker_log("reanalyzer", WORKER, 2).read_text()
    assert "computed 5 rows of 1 chunks again, the newest with the target network of iteration 100" in text


def test_a_newer_target_network_is_loaded_when_it_is_asked_for(lease: Lease) -> None:
    chunk = lease.chunk(0)
    for target in (FIRST, FIRST, SECOND):
        if target == SECOND:
            lease.publish(SECOND)
        lease.ask(chunk, target)
        assert lease.work.step()
    found = [read_chunk(lease.run.data / each.meta.file, each.meta)[ROOT_VALUE] for each in lease.announced]
    assert [each.meta.target for each in lease.announced] == [FIRST, FIRST, SECOND]
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[1], found[2])


def test_a_request_that_comes_again_is_answered_once(lease: Lease) -> None:
    asked = lease.ask(lease.chunk(0))
    lease.work.handle(asked)
    assert lease.work.step()
    lease.work.handle(asked)
    assert not lease.work.step()
    assert len(lease.announced) == 1


def test_a_payload_that_cannot_be_read_is_no_failure(lease: Lease) -> None:
    chunk = lease.chunk(0)
    (lease.run.data / chunk.meta.file).write_bytes(b"damaged")
    asked = lease.ask(chunk)
    assert lease.work.step()
    (said,) = lease.link.sent_of(NotReanalyzed)
    assert said.request == asked.request
    assert lease.announced == []
    lease.ask(lease.chunk(1))
    assert lease.work.step()
    assert len(lease.announced) == 1


def test_what_a_full_disk_refuses_is_written_later(lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    full = ["full"]

    def refusing(*arguments: Any) -> Any:
        if full:
            raise OSError(errno.ENOSPC, "no space left")
        return write_chunk(*arguments)

    monkeypatch.setattr(ports, "write_chunk", refusing)
    lease.ask(lease.chunk(0))
    lease.ask(lease.chunk(1))
    lease.work.step()
    for _ in range(3):
        assert not lease.work.step()
    assert lease.link.doing.text == "waiting for room on the disk"
    full.clear()
    assert lease.work.step()
    assert lease.work.step()
    assert [each.meta.first_row for each in lease.announced] == [0, 100]


def test_it_lets_go_at_once_and_leaves_what_it_has_not_begun_to_others(lease: Lease) -> None:
    lease.ask(lease.chunk(0))
    drained = [lease.work.drained]
    lease.work.drain()
    drained.append(lease.work.drained)
    assert drained == [False, True]
    assert not lease.work.step()
    assert lease.announced == []


class Doubling(Reanalyzer):
    """Says twice the mean of the observation."""

    def __init__(self, dtype: type[np.generic] = np.float32) -> None:
        self.sizes: list[int] = []
        self.dtype = dtype

    def load_state(self, state: Arrays) -> None:
        raise AssertionError("not asked for here")

    def compute(self, columns: Arrays) -> dict[str, np.ndarray]:
        self.sizes.append(len(columns["value"]))
        means = columns["obs"].reshape(len(columns["obs"]), -1).mean(1)
        return {"value": (2 * means).astype(self.dtype)}


def test_all_rows_are_computed_in_parts_with_their_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 4)
    columns = {"obs": np.arange(20.0, dtype=np.float32).reshape(10, 2), "value": np.zeros(10, np.float32)}
    reanalyzer, progress = Doubling(), list[int]()
    found = recompute(columns, ["value"], reanalyzer, progress=progress.append)
    assert found.keys() == {"value"}
    np.testing.assert_array_equal(found["value"], 2 * columns["obs"].mean(1))
    assert reanalyzer.sizes == progress == [4, 4, 2]


def test_an_algorithm_that_returns_other_columns_than_it_declared_is_told_so() -> None:
    columns = {"obs": np.zeros((3, 2), np.float32), "value": np.zeros(3, np.float32)}
    with pytest.raises(ValueError, match="no column 'value' of the shape and dtype that it had"):
        recompute(columns, ["value"], Doubling(np.float64), progress=lambda rows: None)
