"""The tables of a run's progress: progress.txt, progress.csv and progress.jsonl; and the schedule of rows by rounds.

Each has one header, and rows that are written at once.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from remuda.logbook.statistics import Statistics, episode_statistics
from remuda.storage.atomic import write_text
from remuda.storage.record_file import AppendedFile
from remuda.storage.untrusted import json_of, read_bounded

_STEP_COLUMN = "TotalEnvInteracts"
_STATISTICS = ("Average", "Std", "Max", "Min", "Median")
_TEST_RETURNS = ("AverageTestEpRet", "StdTestEpRet", "MaxTestEpRet", "MinTestEpRet")
_FIRST_TESTS = (*_TEST_RETURNS, "TestEpLen", "MedianTestEpRet", "TestEnvInteracts")
"""Columns of evaluations before the reported values."""
COLUMN = re.compile(r"[A-Za-z_][\w./ -]*")
"""Pattern of names that need no quotes with any separator."""
_MOST_BYTES = 1 << 30
"""Largest table that is continued."""
_FIRST_COLUMNS = ("env_step", "train_iter", "episode", "wall_s")


class Table:
    """Appends rows under their columns; missing values are nan.

    An existing file is continued with its own columns, without an unfinished line of a killed writer, and without rows
    whose `step_column` is above `resumed_step` (None keeps all). Raises ValueError for a file of another kind.
    """

    def __init__(
        self,
        path: Path,
        columns: Sequence[str],
        *,
        separator: str,
        step_column: str,
        resumed_step: int | None = None,
    ) -> None:
        self.path = path
        self._separator = separator
        kept = self._rows_to_keep(step_column, math.inf if resumed_step is None else resumed_step)
        if not kept:
            kept = [separator.join(_distinct(columns)) + "\n"]
        text = "".join(kept)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_text(path, text, durable=True)
        self.columns = kept[0].rstrip("\n").split(separator)
        self.last_row = (
            dict(zip(self.columns, kept[-1].rstrip("\n").split(separator), strict=False)) if kept[1:] else {}
        )
        """Last row at the time of opening, by column; empty for a new file."""
        self._file = AppendedFile(path)

    def append(self, values: Mapping[str, float]) -> None:
        """Append one row; values of unknown columns are ignored. Raises OSError."""
        cells = (str(values.get(column, math.nan)) for column in self.columns)
        self._file.append((self._separator.join(cells) + "\n").encode())

    def widen(self, columns: Sequence[str]) -> None:
        """Add columns at the end, with nan in the former rows: the file is rewritten, whole or not at all.

        Raises ValueError for names that would break the table, and OSError; the table then stays unchanged.
        """
        wider = _distinct([*self.columns, *columns])
        header, *rows = self.path.read_text(encoding="utf-8").splitlines()
        missing = self._separator + self._separator.join(["nan"] * len(columns))
        names = self._separator + self._separator.join(columns)
        write_text(self.path, "\n".join([header + names, *(row + missing for row in rows)]) + "\n", durable=True)
        self._file.close()
        self._file = AppendedFile(self.path)
        self.columns = wider

    def close(self) -> None:
        self._file.close()

    def _rows_to_keep(self, step_column: str, last_step: float) -> list[str]:
        """Read the header and the whole rows up to `last_step`; nothing without a whole header."""
        with _continuing(self.path) as whole:
            header, rows = whole[:1], whole[1:]
            step = header[0].rstrip("\n").split(self._separator).index(step_column) if header else 0
            return header + [row for row in rows if float(row.split(self._separator)[step]) <= last_step]


def _distinct(columns: Sequence[str]) -> list[str]:
    wrong = [column for column in columns if not COLUMN.fullmatch(column)]
    if wrong or len(set(columns)) < len(columns):
        raise ValueError(f"columns must be distinct names of letters, digits and _ . / -, not {wrong or list(columns)}")
    return list(columns)


class CsvSink(Table):
    """A comma-separated table with a growing header: a quantity that first appears during a run (for instance a loss)
    becomes a new last column, with nan in the former rows."""

    def __init__(self, path: Path, *, resumed_env_step: int | None = None) -> None:
        """Open the file; existing rows stay, except those beyond `resumed_env_step`. Raises ValueError, OSError."""
        super().__init__(path, _FIRST_COLUMNS, separator=",", step_column="env_step", resumed_step=resumed_env_step)

    def row(self, record: Mapping[str, float]) -> None:
        """Append a row. Raises ValueError for a name that no column can have, OSError."""
        if new := [name for name in record if name not in self.columns]:
            self.widen(new)
        self.append(record)


class JsonLinesSink:
    """Writes a JSON object per line; null for values that are not finite."""

    def __init__(self, path: Path, *, resumed_env_step: int | None = None) -> None:
        """Open the file; continue an existing file without torn lines and lines beyond `resumed_env_step`. Raises
        ValueError for a file of another kind, OSError."""
        self.path = path
        last_step = math.inf if resumed_env_step is None else resumed_env_step
        with _continuing(path) as whole:
            kept = [line for line in whole if _env_step(line) <= last_step]
        write_text(path, "".join(kept), durable=True)
        self._file = AppendedFile(path)

    def row(self, record: Mapping[str, float]) -> None:
        """Append a line. Raises OSError."""
        values = {name: value if math.isfinite(value) else None for name, value in record.items()}
        self._file.append((json.dumps(values) + "\n").encode())

    def close(self) -> None:
        self._file.close()


@contextmanager
def _continuing(path: Path) -> Generator[list[str]]:
    """Yield the whole lines of a file, none of a missing file. Raises ValueError if the body cannot read them."""
    text = read_bounded(path, most_bytes=_MOST_BYTES).decode("utf-8") if os.path.lexists(path) else ""
    try:
        yield [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
    except (ValueError, TypeError, LookupError, OverflowError) as error:
        raise ValueError(f"{path} cannot be continued ({error}): correct it, or move it away") from None


def _env_step(line: str) -> float:
    return float(cast("dict[str, Any]", json_of(line))["env_step"])


@dataclass(frozen=True, kw_only=True)
class ProgressRow:
    """Raw values since the last row; the file shows their averages, or nan without values."""

    epoch: int
    """Number of the row, from 0 or 1."""
    env_step: int
    """Shown as TotalEnvInteracts."""
    train_iter: int = 0
    """Gradient updates done."""
    episode: int = 0
    """Training episodes finished since the run began."""
    returns: Sequence[float] = ()
    """Undiscounted returns of the finished training episodes."""
    lengths: Sequence[int] = ()
    """Environment steps of the same."""
    info: Mapping[str, Sequence[float]] = field(default_factory=dict[str, list[float]])
    """Further values of these episodes by name: the discounted return, and reported values."""
    collected: Mapping[str, float] = field(default_factory=dict[str, float])
    """Means over the collected steps, named by Declaration.collected; nan without steps."""
    test_returns: Sequence[float] = ()
    """As `returns`, of evaluation episodes."""
    test_lengths: Sequence[int] = ()
    test_info: Mapping[str, Sequence[float]] = field(default_factory=dict[str, list[float]])
    test_env_step: int | None = None
    """env_step of the evaluated checkpoint, possibly before the row; shown as TestEnvInteracts."""
    losses: Mapping[str, float]
    """Numbers for the loss columns of the file. Other names are ignored; missing values are nan."""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    """All metrics of the algorithm, as in LearnReport."""
    wall_s: float
    """Seconds since the run began, shown as Time."""
    evaluates: bool = True
    """True for a run with evaluations, even before the first result; False leaves out their columns."""
    task: int | None = None
    """Number of the current task, shown as Task; None, without a column, in runs with a single task."""

    def values(self) -> dict[str, float]:
        """Return the columns of progress.txt with their values, without the losses."""
        train, tests = _columns_of("EpRet", self.returns), self.tests()
        first = {name: tests[name] for name in _FIRST_TESTS if tests}
        return {
            "Epoch": self.epoch,
            **dict(train[:-1]),
            **{name: first[name] for name in _TEST_RETURNS if first},
            "EpLen": Statistics.of(self.lengths).mean,
            **{name: first[name] for name in ("TestEpLen",) if first},
            _STEP_COLUMN: self.env_step,
            **dict(train[-1:]),
            **first,
            **_info_columns("", self.info),
            **tests,
            **self.collected,
            **self.tasks(),
            "Time": self.wall_s,
        }

    def tasks(self) -> dict[str, float]:
        """Return the column of the task."""
        return {} if self.task is None else {"Task": self.task}

    def tests(self) -> dict[str, float]:
        """Return the columns of evaluations."""
        if not self.evaluates:
            return {}
        test = _columns_of("TestEpRet", self.test_returns)
        return {
            **dict(test),
            "TestEpLen": Statistics.of(self.test_lengths).mean,
            "TestEnvInteracts": self._tested_at,
            **_info_columns("Test", self.test_info),
        }

    @property
    def _tested_at(self) -> float:
        return math.nan if self.test_env_step is None else self.test_env_step

    def record(self) -> dict[str, float]:
        """Return the row for sinks: Remuda's own names, grouped by role, with five statistics per quantity."""
        counters = {
            "env_step": self.env_step,
            "train_iter": self.train_iter,
            "episode": self.episode,
            "wall_s": self.wall_s,
            **({} if self.task is None else {"task": self.task}),
        }
        by_role: dict[str, Mapping[str, float]] = {
            "collector": {**episode_statistics(self.returns, self.lengths, self.info), **self.collected},
            "evaluator": self._test_record(),
            "learner": self.metrics,
        }
        values = {f"{role}/{name}": value for role, of_role in by_role.items() for name, value in of_role.items()}
        return {**counters, **values}

    def _test_record(self) -> dict[str, float]:
        if not self.evaluates:
            return {}
        statistics = episode_statistics(self.test_returns, self.test_lengths, self.test_info)
        return {**statistics, "env_step": self._tested_at}


