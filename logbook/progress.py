"""progress.txt: one tab-separated row per log interval, for pandas, numpy and the eye."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from remuda.logbook.spread import Spread
from remuda.logbook.table import Table

_STEP_COLUMN = "TotalEnvInteracts"


@dataclass(frozen=True, kw_only=True)
class ProgressRow:
    """What happened since the last row, raw; the views of it show averages, nan where there was nothing."""

    epoch: int
    """Counts the rows, from 0 or 1 as the run likes."""
    env_step: int
    """Shown as TotalEnvInteracts."""
    train_iter: int = 0
    """Gradient updates done."""
    episode: int = 0
    """Training episodes that have ended since the run began."""
    returns: Sequence[float] = ()
    """Undiscounted returns of the training episodes that ended."""
    lengths: Sequence[int] = ()
    """Environment steps of the same."""
    test_returns: Sequence[float] = ()
    """As `returns`, of evaluation episodes."""
    test_lengths: Sequence[int] = ()
    losses: Mapping[str, float]
    """Averages under the file's loss columns; others are left out, missing ones are nan."""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    """All that the algorithm monitors, under its own names."""
    wall_s: float
    """Seconds since the run began, shown as Time."""

    def values(self) -> dict[str, float]:
        """List the columns of progress.txt with their values, but for the losses."""
        train, test = Spread.of(self.returns), Spread.of(self.test_returns)
        length, test_length = Spread.of(self.lengths), Spread.of(self.test_lengths)
        return {
            "Epoch": self.epoch,
            "AverageEpRet": train.mean,
            "StdEpRet": train.std,
            "MaxEpRet": train.max,
            "MinEpRet": train.min,
            "AverageTestEpRet": test.mean,
            "StdTestEpRet": test.std,
            "MaxTestEpRet": test.max,
            "MinTestEpRet": test.min,
            "EpLen": length.mean,
            "TestEpLen": test_length.mean,
            _STEP_COLUMN: self.env_step,
            "Time": self.wall_s,
        }

    def record(self) -> dict[str, float]:
        """The row as the sinks take it: Remuda's own names, by who reports it, five statistics per quantity."""
        counters = {
            "env_step": self.env_step,
            "train_iter": self.train_iter,
            "episode": self.episode,
            "wall_s": self.wall_s,
        }
        quantities = {
            "collector": {"reward": self.returns, "length": self.lengths},
            "evaluator": {"reward": self.test_returns, "length": self.test_lengths},
        }
        statistics = {
            f"{role}/{name}": value
            for role, of_role in quantities.items()
            for quantity, values in of_role.items()
            for name, value in Spread.of(values).named(quantity).items()
        }
        return {**counters, **statistics, **{f"learner/{name}": value for name, value in self.metrics.items()}}


class ProgressFile:
    """Appends rows to progress.txt, each flushed at once.

    A file that is there already is continued as Table says. Raises ValueError for a file that is something else.
    """

    def __init__(self, path: Path, loss_columns: Sequence[str], *, resumed_env_step: int | None = None) -> None:
        columns = _columns(loss_columns)
        self._table = Table(path, columns, separator="\t", step_column=_STEP_COLUMN, resumed_step=resumed_env_step)
        self.path = path

    @property
    def rows(self) -> int:
        """Rows in the file."""
        return self._table.rows

    def row(self, row: ProgressRow) -> None:
        """Append one row."""
        self._table.append({**row.losses, **row.values()})

    def close(self) -> None:
        """Close the file."""
        self._table.close()


def _columns(loss_columns: Sequence[str]) -> list[str]:
    *fixed, time_column = ProgressRow(epoch=0, env_step=0, losses={}, wall_s=0.0).values()
    columns = [*fixed, *loss_columns, time_column]
    if len(set(columns)) < len(columns) or not all(column.isidentifier() for column in loss_columns):
        raise ValueError(f"loss columns must be distinct identifiers, not {list(loss_columns)}")
    return columns
