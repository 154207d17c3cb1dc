"""A learner's lease: batches in, policies out, checkpoints when asked."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, cast

from remuda.buffer.chunk import ChunkError, Columns
from remuda.buffer.ring import ColumnRing
from remuda.config.schema import ExperimentConfig
from remuda.environments.assignment import config_of_policy
from remuda.environments.make import check_environment
from remuda.learner.callbacks import LeaseCallbacks
from remuda.learner.checkpoint import continue_from, new_algorithm, take_weights
from remuda.learner.demonstrations import imitate
from remuda.learner.outputs import LearnerOutputs
from remuda.learner.precision import choose_precision
from remuda.learner.prefetch import Prefetch
from remuda.learner.publisher import Publisher, TargetPublisher, taken_over
from remuda.learner.role import PUBLISH_DEADLINE_S, LearnerRole
from remuda.logbook.role_logbooks import learner_logbook
from remuda.logbook.streams import end_printed, log_printed
from remuda.logbook.timers import Timers
from remuda.policy.algorithms import declaration, reanalyzed_by_workers
from remuda.policy.base import ReanalyzingAlgorithm
from remuda.policy.files.policy_file import publish
from remuda.policy.row_plan import RowPlan, row_plan
from remuda.storage.checkpoint_index import unlisted
from remuda.storage.fence import Fence, SupersededError
from remuda.storage.run_folder import RunFolder, target_file
from remuda.wire.messages import (
    Assign,
    ChunkUnreadable,
    IndexedChunk,
    PolicyPublished,
    PolicyRef,
    Reanalysis,
    TargetPublished,
    shortened,
)
from remuda.worker.affinity import bind_cores
from remuda.worker.link import Link
from remuda.worker.stores.ports import RunStores

if TYPE_CHECKING:
    from remuda.learner.ranks.leading import LearnerRanks, Recruits


class NotPublishedError(Exception):
    """The policy to start from is not in the policy file: the disk refuses."""


class LearnerWork(LearnerRole):
    """Learns for an experiment in a worker process. Training runs in this thread; publishing and network have separate
    threads."""

    unstored = False
    """Always False: another learner learns again from the last checkpoint."""

    def __init__(self, assign: Assign, link: Link, stores: RunStores, recruits: Recruits | None = None) -> None:
        """`recruits` returns the other ranks if these run already; with None the lease starts ranks."""
        config = config_of_policy(ExperimentConfig.model_validate_json(assign.config_json), assign.policy)
        self.timers = Timers()
        self._config = config
        self._assign = assign
        self._link = link
        self._folder = stores.folder
        self._payloads = stores.payloads
        self._policy_file = stores.folder.policy / assign.policy_file
        binding = bind_cores(config, "learner", assign.index)
        self._algorithm = new_algorithm(config, *check_environment(config))
        self._fence = _fence(self._folder, assign.epoch)
        self.warnings: Sequence[str] = ()
        """Warnings about the loaded checkpoint; the learner's log has them too."""
        self._warnings: SimpleQueue[str] = SimpleQueue()
        """Lines from the publishing thread; only this thread writes the log."""
        self._logged: PolicyRef | None = None
        """The newest published version in the log."""
        self.drained = False
        """True after `drain`: nothing is left to be saved or published."""
        self._opened = ExitStack()
        """Closed with the lease, or at once if the lease cannot begin."""
        try:
            train_iter = self._begin()
            self._log_info(binding)
            self._start(train_iter, recruits)
            self._target: TargetPublisher | None = None
            if reanalyzed_by_workers(config) is not None:
                target = self._new_publisher(target_file(assign.policy_file), TargetPublished)
                self._target = TargetPublisher(cast("ReanalyzingAlgorithm", self._algorithm), target)
            self._load(assign.replay)
            self._prefetch.rewrite(assign.reanalyses)
            self._publish_first(train_iter)
            self._offer_target()
        except BaseException:
            self.close()
            raise
        self._reported_iters = train_iter

    def step(self) -> bool:
        """Make one update, if a batch is available."""
        trained = super().step()
        if self._ranks is not None:
            if not trained:
                self._ranks.wait()
            elif found := self._ranks.take_verdict():
                self._log.say("learner", found.text, level="info" if found.faster else "warning")
        return trained

    def _trained(self) -> None:
        self._link.activity("working", self._training_text)
        self._link.progress(self._loop.train_iter - self._reported_iters)
        self._reported_iters = self._loop.train_iter
        self._offer_target()

    def drain(self) -> None:
        """Publish the last weights and let go."""
        self._training = False
        self.drained = True
        self._link.activity("saving", "publishing the last policy")
        self._publisher.flush(PUBLISH_DEADLINE_S)  # what is under way may be the last
        last = self._publisher.last
        if last is None or last.train_iter != self._loop.train_iter:
            self._loop.require_finite()
            self._publisher.offer(self._algorithm.published_state(), self._loop.train_iter)
        self._publisher.flush(PUBLISH_DEADLINE_S)
        self._log_warnings()
        self._log_published()
        if self._prefetch.rewritten_rows:
            self._log_info(f"took over {self._prefetch.rewritten_rows} rows that were computed again")

    def close(self) -> None:
        """End the other ranks and the publishing threads, and close the log."""
        self._opened.close()

    def _begin(self) -> int:
        """Continue from the lease's checkpoint, if any; return the train_iter of the start.

        The log is opened afterwards: points of curves after the checkpoint, from an earlier learner, are cut off.
        """
        state, warnings, path, start = None, list[str](), self._folder.ckpt, self._assign.checkpoint
        if start is not None:
            self._link.activity("preparing", f"loading {start.file}")
            path /= start.file
            state, warnings = continue_from(path, self._algorithm, self._config, recorded=start.sha256)
        for left in unlisted(self._folder.ckpt, beyond=-1 if state is None else state.progress.counters.train_iter):
            self._fence.remove(left)
        self._log = learner_logbook(self._folder, resumed=None if state is None else state.progress.counters)
        log_printed(partial(self._log.say, "learner"))
        for close in (self._log.close, end_printed, self._log_warnings):
            self._opened.callback(close)
        self._outputs = LearnerOutputs(self._folder, self._config, self._log, replace=self._fence.replacing)
        self._outputs.begin(self._algorithm)
        if state is None:
            weights = self._config.learner.initialize_from
            if weights is not None:
                take_weights(Path(weights), self._algorithm)
                self._log_info(f"loaded weights {weights}")
            if (line := imitate(self._config, self._algorithm)) is not None:
                self._log_info(line)
            return 0
        self.warnings = warnings
        self._outputs.loaded(path, warnings)
        return state.progress.counters.train_iter

    def _start(self, train_iter: int, recruits: Recruits | None) -> None:
        """Make the parts of the role, with all ranks."""
        config, assign, plan = self._config, self._assign, row_plan(self._config)
        trial = choose_precision(config, self._algorithm, timed=config.learner.ranks == 1, say=self._log_info)
        self._ranks = self._start_ranks(recruits)
        prefetch = self._new_prefetch(plan)
        callbacks = LeaseCallbacks.of(assign, config, ckpt=self._folder.ckpt, send=self._link.send)
        if callbacks.host.names:
            self._log_info(callbacks.host.log_line)
        super().__init__(
            config,
            plan,
            self._algorithm,
            lease=assign.lease,
            epoch=assign.epoch,
            link=self._link,
            timers=self.timers,
            outputs=self._outputs,
            prefetch=prefetch,
            publisher=self._new_publisher(self._policy_file.name, PolicyPublished),
            callbacks=callbacks,
            changes=assign.changes,
            train_iter=train_iter,
            learn=trial if self._ranks is None else self._ranks.learn,
            adjust=None if self._ranks is None else self._ranks.adjust,
        )

    def _new_prefetch(self, plan: RowPlan) -> Prefetch:
        """Make the prefetch of this lease."""
        return Prefetch(
            lease=self._assign.lease,
            batches=plan.batches_per_request,
            batch_size=plan.rows_per_update,
            ring=ColumnRing(plan.capacity),
            requests_in_flight=plan.requests_in_flight,
            read=lambda chunk: self._payloads.read(chunk.meta),
            unreadable=self._report_unreadable,
            read_again=self._read_again,
            left_out=self._leave_out,
        )

    def _new_publisher(self, file: str, news: type[PolicyPublished | TargetPublished]) -> Publisher:
        """Make the publisher of a file in policy/, which reports each version with `news`."""
        lease = self._assign.lease
        publisher = Publisher(
            self._folder.policy / file,
            self._assign.epoch,
            published=lambda ref: self._link.send(news(lease, ref)),
            say=self._warnings.put,
            write=partial(publish, replace=self._fence.replacing),
        )
        self._opened.callback(publisher.close)
        return publisher

    def _start_ranks(self, recruits: Recruits | None) -> LearnerRanks | None:
        """Start the other ranks, if any, with the algorithm in its present state."""
        if self._config.learner.ranks == 1:
            return None
        from remuda.learner.ranks.leading import LearnerRanks  # what a learner alone does not need
        from remuda.learner.ranks.processes import RankProcesses
        from remuda.learner.ranks.trial import RanksTrial

        self._link.activity("preparing", f"starting {self._config.learner.ranks - 1} learner ranks")
        trial = RanksTrial(self._config.learner.ranks)
        ranks = LearnerRanks(self._config, self._algorithm, recruits or RankProcesses, trial=trial)
        self._opened.callback(ranks.close)
        self._log_info(
            f"world_size {ranks.world_size}: each batch is split between this process, rank 0, and {ranks.describe()}"
        )
        return ranks

    def _load(self, replay: Sequence[IndexedChunk]) -> None:
        """Load all live chunks. It may take minutes; each file counts as progress, so this learner is not reported
        stuck."""
        self._link.activity("preparing", "loading replay")
        for chunk in replay:
            if self._ranks is not None:
                self._ranks.wait()
            self._prefetch.load([chunk])
            self._link.progress(1)

    def _offer_target(self) -> None:
        if self._target is not None and self._target.is_due:
            with self.timers("hand target network over"):
                self._target.offer()

    def _publish_first(self, train_iter: int) -> None:
        """Publish the first weights; no collector could begin without them."""
        self._publisher.offer(self._algorithm.published_state(), train_iter)
        self._publisher.flush(PUBLISH_DEADLINE_S)
        self._log_warnings()
        if self._publisher.last is None:
            raise NotPublishedError(
                f"the first policy could not be published in {self._policy_file}; the learner's log "
                f"({self._folder.learner_log}) says why"
            )
        self._log_published()

    def _read_again(self, reanalysis: Reanalysis) -> Columns:
        columns = self._payloads.read(reanalysis)
        declared = declaration(self._config).reanalyzed
        if declared is None or columns.keys() != set(declared.columns):
            raise ValueError(f"its columns are {sorted(columns)}, and those declared are {declared}")
        return columns

    def _leave_out(self, reanalysis: Reanalysis, error: Exception) -> None:
        """Log an unusable reanalysis. A missing file is normal: a newer reanalysis replaced the file, or the rows are
        evicted."""
        if not (isinstance(error, ChunkError) and error.fault == "missing"):
            self._log.say("learner", f"reanalysis {reanalysis.file} is left out: {error}", level="warning")

    def _report_unreadable(self, chunk: IndexedChunk, error: ChunkError) -> None:
        self._log.say("learner", f"payload {chunk.meta.file} is left out: {error}", level="warning")
        self._link.send(ChunkUnreadable(self._assign.lease, chunk.meta.file, shortened(str(error))))

    def _report(self) -> None:
        super()._report()
        self._log_published()

    def _log_published(self) -> None:
        last = self._publisher.last
        if last is not None and last != self._logged:
            self._logged = last
            self._log_info(
                f"published policy version {last.version} of iteration {last.train_iter} in {self._policy_file}"
            )

    def _log_warnings(self) -> None:
        while not self._warnings.empty():
            self._log.say("learner", self._warnings.get(), level="warning")

    def _log_info(self, text: str) -> None:
        self._log.say("learner", text)


def _fence(folder: RunFolder, epoch: int) -> Fence:
    """From now on no earlier learner of the run can put a policy, a checkpoint or a model in place."""
    try:
        return Fence((folder.policy, folder.ckpt, folder.model), epoch)
    except SupersededError as error:
        raise taken_over(error) from error
