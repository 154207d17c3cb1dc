"""Training episodes wait for their row of progress.txt: journaled once each, and all there after a crash."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from remuda.config.schema import ExperimentConfig
from remuda.tests.buffer.chunks import meta_of
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import World
from remuda.training.commander.progress_rows import ProgressRows
from remuda.training.journal import RunJournal
from remuda.training.journal_entry import JournalEntry
from remuda.training.run_snapshot import RunSnapshot
from remuda.training.snapshot import EpisodesSnapshot, NewEpisodes
from remuda.wire.messages import ChunkMeta, Counters

SETTINGS: ExperimentConfig = config(
    evaluator={"episodes": 0, "window_episodes": 10},
    log={"progress_interval_env_steps": 1_000},
    stop={"max_env_steps": 1 << 40},
)


def chunk(number: int, *returns: float) -> ChunkMeta:
    lengths = [int(value) + 1 for value in returns]
    return replace(meta_of(number, 10), episode_returns=list(returns), episode_lengths=lengths)


@pytest.fixture(scope="module")
def snapshot() -> RunSnapshot:
    """Of some run; only its progress matters here."""
    world = World(config())
    world.herd(collectors=2)
    world.submit()
    world.step()
    return next(iter(world.journal.values())).recovered().snapshot


class Journaled:
    """Rows of progress with a real journal under them."""

    def __init__(self, path: Path, snapshot: RunSnapshot) -> None:
        self._path, self._memory = path, snapshot
        self.rows = ProgressRows(SETTINGS)
        self._journal = RunJournal(path)

    def commit(self) -> int:
        """One turn's end. Returns how many bytes are written."""
        progress = replace(self._memory.experiment, progress=self.rows.snapshot())
        snapshot, new = replace(self._memory, experiment=progress), self.rows.news()
        self._journal.write(JournalEntry("x", snapshot, episodes=new))
        return len(msgspec.msgpack.encode(snapshot)) + len(msgspec.msgpack.encode(new))

    def crash(self) -> None:
        """What was not committed is gone."""
        self._journal.close()
        self._journal = RunJournal(self._path)
        found = self._journal.read()
        self.rows = ProgressRows(SETTINGS)
        if found is not None:
            self.rows.restore(found.snapshot.experiment.progress)

    def close(self) -> None:
        self._journal.close()


@pytest.fixture
def journaled(tmp_path: Path, snapshot: RunSnapshot) -> Iterator[Journaled]:
    with closing(Journaled(tmp_path / "journal.sqlite", snapshot)) as journaled:
        yield journaled


@pytest.mark.parametrize("seed", range(3))
def test_rows_show_every_episode_once_whenever_the_process_dies(journaled: Journaled, seed: int) -> None:
    rng, expected, env_step = random.Random(seed), list[float](), 0
    uncommitted: list[float] = []
    for number in range(300):
        returns = [float(rng.randrange(100)) for _ in range(rng.randrange(3))]
        journaled.rows.chunk(chunk(number, *returns))
        uncommitted += returns
        if rng.random() < 0.1:
            env_step += 1_000
            (row,) = journaled.rows.due(Counters(env_step=env_step))
            assert list(row.returns) == expected + uncommitted
            assert list(row.lengths) == [int(value) + 1 for value in row.returns]
            expected, uncommitted = [], []
            journaled.commit()  # a row is written once the journal knows of it
        elif rng.random() < 0.5:
            journaled.commit()
            expected, uncommitted = expected + uncommitted, []
        if rng.random() < 0.2:
            journaled.crash()
            uncommitted = []


def test_a_turn_writes_its_own_episodes_however_many_wait(journaled: Journaled) -> None:
    written: list[int] = []
    for number in range(500):
        journaled.rows.chunk(chunk(number, 1.0, 2.0, 3.0))
        written.append(journaled.commit())
    assert max(written[-10:]) <= written[10] + 8, "a longer number, and nothing else"
    journaled.crash()
    (row,) = journaled.rows.due(Counters(env_step=1_000))
    assert list(row.returns) == [1.0, 2.0, 3.0] * 500


def test_a_journal_that_has_them_in_its_snapshot_is_understood(snapshot: RunSnapshot) -> None:
    progress = replace(snapshot.experiment.progress, returns=[4.0], lengths=[5], info={"speed": [0.5]}, ended=[])
    older = replace(snapshot, experiment=replace(snapshot.experiment, progress=progress))
    newer = [NewEpisodes(0, [EpisodesSnapshot([6.0], [7], {"speed": [0.7], "falls": [1.0]})])]
    rows = ProgressRows(SETTINGS)
    rows.restore(older.with_episodes(newer).experiment.progress)
    (row,) = rows.due(Counters(env_step=1_000))
    assert (row.returns, row.lengths) == ([4.0, 6.0], [5, 7])
    assert row.info == {"speed": [0.5, 0.7], "falls": [1.0]}