@dataclass(frozen=True)
class ProgressColumns:
    """Columns of a run's progress.txt."""

    losses: Sequence[str] | None = ()
    """Names of losses; None adds a column for every loss and episode value at its first row."""
    episode_info: Sequence[str] = ()
    """Further values of episodes, with columns of their own."""
    collected: Sequence[str] = ()
    """Further means over the collected steps, with columns of their own."""
    evaluates: bool = True
    """Adds columns for evaluations."""
    has_tasks: bool = False
    """Adds a column for the number of the task, as does a row with a task."""

    def names(self) -> list[str]:
        """Return the columns: first those known to other tools, losses after the steps, the time last. Raises
        ValueError for losses that are not distinct identifiers."""
        losses = self.losses or ()
        info: dict[str, list[float]] = {name: [] for name in self.episode_info}
        row = ProgressRow(
            epoch=0,
            env_step=0,
            losses={},
            wall_s=0.0,
            info=info,
            test_info=info,
            collected=dict.fromkeys(self.collected, math.nan),
            evaluates=self.evaluates,
            task=0 if self.has_tasks else None,
        )
        fixed = list(row.values())
        steps = fixed.index(_STEP_COLUMN) + 1
        columns = [*fixed[:steps], *losses, *fixed[steps:]]
        if len(set(columns)) < len(columns) or not all(column.isidentifier() for column in losses):
            raise ValueError(f"loss columns must be distinct identifiers, not {list(losses)}")
        return columns


