"""The recorded training episodes of a run, with their returns, from the files of steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from remuda.collector.steps import SUFFIX, Part, StepsError, by_copy, read_steps
from remuda.config.load import load_config
from remuda.config.schema import ExperimentConfig
from remuda.storage.existing_folder import RunFolderError
from remuda.storage.run_folder import RunFolder
from remuda.training.journal import read_policies
from remuda.training.journal_database import JournalError
from remuda.training.recovery import counted_before


class ReplayError(RunFolderError):
    """Episodes cannot be played again; the message has the reason."""


@dataclass(frozen=True)
class Episode:
    """A finished training episode."""

    id: str
    """`<collector>.<generation>.<copy>.<number>`, all from 0."""
    part: Part = field(repr=False)
    copy: int
    begin: int
    """Slot of its reset."""
    end: int
    """Slot of its last step."""
    returns: Mapping[str, float]
    """Of each agent, undiscounted."""
    versions: tuple[int, int]
    """Versions of the first policy at begin and end."""
    counted: bool
    """True if the journal has its last step, as far as known."""

    @property
    def length(self) -> int:
        """Steps."""
        return self.end - self.begin

    @property
    def mean_return(self) -> float:
        """Mean over the agents."""
        return sum(self.returns.values()) / len(self.returns)


@dataclass(frozen=True)
class Record:
    """All recorded episodes of a run."""

    run_dir: Path
    config: ExperimentConfig
    parts: Sequence[Part]
    episodes: Sequence[Episode]
    """In order of collectors, copies and time."""
    notes: Sequence[str] = ()
    """Gaps in the record."""


def read_record(run_dir: Path) -> Record:
    """Read the recorded episodes of a run. Raises ReplayError, ConfigError."""
    config = load_config(RunFolder(run_dir).config_json, import_algorithm=False).config
    files = sorted(RunFolder(run_dir).steps.glob(f"*{SUFFIX}"), key=_natural)
    if not files:
        raise ReplayError(_why_nothing(run_dir, config))
    try:
        parts = [part for path in files for part in read_steps(path)]
    except (StepsError, OSError) as error:
        raise ReplayError(str(error)) from error
    counts, notes = _counted_chunks(run_dir)
    episodes: list[Episode] = []
    numbers: dict[tuple[int, int, int], int] = {}
    for part in parts:
        for copy, begin, end in _spans(part):
            key = part.index, part.generation, copy
            number = numbers[key] = numbers.get(key, -1) + 1
            episodes.append(_episode(part, copy, begin, end, number, counts))
    return Record(run_dir, config, parts, episodes, notes)


def _natural(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]+", path.name)]


def _why_nothing(run_dir: Path, config: ExperimentConfig) -> str:
    if not config.log.steps:
        why = "its config has log.steps = false"
    elif config.self_play.share:
        why = "actions of older policies are not kept in self-play"
    else:
        why = "an older Remuda has collected them, or collectors that do not see the runs folder"
    return f"{run_dir} has no steps/, so its episodes cannot be played again: {why}"


def _counted_chunks(run_dir: Path) -> tuple[Callable[[str, int, int], bool], list[str]]:
    """Return a function that tells for worker, incarnation and number of a chunk if it was counted, and notes. Chunks
    of forgotten leases were counted at the time."""
    run, notes = RunFolder(run_dir), list[str]()
    rows = counted_before(run)
    try:
        for found in [*read_policies(run.journal).values()][:1]:  # every policy has the same chunks
            rows += found.snapshot.experiment.replay.ledger.counted
    except JournalError as error:
        notes.append(f"its newest episodes may not be counted yet: {error}")

    def counts(worker: str, incarnation: int, number: int) -> bool:
        own = [row for row in rows if (row.worker, row.incarnation) == (worker, incarnation) and row.first <= number]
        lease = max(own, key=lambda row: row.first, default=None)
        if lease is None:
            return True
        return number <= lease.high_water and not any(begin <= number < end for begin, end in lease.gaps)

    return counts, notes


def _spans(part: Part) -> Iterator[tuple[int, int, int]]:
    """Yield copy, slot of the reset and slot of the last step of every finished episode."""
    over, began = by_copy(part)
    for copy in range(part.num_envs):
        begins = np.flatnonzero(began[:, copy])
        for begin, following in zip(begins, [*begins[1:], part.slots], strict=True):
            ends = np.flatnonzero(over[begin + 1 : following, copy])
            if ends.size:
                yield copy, int(begin), int(begin + 1 + ends[0])


def _episode(
    part: Part, copy: int, begin: int, end: int, number: int, counts: Callable[[str, int, int], bool]
) -> Episode:
    returns: dict[str, float] = {}
    for policy in part.policies:
        for at, agent in enumerate(policy.agents):
            paid = policy.steps.reward[begin + 1 : end + 1, copy * len(policy.agents) + at]
            returns[agent] = float(np.cumsum(paid)[-1])
    first, last = part.chunk_of(begin + 1), part.chunk_of(end)
    name = f"{part.index}.{part.generation}.{copy}.{number}"
    return Episode(name, part, copy, begin, end, returns, (first[4], last[4]), counts(*last[:3]))
