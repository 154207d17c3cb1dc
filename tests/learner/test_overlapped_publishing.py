"""IMPALA's learner goes on while a slow disk still writes a policy, and is never further ahead than that one update."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remuda.buffer.chunk import write_chunk
from remuda.learner import service
from remuda.learner.service import LearnerWork
from remuda.policy.files.policy_file import publish
from remuda.tests.buffer.chunks import meta_of
from remuda.tests.learner.test_service import Coordinator, log_of
from remuda.tests.patience import until
from remuda.tests.policy.algorithms.segments import batch
from remuda.tests.worker.leases import small_config
from remuda.wire.messages import Batches, BatchRequest, Counters, IndexedChunk, PolicyPublished, PolicyRef

SEGMENTS, STEPS = 4, 9
UPDATES = 6


class OnPolicyCoordinator(Coordinator):
    """Answers each request with a chunk of segments that nobody has used."""

    def __init__(self, folder: Path, lag: int) -> None:
        policy = {"type": "impala", "hidden": (8,), "horizon_steps": STEPS}
        sections: dict[str, Any] = {"policy": policy, "buffer": {"max_policy_lag": lag}}
        super().__init__(folder, small_config(**sections, learner={"segments_per_update": SEGMENTS}))

    def collect(self) -> None:
        number = len(self.chunks)
        meta = write_chunk(self.run.data, meta_of(number, SEGMENTS), batch(self.rng, SEGMENTS, STEPS))
        self.chunks.append(IndexedChunk(number * SEGMENTS, meta))

    def answer(self, work: LearnerWork, lease: int = 1) -> None:
        for request in self.link.sent_of(BatchRequest)[self.answered :]:
            assert (request.batches, request.batch_size) == (1, SEGMENTS)
            self.answered += 1
            self.collect()
            (new,) = self.chunks[self.answered - 1 :]
            rows = np.arange(new.first_row, new.first_row + SEGMENTS)[None]
            counters = Counters(env_step=SEGMENTS * STEPS * self.answered)
            work.handle(Batches(lease, request.request, rows, np.ones(rows.shape, np.float32), [new], 0, counters))


class Disk:
    """Has written a policy only after the update that follows it, and fails as often as it is told."""

    def __init__(self, coordinator: OnPolicyCoordinator) -> None:
        self._coordinator = coordinator
        self.nothing_follows = False
        """The last policy need not wait."""
        self.refuses = 0
        self.ahead: list[int] = []
        """Updates that were done beyond each policy when it had been written."""

    def write(
        self, path: Path, state: Mapping[str, np.ndarray], policy: PolicyRef, *, warn: Callable[[str], None], **_: Any
    ) -> None:
        if policy.train_iter and self.refuses:
            self.refuses -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if policy.train_iter:
            until(lambda: self.nothing_follows or self._done > policy.train_iter, "something is learned meanwhile")
        self.ahead.append(self._done - policy.train_iter)
        publish(path, state, policy, warn=warn)

    @property
    def _done(self) -> int:
        return self._coordinator.link.progressed


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[OnPolicyCoordinator]:
    opened = OnPolicyCoordinator(tmp_path, lag=1)
    yield opened
    for work in opened.works:
        work.close()


@pytest.mark.parametrize("refuses", [0, 2])
def test_an_update_is_done_while_the_policy_before_it_is_written(
    coordinator: OnPolicyCoordinator, monkeypatch: pytest.MonkeyPatch, refuses: int
) -> None:
    """All are published, in their order, also where the disk refuses at first: that is in the log."""
    disk = Disk(coordinator)
    disk.refuses = refuses
    monkeypatch.setattr(service, "publish", disk.write)
    work = coordinator.begin()
    coordinator.train(work, UPDATES)
    disk.nothing_follows = True
    work.drain()
    assert [(ref.version, ref.train_iter) for ref in coordinator.published] == [(n, n) for n in range(UPDATES + 1)]
    assert disk.ahead == [0, *[1] * (UPDATES - 1), 0], "one update is done meanwhile, and never two"
    kinds = [message for message in coordinator.link.sent if isinstance(message, BatchRequest | PolicyPublished)]
    for place, message in enumerate(kinds):
        if isinstance(message, BatchRequest):
            told = [one.policy.train_iter for one in kinds[:place] if isinstance(one, PolicyPublished)]
            assert message.train_iter - max(told) <= 1, "what is asked for is at most one policy behind"
    assert coordinator.in_file().ref == coordinator.published[-1]
    said = log_of(coordinator).count("policy of iteration 1 cannot be written: [Errno 28] No space left on device")
    assert said == refuses
