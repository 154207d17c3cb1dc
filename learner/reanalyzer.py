"""A reanalyzer's lease: reads chunks, recomputes columns with the target network, writes and announces results."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from remuda.buffer.chunk import ChunkError, Column, Columns, reanalysis_name
from remuda.buffer.ring import ColumnRing
from remuda.config.schema import ExperimentConfig
from remuda.environments.assignment import configs_of_policies
from remuda.environments.make import check_environment
from remuda.logbook.timers import Timers
from remuda.policy.algorithms import make_reanalyzer, reanalyzed_by_workers
from remuda.policy.base import Reanalyzer
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.wire.messages import (
    AnyMessage,
    Assign,
    NotReanalyzed,
    PolicyRef,
    Reanalysis,
    ReanalysisId,
    Reanalyze,
    Reanalyzed,
    shortened,
)
from remuda.worker.affinity import bind_cores
from remuda.worker.lease_log import LeaseLog
from remuda.worker.link import Link, WorkerIdentity
from remuda.worker.stores.ports import NotNowError, RunStores

ROWS_AT_ONCE = 256
"""Rows per computation: enough for a processor, and few enough for visible progress."""


def recompute(
    columns: Mapping[str, Column], names: Sequence[str], reanalyzer: Reanalyzer, *, progress: Callable[[int], None]
) -> Columns:
    """Recompute the columns `names` of all rows of a chunk, each whole, from the columns of the payload file.
    `progress` gets the numbers of finished rows. Raises ValueError if the algorithm returns other columns, or of
    another shape or dtype."""
    rows = len(columns[names[0]])
    ring = ColumnRing(max(rows, 1))
    ring.write(0, dict(columns))
    parts: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for start in range(0, rows, ROWS_AT_ONCE):
        stored = ring.gather(np.arange(start, min(start + ROWS_AT_ONCE, rows)))
        found = reanalyzer.compute(stored)
        for name in names:
            if name not in found or found[name].shape != stored[name].shape or found[name].dtype != stored[name].dtype:
                raise ValueError(f"Reanalyzer.compute returned no column {name!r} of the shape and dtype that it had")
            parts[name].append(found[name])
        progress(len(stored[names[0]]))
    return {name: np.concatenate(part) for name, part in parts.items()}


@dataclass
class _PolicyParts:
    """Parts of a policy with columns to compute again."""

    columns: Sequence[str]
    reanalyzer: Reanalyzer
    stores: RunStores
    target: PolicyRef | None = None
    """Target network of the loaded weights."""
    newest_request: int = 0

    @staticmethod
    def of(config: ExperimentConfig, stores: RunStores) -> _PolicyParts | None:
        """Make the parts; None for a policy without such columns."""
        declared = reanalyzed_by_workers(config)
        if declared is None:
            return None
        observation, action = check_environment(config)
        specs = ObservationSpec.of(observation), ActionSpec.of(action)
        return _PolicyParts(declared.columns, make_reanalyzer(config, *specs, device=config.reanalyzer.device), stores)


class ReanalyzerWork:
    """Computes for all policies of an experiment, chunk by chunk, in the order of requests."""

    warnings: Sequence[str] = ()
    """Always empty: warnings go to its own log."""
    unstored = False
    """Always False: other reanalyzers recompute lost results."""

    def __init__(self, assign: Assign, identity: WorkerIdentity, link: Link, stores: RunStores) -> None:
        config = ExperimentConfig.model_validate_json(assign.config_json)
        self.timers = Timers()
        self._assign = assign
        self._identity = identity
        self._link = link
        self._log = LeaseLog("reanalyzer", identity, link, stores)
        try:
            self._log.say(bind_cores(config, "reanalyzer", assign.index))
            each = zip(configs_of_policies(config).values(), stores.of_policies, strict=True)
            made = enumerate(_PolicyParts.of(*own) for own in each)
            self._policies = {index: own for index, own in made if own is not None}
        except BaseException:
            self.close()
            raise
        self._asked: deque[Reanalyze] = deque()
        self._at_hand: tuple[Reanalyze, Reanalysis, Columns] | None = None
        """Reanalysis and columns that are not in data/ yet."""
        self.drained = False
        """True after Drain: between two steps only a result that the disk refuses is unfinished."""
        self._totals = _Totals(config.log.buffer_interval_s)
        names = ", ".join(dict.fromkeys(name for own in self._policies.values() for name in own.columns))
        self._log.say(f"reanalyzer {identity.uuid} (index {assign.index}) of {assign.name}: computes {names}")

    def handle(self, message: AnyMessage) -> None:
        """Chunks to compute again; after a break the coordinator repeats itself."""
        if not isinstance(message, Reanalyze):
            return
        own = self._policies[message.policy_index]
        if message.request > own.newest_request:
            own.newest_request = message.request
            self._asked.append(message)

    def step(self) -> bool:
        """Recompute one requested chunk, if any."""
        if self._at_hand is not None:
            return self._announce(*self._at_hand)
        if not self._asked:
            self._link.activity("waiting", "waiting for chunks")
            return False
        try:
            self._reanalyze(self._asked[0])
        except NotNowError as error:
            self._log.waits(error, f"{self._asked[0].chunk.meta.file} ")
            return False
        self._asked.popleft()
        return self._at_hand is None

    def drain(self) -> None:
        """Drop requests that have not begun: other reanalyzers may compute them."""
        self.drained = True
        self._asked.clear()

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    def _reanalyze(self, asked: Reanalyze) -> None:
        meta, own = asked.chunk.meta, self._policies[asked.policy_index]
        self._refresh_target(own, asked.target)
        assert own.target is not None
        self._link.activity("working", "computing again")
        started_s = time.monotonic()
        try:
            with self.timers("read chunk"):
                columns = own.stores.payloads.read(meta)
        except ChunkError as error:
            if error.fault != "missing":  # a chunk that is gone was evicted meanwhile
                self._log.warn(f"payload {meta.file} is left out: {error}")
            reason = shortened(str(error))
            self._link.send(NotReanalyzed(self._assign.lease, asked.request, reason, asked.policy_index))
            return
        with self.timers("compute again"):
            found = recompute(columns, own.columns, own.reanalyzer, progress=self._link.progress)
        id = ReanalysisId(self._identity.uuid, self._identity.incarnation, self._identity.next_sequence())
        reanalysis = Reanalysis(
            id=id,
            file=reanalysis_name(id),
            chunk=meta.chunk,
            first_row=asked.chunk.first_row,
            rows=meta.rows,
            target=own.target,
            payload_bytes=0,
            checksum=0,
            compute_s=time.monotonic() - started_s,
        )
        self._announce(asked, reanalysis, found)

    def _refresh_target(self, own: _PolicyParts, asked: PolicyRef) -> None:
        """Load the newest target network, if the loaded network is older than requested."""
        if own.target is not None and own.target >= asked:
            return
        with self.timers("load target"), self._link.during("preparing", "loading the target network"):
            loaded = own.stores.targets.load(newer_than=own.target)
        if loaded is not None:
            own.reanalyzer.load_state(loaded.state)
            own.target = loaded.ref

    def _announce(self, asked: Reanalyze, reanalysis: Reanalysis, found: Columns) -> bool:
        """Put the result into data/ and announce it. Returns False if this is not possible now: then the result waits,
        and nothing else is computed."""
        try:
            with self.timers("write"):
                written = self._policies[asked.policy_index].stores.payloads.write(reanalysis, found)
        except NotNowError as error:
            self._at_hand = asked, reanalysis, found
            self._log.waits(error, f"reanalysis {reanalysis.file} ")
            return False
        self._at_hand = None
        self._log.goes_on()
        self._link.send(Reanalyzed(self._assign.lease, asked.request, written, asked.policy_index))
        news = self._totals.add(written, time.monotonic())
        if news is not None:
            self._log.say(news)
        return True


class _Totals:
    """Work since the last log line. Reads no clock."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._reported_s: float | None = None
        self._chunks = self._rows = 0
        self._compute_s = 0.0

    def add(self, reanalysis: Reanalysis, now_s: float) -> str | None:
        """Count a chunk; returns a line when it is due, the first with the first chunk."""
        self._chunks += 1
        self._rows += reanalysis.rows
        self._compute_s += reanalysis.compute_s
        if self._reported_s is not None and now_s - self._reported_s < self._interval_s:
            return None
        time_ms = 1e3 * self._compute_s / self._chunks
        text = (
            f"computed {self._rows} rows of {self._chunks} chunks again, the newest with the target network of "
            f"iteration {reanalysis.target.train_iter}: reanalyze_time_ms {time_ms:.1f} per chunk"
        )
        self._reported_s, self._chunks, self._rows, self._compute_s = now_s, 0, 0, 0.0
        return text
