"""progress.txt: one tab-separated row per log interval, for pandas, numpy and the eye."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from remuda.logbook.spread import Spread
from remuda.storage.atomic import write_text

_STEP_COLUMN = "TotalEnvInteracts"


@dataclass(frozen=True, kw_only=True)
class ProgressRow:
    """What happened since the last row, raw; the file shows it as averages, nan where there was nothing."""

    epoch: int
    """Counts the rows, from 0 or 1 as the run likes."""
    env_step: int
    """Shown as TotalEnvInteracts."""
    returns: Sequence[float] = ()
    """Undiscounted returns of the training episodes that ended."""
    lengths: Sequence[int] = ()
    """Environment steps of the same."""
    test_returns: Sequence[float] = ()
    """As `returns`, of evaluation episodes."""
    test_lengths: Sequence[int] = ()
    losses: Mapping[str, float]
    """Averages under the file's loss columns; others are left out, missing ones are nan."""
    wall_s: float
    """Seconds since the run began, shown as Time."""

    def values(self) -> dict[str, float]:
        """List the fixed columns with their values."""
        train, test = Spread.of(self.returns), Spread.of(self.test_returns)
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
            "EpLen": Spread.of(self.lengths).mean,
            "TestEpLen": Spread.of(self.test_lengths).mean,
            _STEP_COLUMN: self.env_step,
            "Time": self.wall_s,
        }


class ProgressFile:
    """Appends rows to progress.txt, each flushed at once.

    A file that is there already is continued under its own columns: a line a killed writer left unfinished goes, and
    so do rows beyond `resumed_env_step` (None keeps all), both before anything is added. Raises ValueError for a file
    that is something else.
    """

    def __init__(self, path: Path, loss_columns: Sequence[str], *, resumed_env_step: int | None = None) -> None:
        self.path = path
        kept = _rows_to_keep(path, math.inf if resumed_env_step is None else resumed_env_step)
        if not kept:
            kept = ["\t".join(_columns(loss_columns)) + "\n"]
        write_text(path, "".join(kept), durable=True)
        self._columns = kept[0].rstrip("\n").split("\t")
        self.rows = len(kept) - 1
        """Rows in the file."""
        self._file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115  (stays open for the run)

    def row(self, row: ProgressRow) -> None:
        """Append one row."""
        values: dict[str, float] = {**row.losses, **row.values()}
        self._file.write("\t".join(str(values.get(column, math.nan)) for column in self._columns) + "\n")
        self.rows += 1

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _columns(loss_columns: Sequence[str]) -> list[str]:
    *fixed, time_column = ProgressRow(epoch=0, env_step=0, losses={}, wall_s=0.0).values()
    columns = [*fixed, *loss_columns, time_column]
    if len(set(columns)) < len(columns) or not all(column.isidentifier() for column in loss_columns):
        raise ValueError(f"loss columns must be distinct identifiers, not {list(loss_columns)}")
    return columns


def _rows_to_keep(path: Path, last_env_step: float) -> list[str]:
    """Read the header and the whole rows up to `last_env_step`; nothing where there is no whole header."""
    if not path.exists():
        return []
    whole = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
    if not whole:
        return []
    header, *rows = whole
    try:
        step = header.rstrip("\n").split("\t").index(_STEP_COLUMN)
        return [header, *(row for row in rows if float(row.split("\t")[step]) <= last_env_step)]
    except (ValueError, IndexError) as error:
        raise ValueError(f"{path} cannot be continued ({error}): mend it, or move it away") from None
