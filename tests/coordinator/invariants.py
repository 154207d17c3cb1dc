"""What has to hold after every turn of the coordinator, whoever has died so far."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import msgspec

from remuda.coordinator import effects as fx
from remuda.coordinator.experiment.experiment import Experiment
from remuda.logbook.episode_reports import EvaluationReport
from remuda.tests.coordinator.simulation import CollectorWork, World
from remuda.training.effects import (
    Emit,
    LogLine,
    RecordCheckpoint,
    RecordReward,
    WriteLeague,
    WriteProgress,
    WriteTimers,
)
from remuda.training.run_snapshot import ExperimentSnapshot, FinishedRun
from remuda.wire.messages import OVER, ExperimentState, IndexedChunk, PolicyRef

ORDER: dict[str, int] = {"queued": 0, "starting": 1, "running": 2, "stopping": 3, **dict.fromkeys(OVER, 4)}


@dataclass
class Seen:
    """How far one experiment was when it was looked at last."""

    state: ExperimentState = "queued"
    counted: tuple[int, ...] = (0, 0, 0, 0, 0, 0, 0)
    policy: PolicyRef = field(default_factory=PolicyRef)
    epoch: int = 0
    train_iter: int = 0
    crashes: int = 0
    granted: dict[int, int] = field(default_factory=dict[int, int])
    rows: list[int] = field(default_factory=list[int])
    """Epochs of progress.txt."""
    row_env_step: int = -1
    evaluated: int = -1
    """The last evaluation that was shown, by its update."""
    best: float | None = None
    """The largest reward that was recorded."""
    records: set[int] = field(default_factory=set[int])
    chunk_files: dict[bytes, str] = field(default_factory=dict[bytes, str])
    over: fx.CloseRun | None = None
    last: ExperimentSnapshot | None = None
    """What it knew when it was over."""


class Invariants:
    """Watches a World; raises AssertionError at the first step after which something does not hold."""

    def __init__(self, world: World) -> None:
        self.checks = 0
        self._world = world
        self._seen: defaultdict[str, Seen] = defaultdict(Seen)
        world.check, world.noted = self.check, self.note

    # --- what is done to disk and logs ---

    def note(self, effect: fx.DiskEffect) -> None:
        """Progress goes on row by row, the best is the best, and a run that is over is not told of."""
        if isinstance(effect, LogLine):
            return
        seen = self._seen[effect.experiment]
        assert seen.over is None or isinstance(effect, fx.DeleteChunks), f"{effect} after the run's end"
        match effect:
            case WriteProgress():
                assert effect.row.epoch == len(seen.rows), "a row of progress came twice, or is missing"
                assert effect.row.env_step >= seen.row_env_step, "progress goes back"
                seen.rows.append(effect.row.epoch)
                seen.row_env_step = effect.row.env_step
            case RecordCheckpoint():
                seen.records.add(effect.record.train_iter)
            case RecordReward():
                assert effect.best == (seen.best is None or effect.reward > seen.best), "not the best"
                seen.best = effect.reward if effect.best else seen.best
            case fx.DeleteChunks():
                live = self._live_files(self._experiment(effect.experiment), seen)
                assert not live & set(effect.files), "a live payload is deleted"
            case fx.CloseRun():
                assert effect.keep <= self._world.disk, "a payload the index refers to was deleted"
                seen.over = effect
            case Emit(report=EvaluationReport() as report):
                assert report.train_iter > seen.evaluated, "a point of the curve of evaluations came twice"
                seen.evaluated = report.train_iter
            case fx.MarkRecoverable() | Emit() | fx.RewindCurves() | WriteTimers() | WriteLeague():
                pass

    # --- after every turn ---

    def check(self) -> None:
        """Everything, now."""
        self.checks += 1
        held = self._leases_of_workers()
        for experiment in self._world.coordinator.experiments:
            snapshot = None
            if isinstance(experiment, Experiment):
                snapshot = self._memory(experiment, self._seen[experiment.identity.id])
                leases = snapshot.leases.leases
                for holder in (lease.holder for lease in leases if not lease.over):
                    assert held.pop(holder.lease, None) == holder.worker, f"{holder.lease} is not {holder.worker}'s"
            if not self._world.waits_for(experiment.identity.id):
                self._check_journaled(experiment, snapshot)
        assert not held, f"leases {held} belong to no experiment"

    def _check_journaled(self, experiment: Experiment | FinishedRun, now: ExperimentSnapshot | None) -> None:
        """What the journal has yet to take nobody was told of: of a run whose disk lags behind, nothing is promised."""
        id, seen = experiment.identity.id, self._seen[experiment.identity.id]
        snapshot = self._memory(experiment, seen) if now is None else now
        self._counts_exactly(id, seen, snapshot)
        self._never_goes_back(seen, snapshot)
        self._keeps_its_promises(seen, snapshot)
        if isinstance(experiment, Experiment):
            self._matches_the_journal(experiment, seen)
        else:
            assert not [lease for lease in snapshot.leases.leases if not lease.over]
            self._shows_how_it_ended(experiment, snapshot)
        seen.crashes = self._world.crashes

    def _leases_of_workers(self) -> dict[int, str]:
        """Who holds which lease, as the registry has it: nobody shares one."""
        held = [(worker.lease, worker.uuid) for worker in self._world.coordinator.registry if worker.lease]
        claimed = Counter(worker.lease for worker in self._world.workers.values() if worker.alive and worker.lease)
        assert len(dict(held)) == len(held), "two workers hold one lease"
        assert max(claimed.values(), default=1) == 1, "two workers believe they hold one lease"
        return dict(held)

    def _counts_exactly(self, id: str, seen: Seen, snapshot: ExperimentSnapshot) -> None:
        """env_step is what was collected, to the step; nothing that was counted is forgotten."""
        ledger = snapshot.replay.ledger
        assert ledger.env_steps == self._world.unique_env_steps(id), "env_step is not what was collected"
        counted = (
            ledger.env_steps, ledger.rows, ledger.episodes, ledger.chunks, ledger.repeated, ledger.refused,
            ledger.lost_collectors,
        )  # fmt: skip
        assert all(now >= before for now, before in zip(counted, seen.counted, strict=True)), "a counter falls"
        seen.counted = counted

    def _never_goes_back(self, seen: Seen, snapshot: ExperimentSnapshot) -> None:
        flow = snapshot.flow
        assert ORDER[snapshot.state] >= ORDER[seen.state], f"{snapshot.state} after {seen.state}"
        assert snapshot.state == seen.state or seen.state not in OVER, f"{snapshot.state} after {seen.state}"
        assert flow.policy >= seen.policy, "the policy goes back"
        assert flow.epoch >= seen.epoch, "the epoch goes back"
        assert flow.policy.epoch <= flow.epoch, "a policy of a learner to come"
        if flow.epoch == seen.epoch and self._world.crashes == seen.crashes:
            assert flow.train_iter >= seen.train_iter, "train_iter falls under one learner"
        seen.state, seen.policy = snapshot.state, flow.policy
        seen.epoch, seen.train_iter = flow.epoch, flow.train_iter

    def _keeps_its_promises(self, seen: Seen, snapshot: ExperimentSnapshot) -> None:
        """Credit never falls, nobody was told of more than is known here, and the best stays the best."""
        granted = {account.lease: account.granted for account in snapshot.flow.accounts}
        for lease, steps in granted.items():
            assert steps >= seen.granted.get(lease, 0), f"the credit of lease {lease} falls"
        seen.granted = granted
        for worker in self._world.workers.values():
            if isinstance(worker.work, CollectorWork) and worker.lease in granted:
                assert worker.work.credit <= granted[worker.lease], "a collector was promised more than is known"
        best = snapshot.dispatch.commander.best
        assert seen.best is None or (best is not None and best[1] >= seen.best), "the best is forgotten"
        seen.best = None if best is None else best[1]

    def _matches_the_journal(self, experiment: Experiment, seen: Seen) -> None:
        """After a crash it would find the very chunks that are live now, and each payload is still there."""
        journal = self._world.journal[experiment.identity.id]
        files = experiment.policies[0].replay.live_files()
        journaled = {self._file_of(chunk, seen) for chunk in journal.chunks.values()}
        assert journaled <= files, "the journal has chunks that are not live"
        assert files <= self._world.disk, "a payload the index refers to was deleted"
        rows = {chunk for chunk in files - journaled if self._is_live(experiment, chunk)}
        assert not rows, f"the journal lacks {rows}"

    def _shows_how_it_ended(self, run: FinishedRun, snapshot: ExperimentSnapshot) -> None:
        """Of what is over, status alone is left, and that is what the journal says."""
        shown, ledger = run.status(self._world.now_s), snapshot.replay.ledger
        assert (shown.state, shown.reason) == (snapshot.state, snapshot.reason)
        assert (shown.env_step, shown.episode) == (ledger.env_steps, ledger.episodes)
        assert shown.state in OVER

    def _memory(self, experiment: Experiment | FinishedRun, seen: Seen) -> ExperimentSnapshot:
        if isinstance(experiment, Experiment):
            now_s = self._world.now_s
            return experiment.snapshot(now_s).with_rows(experiment.rows(now_s))
        if seen.last is None:
            seen.last = self._world.journal[experiment.identity.id].recovered().snapshot.experiment
        return seen.last

    def _live_files(self, experiment: Experiment | FinishedRun, seen: Seen) -> frozenset[str]:
        if isinstance(experiment, Experiment):
            return experiment.policies[0].replay.live_files()
        journal = self._world.journal[experiment.identity.id]
        return frozenset(self._file_of(chunk, seen) for chunk in journal.chunks.values())

    def _is_live(self, experiment: Experiment, file: str) -> bool:
        """A file that is only kept for a learner that has not loaded it yet is not."""
        index = experiment.policies[0].replay.index
        return any(chunk.meta.file == file for chunk in index._chunks)  # pyright: ignore[reportPrivateUsage]

    def _file_of(self, encoded: bytes, seen: Seen) -> str:
        if encoded not in seen.chunk_files:
            seen.chunk_files[encoded] = msgspec.msgpack.decode(encoded, type=IndexedChunk).meta.file
        return seen.chunk_files[encoded]

    def _experiment(self, id: str) -> Experiment | FinishedRun:
        return next(each for each in self._world.coordinator.experiments if each.identity.id == id)

    # --- at the end ---

    def finish(self) -> None:
        """Every experiment is over: all of it is accounted for, and everybody is free."""
        self.check()
        for experiment in self._world.coordinator.experiments:
            assert isinstance(experiment, FinishedRun), "what is over holds nothing any more"
            assert experiment.last.env_step == self._world.unique_env_steps(experiment.identity.id)
            self._check_evaluated(self._memory(experiment, self._seen[experiment.identity.id]))
        assert all(not worker.lease for worker in self._world.coordinator.registry)

    def _check_evaluated(self, snapshot: ExperimentSnapshot) -> None:
        """The last checkpoint is, whoever died in the end: others come, or the same one again."""
        commander = snapshot.dispatch.commander
        if snapshot.state == "failed" or commander.last_record is None or commander.skip_final_evaluation:
            return
        assert commander.end is not None
        # The turn that ended the run may have seen the learner's death, and died before it said so.
        assert commander.final_saved or self._world.crashes or self._world.logged("no learner is ready to save")
        evaluated = commander.evaluated_train_iter == commander.last_record.train_iter
        assert evaluated or commander.end[0] == "stop_value", "the last checkpoint is not evaluated"
