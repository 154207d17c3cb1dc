"""Rows of progress.txt: when due, and their content."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence

from remuda.config.schema import ExperimentConfig
from remuda.logbook.progress import ProgressRow
from remuda.logbook.statistics import merged, weighted_means
from remuda.policy.algorithms import declaration
from remuda.training.commander.curriculum import Curriculum
from remuda.training.commander.evaluation import Awaited, boundary_at, due_env_step, next_boundary
from remuda.training.journal_entry import ResumePoint
from remuda.training.snapshot import EpisodesSnapshot, EvaluationResult, NewEpisodes, ProgressSnapshot, RowSnapshot
from remuda.wire.messages import CheckpointRecord, ChunkMeta, Counters


class ProgressRows:
    """Collects episodes, evaluations and losses between two rows.

    A row stands at a multiple of `progress_interval_env_steps`; if a chunk crosses several, at the last multiple. The
    row shows the counters at that multiple, and the newest evaluation due by then. The row waits for that evaluation,
    and later rows wait for the row. If the evaluation cannot begin for lack of updates, the row waits at most until the
    next multiple. Row 0 shows the initial policy. Without evaluations, row 0 is left out.
    """

    def __init__(
        self, config: ExperimentConfig, resumed: ResumePoint | None = None, curriculum: Curriculum | None = None
    ) -> None:
        """`curriculum` is the commander's; None for a run with a single task."""
        self._curriculum = curriculum or Curriculum(config)
        self._interval = config.log.progress_interval_env_steps
        self._budget_env_steps = config.stop.max_env_steps
        declared = declaration(config)
        self._columns, self._collected = declared.loss_columns, declared.collected
        self._evaluates = config.evaluator.episodes > 0
        self._evaluation_interval = config.evaluator.interval_env_steps
        self._newest: deque[tuple[float, int]] = deque(maxlen=config.evaluator.window_episodes)
        self._next_env_step = self._interval
        self._epoch = 0
        """Step of the next written row."""
        self._reached_env_step = -1
        """Environment step of the newest row, written or not."""
        self._ended: list[EpisodesSnapshot] = []
        """Episodes and means over steps since the last written row, by chunk, with the waiting rows between them."""
        self._waiting: list[int] = []
        """Positions of these rows in `_ended`."""
        self._returned: int | None = None
        """Number of entries returned by `news`; None if earlier results of `news` are void."""
        self._test: EvaluationResult | None = None
        """The newest evaluation without a row."""
        self._metrics: Mapping[str, float] = {}
        self._given: list[ProgressRow] = []
        """Rows since the last call of `news`."""
        if resumed is not None and (resumed.counters.env_step > 0 or resumed.progress_rows > 0):
            self._epoch = max(resumed.progress_rows, int(self._evaluates))
            self._reached_env_step = resumed.counters.env_step
            self._next_env_step = next_boundary(resumed.counters.env_step, self._interval)
        elif self._evaluates:
            self._reach(0, Counters() if resumed is None else resumed.counters)

    def chunk(self, meta: ChunkMeta) -> None:
        """Add the episodes of a counted chunk, and the means over its steps."""
        if meta.episode_returns or meta.metrics:
            returns, lengths, info = meta.episode_returns, meta.episode_lengths, meta.episode_info
            self._ended.append(EpisodesSnapshot(returns, lengths, info, metrics=meta.metrics))
        if not self._evaluates and meta.task == self._curriculum.number:
            self._newest.extend(zip(meta.episode_returns, meta.episode_lengths, strict=True))

    def evaluated_by_training(self, record: CheckpointRecord) -> EvaluationResult | None:
        """Return the result of a checkpoint by the newest training episodes; None with too few."""
        if len(self._newest) < (self._newest.maxlen or 1):
            return None
        returns, lengths = zip(*self._newest, strict=True)
        return EvaluationResult(record, returns, lengths, duration_s=0.0, task=self._curriculum.task)

    def begin_task(self) -> None:
        """Begin another task: earlier training episodes no longer count."""
        self._newest.clear()

    def evaluated(self, result: EvaluationResult) -> None:
        """Take the newest evaluation, for the row of its checkpoint or the next row."""
        self._test = result

    def learned(self, metrics: Mapping[str, float]) -> None:
        """Take the newest metrics of the algorithm, shown until replaced."""
        self._metrics = dict(metrics)

    def is_due(self, counters: Counters) -> bool:
        """True if a row may be complete now: a row waits for its evaluation, or the next step is reached."""
        return bool(self._waiting) or self._next_env_step <= counters.env_step < self._budget_env_steps

    def due(self, counters: Counters, awaited: Awaited | None = None) -> list[ProgressRow]:
        """Return the complete rows. `awaited` is the first outstanding evaluation."""
        if self._next_env_step <= counters.env_step < self._budget_env_steps:
            self._reach(boundary_at(counters.env_step, self._interval), counters)
        rows: list[ProgressRow] = []
        while self._waiting and not self._waits(self._first().env_step, counters, awaited):
            rows.append(self._give(counters, self._test_due(self._first().env_step)))
        return rows

    def last(self, counters: Counters) -> list[ProgressRow]:
        """Return the remaining rows of a finished run, with a last row at its end unless a row already stands at that
        step.

        With a used-up budget, the last row stands at the budget and shows the evaluation of the last checkpoint.
        """
        rows: list[ProgressRow] = []
        while self._waiting:
            test, reached = self._test, self._first().counters.env_step
            rows.append(self._give(counters, None if test is None or test.record.env_step > reached else test))
        if counters.env_step > self._reached_env_step or self._test is not None:
            self._reach(min(counters.env_step, self._budget_env_steps), counters)
            rows.append(self._give(counters, self._test))
        return rows

    def _reach(self, env_step: int, counters: Counters) -> None:
        """Add a row at this step with the present counters."""
        self._waiting.append(len(self._ended))
        self._ended.append(EpisodesSnapshot([], [], row=self._snapshot_of(env_step, counters)))
        self._reached_env_step = counters.env_step
        self._next_env_step = next_boundary(counters.env_step, self._interval)

    def _snapshot_of(self, env_step: int, counters: Counters) -> RowSnapshot:
        return RowSnapshot(env_step, counters, self._metrics, self._curriculum.shown)

    def _waits(self, env_step: int, counters: Counters, awaited: Awaited | None) -> bool:
        """True if the row at this step waits for an evaluation."""
        if awaited is None or awaited.due_env_step > env_step:
            return False
        return awaited.begun or counters.env_step < env_step + self._interval

    def _test_due(self, env_step: int) -> EvaluationResult | None:
        """Return the newest evaluation without a row, if due by this step."""
        test = self._test
        if test is None:
            return None
        record = test.record
        return test if due_env_step(record.env_step, record.train_iter, self._evaluation_interval) <= env_step else None

    def _first(self) -> RowSnapshot:
        row = self._ended[self._waiting[0]].row
        assert row is not None, "a position among those that wait is one of a row"
        return row

    def _give(self, counters: Counters, test: EvaluationResult | None) -> ProgressRow:
        """Write the first waiting row, with this evaluation."""
        row, position = self._first(), self._waiting[0]
        if row.counters.env_step == counters.env_step:  # nothing was collected since: what was learned belongs to it
            row = self._snapshot_of(row.env_step, counters)
        ended, self._ended, self._returned = self._ended[:position], self._ended[position + 1 :], None
        self._waiting = [later - position - 1 for later in self._waiting[1:]]
        self._test = None if test is self._test else self._test
        shown = self._row(row, ended, test)
        self._epoch += 1
        self._given.append(shown)
        return shown

    def _row(self, row: RowSnapshot, ended: Sequence[EpisodesSnapshot], test: EvaluationResult | None) -> ProgressRow:
        metrics, collected = row.metrics, weighted_means(chunk.metrics for chunk in ended)
        return ProgressRow(
            epoch=self._epoch,
            env_step=row.env_step,
            returns=[value for chunk in ended for value in chunk.returns],
            lengths=[value for chunk in ended for value in chunk.lengths],
            info=merged(chunk.info for chunk in ended),
            collected={name: collected.get(name, math.nan) for name in self._collected},
            test_returns=() if test is None else test.returns,
            test_lengths=() if test is None else test.lengths,
            test_info={} if test is None else test.info,
            test_env_step=None if test is None else test.record.env_step,
            train_iter=row.counters.train_iter,
            episode=row.counters.episode,
            losses={column: metrics[metric] for column, metric in self._columns.items() if metric in metrics},
            metrics=metrics,
            wall_s=row.counters.wall_s,
            evaluates=self._evaluates,
            task=row.task,
        )

    def news(self) -> NewEpisodes | None:
        """Return the training episodes since the last call, with the waiting rows between them; None without changes.
        Rows written in between are left out."""
        self._given = []
        returned, self._returned = self._returned, len(self._ended)
        return None if returned == self._returned else NewEpisodes(returned or 0, self._ended[returned or 0 :])

    def snapshot(self) -> ProgressSnapshot:
        """Return the state for a restart, with rows written since the last call of `news`. Training episodes and
        waiting rows come from `news`."""
        return ProgressSnapshot(
            next_env_step=self._next_env_step,
            epoch=self._epoch,
            shown_env_step=self._reached_env_step,
            returns=[],
            lengths=[],
            test=self._test,
            metrics=dict(self._metrics),
            newest=list(self._newest),
            given=list(self._given),
        )

    def restore(self, snapshot: ProgressSnapshot) -> None:
        """Continue from a snapshot."""
        self._next_env_step, self._epoch = max(snapshot.next_env_step, self._interval), snapshot.epoch
        self._reached_env_step = snapshot.shown_env_step
        self._ended = [EpisodesSnapshot(snapshot.returns, snapshot.lengths, snapshot.info), *snapshot.ended]
        self._waiting = [position for position, chunk in enumerate(self._ended) if chunk.row is not None]
        self._returned = None
        self._test = snapshot.test
        self._metrics = snapshot.metrics
        self._newest.extend(snapshot.newest)
