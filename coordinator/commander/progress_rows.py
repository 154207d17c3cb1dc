"""When a row of progress.txt is due, and what has happened since the one before."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.commander.cadence import next_boundary
from remuda.coordinator.commander.evaluation import EvaluationResult
from remuda.coordinator.snapshot import EpisodesSnapshot, NewEpisodes, ProgressSnapshot, ResumePoint
from remuda.logbook.progress import ProgressRow
from remuda.logbook.rounds import Rounds
from remuda.logbook.spread import merged
from remuda.policy.algorithms import declaration
from remuda.wire.messages import CheckpointRecord, ChunkMeta, Counters


class ProgressRows:
    """Gathers episodes, evaluations and losses between two rows.

    Row 0 shows the first evaluation, that of the initial policy at env_step 0 whenever it was judged; then one row per
    multiple of `progress_interval_env_steps`, and one for a stretch that crosses several. Without evaluations there is
    no row 0.
    """

    def __init__(
        self, config: ExperimentConfig, resumed: ResumePoint | None = None, *, round_env_steps: int | None = None
    ) -> None:
        """`round_env_steps`: where collecting and learning take turns, the steps of a turn. The interval is rounded
        down to whole turns then, so that rows stand at its multiples."""
        self._interval = _interval_env_steps(config, round_env_steps)
        self._budget_env_steps = config.stop.max_env_steps
        self._columns = declaration(config).loss_columns
        self._evaluates = config.evaluator.episodes > 0
        self._newest: deque[tuple[float, int]] = deque(maxlen=config.evaluator.window_episodes)
        self._next_env_step = 0 if self._evaluates else self._interval
        self._epoch = 0
        self._shown_env_step = -1
        self._ended: list[EpisodesSnapshot] = []
        """Since the last row, by chunk."""
        self._told: int | None = None
        """How many of these `news` has told of; None where what it told before is void."""
        self._test: EvaluationResult | None = None
        self._metrics: Mapping[str, float] = {}
        self._given: list[ProgressRow] = []
        """Rows since `news` was last asked for."""
        if resumed is not None and (resumed.counters.env_step > 0 or resumed.progress_rows > 0):
            self._epoch = max(resumed.progress_rows, int(self._evaluates))
            self._shown_env_step = resumed.counters.env_step
            self._next_env_step = next_boundary(resumed.counters.env_step, self._interval)

    def chunk(self, meta: ChunkMeta) -> None:
        """Episodes that ended in a counted chunk."""
        if meta.episode_returns:
            self._ended.append(EpisodesSnapshot(meta.episode_returns, meta.episode_lengths, meta.episode_info))
        if not self._evaluates:
            self._newest.extend(zip(meta.episode_returns, meta.episode_lengths, strict=True))

    def judged_by_training(self, record: CheckpointRecord) -> EvaluationResult | None:
        """What the newest training episodes say of a checkpoint; None while there are too few."""
        if len(self._newest) < (self._newest.maxlen or 1):
            return None
        returns, lengths = zip(*self._newest, strict=True)
        return EvaluationResult(record, returns, lengths, duration_s=0.0)

    def evaluated(self, result: EvaluationResult) -> ProgressRow | None:
        """The newest evaluation; shown in the next row. That of the initial policy is a row of its own, the first."""
        if self._epoch == 0:
            return self._initial(result)
        self._test = result
        return None

    def learned(self, metrics: Mapping[str, float]) -> None:
        """The newest averages of what the algorithm monitors; shown until there are newer ones."""
        self._metrics = dict(metrics)

    @property
    def _losses(self) -> dict[str, float]:
        metrics = self._metrics
        return {column: metrics[metric] for column, metric in self._columns.items() if metric in metrics}

    def _initial(self, result: EvaluationResult) -> ProgressRow:
        """Row 0: how the policy did before training; what was collected meanwhile waits for the row after it."""
        env_step = 0 if result.record.train_iter == 0 else result.record.env_step
        self._epoch += 1
        self._shown_env_step = env_step
        self._next_env_step = next_boundary(env_step, self._interval)
        return self._give(
            ProgressRow(
                epoch=0,
                env_step=env_step,
                test_returns=result.returns,
                test_lengths=result.lengths,
                test_info=result.info,
                test_env_step=result.record.env_step,
                episode=result.record.episode,
                losses={},
                wall_s=result.record.wall_s,
            )
        )

    def _give(self, row: ProgressRow) -> ProgressRow:
        self._given.append(row)
        return row

    def due(self, counters: Counters, *, last: bool = False) -> ProgressRow | None:
        """The row that is due now, if any. The `last` row is due wherever the run ends, unless it stands already."""
        if not (self._has_news(counters.env_step) if last else self._is_due(counters.env_step)):
            return None
        test = self._test
        row = ProgressRow(
            epoch=self._epoch,
            env_step=counters.env_step,
            returns=[value for chunk in self._ended for value in chunk.returns],
            lengths=[value for chunk in self._ended for value in chunk.lengths],
            info=merged(chunk.info for chunk in self._ended),
            test_returns=() if test is None else test.returns,
            test_lengths=() if test is None else test.lengths,
            test_info={} if test is None else test.info,
            test_env_step=None if test is None else test.record.env_step,
            train_iter=counters.train_iter,
            episode=counters.episode,
            losses=self._losses,
            metrics=self._metrics,
            wall_s=counters.wall_s,
        )
        self._epoch += 1
        self._shown_env_step = counters.env_step
        self._next_env_step = next_boundary(counters.env_step, self._interval)
        self._ended, self._told, self._test = [], None, None
        return self._give(row)

    def _is_due(self, env_step: int) -> bool:
        """A boundary is crossed. But row 0 comes first; and where the budget is used up the last row stands, and shows
        how the last checkpoint was judged."""
        if env_step < self._next_env_step or env_step >= self._budget_env_steps:
            return False
        return self._epoch > 0 or not self._evaluates

    def _has_news(self, env_step: int) -> bool:
        """Something is not shown yet."""
        return env_step > self._shown_env_step or self._test is not None

    def news(self) -> NewEpisodes | None:
        """The training episodes that have come since the last call; None where nothing has changed. The rows given
        before are no news any more either."""
        self._given = []
        told, self._told = self._told, len(self._ended)
        return None if told == self._told else NewEpisodes(told or 0, self._ended[told or 0 :])

    def snapshot(self) -> ProgressSnapshot:
        """What a restarted coordinator has to know besides the training episodes, of which there are `news`; with the
        rows that were given since then."""
        return ProgressSnapshot(
            next_env_step=self._next_env_step,
            epoch=self._epoch,
            shown_env_step=self._shown_env_step,
            returns=[],
            lengths=[],
            test=None if self._test is None else self._test.snapshot(),
            metrics=dict(self._metrics),
            newest=list(self._newest),
            given=list(self._given),
        )

    def restore(self, snapshot: ProgressSnapshot) -> None:
        """Go on from there."""
        self._next_env_step, self._epoch = snapshot.next_env_step, snapshot.epoch
        self._shown_env_step = snapshot.shown_env_step
        self._ended, self._told = [EpisodesSnapshot(snapshot.returns, snapshot.lengths, snapshot.info)], None
        self._test = None if snapshot.test is None else EvaluationResult.of(snapshot.test)
        self._metrics = snapshot.metrics
        self._newest.extend(snapshot.newest)


def _interval_env_steps(config: ExperimentConfig, round_env_steps: int | None) -> int:
    interval_env_steps = config.log.progress_interval_env_steps
    if round_env_steps is None:
        return interval_env_steps
    rounds = Rounds.of(
        budget_env_steps=config.stop.max_env_steps,
        interval_env_steps=interval_env_steps,
        round_env_steps=round_env_steps,
    )
    return rounds.interval_env_steps
