"""A data folder that a herd finds again after it was killed."""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from remuda.buffer.chunk import read_meta
from remuda.tests.buffer.chunks import meta_of
from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import Herd, Journal, assert_exact
from remuda.tests.faults.sizes import within
from remuda.tests.faults.test_processes import ENDLESS, IN_WORK
from remuda.tests.parallel.user_folder import CONFIG, UserFolder
from remuda.training.journal import RunJournal
from remuda.training.journal_entry import JournalEntry
from remuda.wire.messages import IndexedChunk

pytestmark = pytest.mark.processes


def test_a_herd_that_was_killed_as_a_whole_finds_its_experience_again(tmp_path: Path, herds: Herds) -> None:
    """25. The same two commands: the index is the accepted payloads, and half-written files are ignored and swept."""
    user, herd = UserFolder.make(tmp_path / "user", ENDLESS), herds()
    herd.gather()
    run = herd.submit(user)
    herd.wait_env_step("horse", 1_000)
    herd.kill_all()
    journal = Journal.of(run)
    accepted = journal.snapshot.experiment.replay.ledger.env_steps
    listed = {chunk.meta.file for chunk in journal.chunks}
    assert sum(read_meta(run / "data" / file).env_steps for file in listed) == accepted
    half = next(iter(listed))
    litter = run / "data" / f".{half}.1.0123abcd.tmp"
    litter.write_bytes((run / "data" / half).read_bytes()[:100])
    herd.coordinator()
    found = sum(read_meta(path).env_steps for path in (run / "data").glob("*.safetensors"))
    assert accepted <= herd.experiment("horse").env_step == found, "also what nobody had announced"
    herd.workers()
    herd.wait_env_step("horse", found + 1_000)
    with herd.client() as client:
        client.stop("horse")
    herd.wait_over("horse", "stopped")
    herd.shut_down()
    assert not litter.exists()
    assert_exact(herd, run, user, lost_at_most=2 * IN_WORK)


CHUNKS, ROWS = 20_000, 4


def test_the_index_is_rebuilt_within_seconds_whatever_its_size(tmp_path: Path, herds: Herds) -> None:
    """25. Ten thousand chunks a second; what the journal does not list is swept."""
    user, herd = UserFolder.make(tmp_path / "user", {"buffer": {**CONFIG["buffer"], "capacity": 100_000}}), herds()
    coordinator = herd.coordinator()
    run = herd.submit(user)
    begin_s = time.monotonic()
    coordinator = _killed_and_started_again(herd, coordinator)
    empty_s = time.monotonic() - begin_s
    coordinator.kill()
    coordinator.wait()
    listed = _fill(run)
    for orphan in (meta_of(CHUNKS + 1, 1).file, f".{listed[0]}.1.0123abcd.tmp"):
        (run / "data" / orphan).write_bytes(b"half of it")
    begin_s = time.monotonic()
    herd.coordinator()
    took_s = max(time.monotonic() - begin_s - empty_s, 0.0)
    print(f"25: {CHUNKS} chunks rebuilt in {took_s:.2f} s beside the {empty_s:.2f} s of an empty start")
    assert within(took_s, CHUNKS / 10_000)
    with herd.client() as client:
        client.stop("horse")
    herd.wait_over("horse", "stopped")
    herd.shut_down()
    assert {path.name for path in (run / "data").iterdir()} == set(listed)
    assert [chunk.meta.file for chunk in Journal.of(run).chunks] == listed


def _killed_and_started_again(herd: Herd, coordinator: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    coordinator.kill()
    coordinator.wait()
    return herd.coordinator()


def _fill(run: Path) -> list[str]:
    """Write many chunks into a journal and into data/, as a long run does."""
    chunks = [IndexedChunk(ROWS * number, meta_of(number, ROWS)) for number in range(CHUNKS)]
    snapshot = Journal.of(run).snapshot
    index = replace(snapshot.experiment.replay.index, next_row=ROWS * CHUNKS)
    counted = replace(snapshot.experiment.replay, index=index)
    snapshot = replace(snapshot, experiment=replace(snapshot.experiment, replay=counted))
    with contextlib.closing(RunJournal(run / "journal.sqlite")) as journal:
        journal.write(JournalEntry(snapshot.identity.id, snapshot, added=tuple(chunks)))
    for chunk in chunks:
        (run / "data" / chunk.meta.file).touch()
    return [chunk.meta.file for chunk in chunks]
