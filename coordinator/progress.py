"""When a row of progress.txt is due, and what has happened since the one before."""

from __future__ import annotations

from collections.abc import Mapping

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.commander import next_boundary
from remuda.coordinator.evaluation import EvaluationResult
from remuda.coordinator.resumed import Resumed
from remuda.logbook.progress import ProgressRow
from remuda.policy.algorithms import declaration
from remuda.wire.messages import ChunkMeta, Counters


class ProgressRows:
    """Gathers episodes, evaluations and losses between two rows.

    Row 0 stands at env_step 0 and shows how the initial policy was judged; then one row per multiple of
    `progress_interval_env_steps`, and one for a stretch that crosses several.
    """

    def __init__(self, config: ExperimentConfig, resumed: Resumed | None = None) -> None:
        self._interval = config.log.progress_interval_env_steps
        self._columns = declaration(config).loss_columns
        self._next_env_step = 0
        self._epoch = 0
        self._shown_env_step = -1
        self._returns: list[float] = []
        self._lengths: list[int] = []
        self._test: EvaluationResult | None = None
        self._losses: Mapping[str, float] = {}
        if resumed is not None and resumed.progress_rows:
            self._epoch = resumed.progress_rows
            self._shown_env_step = resumed.counters.env_step
            self._next_env_step = next_boundary(resumed.counters.env_step, self._interval)

    def chunk(self, meta: ChunkMeta) -> None:
        """Episodes that ended in a counted chunk."""
        self._returns += meta.episode_returns
        self._lengths += meta.episode_lengths

    def evaluated(self, result: EvaluationResult) -> None:
        """The newest evaluation; shown in the next row."""
        self._test = result

    def learned(self, metrics: Mapping[str, float]) -> None:
        """The newest averages of what the algorithm monitors; shown until there are newer ones."""
        self._losses = {column: metrics[metric] for column, metric in self._columns.items() if metric in metrics}

    def due(self, counters: Counters, *, last: bool = False) -> ProgressRow | None:
        """The row that is due now, if any. The `last` row is due wherever the run ends, unless it stands already."""
        if self._epoch == 0 and self._test is None and not last:
            return None  # row 0 waits for the evaluation of the initial policy
        news = counters.env_step > self._shown_env_step or self._test is not None
        if not (counters.env_step >= self._next_env_step or (last and news)):
            return None
        test = self._test
        row = ProgressRow(
            epoch=self._epoch,
            env_step=counters.env_step,
            returns=self._returns,
            lengths=self._lengths,
            test_returns=() if test is None else test.returns,
            test_lengths=() if test is None else test.lengths,
            losses=self._losses,
            wall_s=counters.wall_s,
        )
        self._epoch += 1
        self._shown_env_step = counters.env_step
        self._next_env_step = next_boundary(counters.env_step, self._interval)
        self._returns, self._lengths, self._test = [], [], None
        return row