class ProgressFile(Table):
    """Appends rows to progress.txt, each flushed at once.

    An existing file is continued as described in Table, and gets new columns except for losses. Raises ValueError for a
    file of another kind.
    """

    def __init__(self, path: Path, columns: ProgressColumns, *, resumed_env_step: int | None = None) -> None:
        self._grows = columns.losses is None
        names = columns.names()
        self._always = dict.fromkeys(name for name in names if name not in (columns.losses or ()))
        super().__init__(path, names, separator="\t", step_column=_STEP_COLUMN, resumed_step=resumed_env_step)
        self.next_epoch = int(float(self.last_row.get("Epoch", -1))) + 1
        """Epoch of the next row. Rows may be missing after a full disk."""

    def row(self, row: ProgressRow) -> None:
        """Append one row. Raises ValueError for an impossible name of a column."""
        values = {**row.losses, **row.values()}
        wanted = values if self._grows else {**self._always, **row.collected, **row.tasks()}
        if new := [name for name in wanted if name not in self.columns]:
            self.widen(new)
        self.append(values)
        self.next_epoch = row.epoch + 1


def _columns_of(name: str, values: Sequence[float]) -> list[tuple[str, float]]:
    statistics = vars(Statistics.of(values)).values()
    return [(f"{kind}{name}", value) for kind, value in zip(_STATISTICS, statistics, strict=True)]


def _info_columns(prefix: str, info: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {
        column: value for name, values in info.items() for column, value in _columns_of(prefix + _camel(name), values)
    }


def _camel(name: str) -> str:
    """Convert a name to the style of the columns: `boxes_pushed` becomes BoxesPushed."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


@dataclass(frozen=True)
class Rounds:
    """Numbers of collection rounds until the budget, and until the next row.

    Counts like the runners of rlpyt (Stooke and Abbeel 2019), with one difference: rlpyt rounds the budget down to
    whole rounds before rounding up to a row, and so may stop early. Here the budget is always reached.
    """

    env_steps: int
    """Environment steps of all workers together in one round."""
    per_row: int
    """Rounds between two rows: the interval rounded down, at least one."""
    total: int
    """Rounds until the budget is reached; the last round ends with a row."""

    @classmethod
    def of(cls, *, budget_env_steps: int, interval_env_steps: int, round_env_steps: int) -> Rounds:
        """Count rounds for arguments in environment steps. Raises ValueError for a number below 1."""
        if min(budget_env_steps, interval_env_steps, round_env_steps) < 1:
            raise ValueError(
                f"a budget of {budget_env_steps}, an interval of {interval_env_steps} and rounds of {round_env_steps} "
                "environment steps: all must be positive"
            )
        per_row = max(interval_env_steps // round_env_steps, 1)
        rows = -(-budget_env_steps // (per_row * round_env_steps))
        return cls(round_env_steps, per_row, rows * per_row)

    @property
    def interval_env_steps(self) -> int:
        """Environment steps between two rows."""
        return self.per_row * self.env_steps
