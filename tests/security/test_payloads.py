"""24. Payload files that are not what was announced."""

from __future__ import annotations

import math
import signal
from pathlib import Path

import numpy as np
import psutil
import pytest

from remuda.buffer.chunk import MUST_BE_FINITE, ChunkError, read_chunk, write_chunk
from remuda.tests.buffer.chunks import cartpole_columns, meta_of
from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import ENDLESS, Journal, assert_exact, commander, kill
from remuda.tests.parallel.user_folder import CONFIG, UserFolder
from remuda.tests.patience import until


@pytest.mark.processes
def test_payloads_that_are_missing_short_or_damaged_are_never_sampled(tmp_path: Path, herds: Herds) -> None:
    """Each is named with its reason, its steps stay counted, and the run goes on with the others."""
    user = UserFolder.make(tmp_path / "user", {**ENDLESS, "buffer": {**CONFIG["buffer"], "samples_per_insert": None}})
    herd = herds()
    herd.gather()
    run = herd.submit(user)
    herd.wait_env_step("horse", 500)
    learner = herd.worker_of("learner", "horse").pid
    kill(learner, signal.SIGSTOP)
    stopped = psutil.Process(learner)  # a payload that is being read just now is nobody's example
    until(lambda: stopped.status() == psutil.STATUS_STOPPED, "the learner is stopped")
    before = set((run / "data").iterdir())
    until(lambda: len(_payloads(run) - before) >= 3, "three payloads have come that nobody has read")
    missing, short, damaged = sorted(_payloads(run) - before)[:3]
    missing.unlink()
    short.write_bytes(short.read_bytes()[:-20])
    content = bytearray(damaged.read_bytes())
    content[-5] ^= 1
    damaged.write_bytes(content)
    kill(learner, signal.SIGCONT)
    until(lambda: len(_refused(run)) == 3, "all three are told of")
    herd.wait_env_step("horse", herd.experiment("horse").env_step + 1_000)
    herd.stop()
    herd.shut_down()
    told = _refused(run)
    by_file = {path.name: [text for text in told if path.name in text] for path in (missing, short, damaged)}
    print(f"24: {told}")
    assert [len(found) for found in by_file.values()] == [1, 1, 1]
    assert len(told) == 3
    assert "checksum" in by_file[damaged.name][0]
    assert len({text.rpartition(":")[2] for text in told}) == 3, "three reasons"
    live = {chunk.meta.file for chunk in Journal.of(run).chunks}
    assert not live & set(by_file)
    assert_exact(herd, run, user, all_kept=False)


def _refused(run: Path) -> list[str]:
    return [text for text in commander(run) if "is not sampled any more" in text]


def _payloads(run: Path) -> set[Path]:
    return {path for path in (run / "data").iterdir() if not path.name.startswith(".")}


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", MUST_BE_FINITE)
def test_numbers_that_are_not_finite_are_not_learned_from(tmp_path: Path, name: str, number: float) -> None:
    """A collector refuses to write them; one that lies does not, and the run would diverge."""
    columns = {**cartpole_columns(20), name: np.ones((20, 2), np.float32)}
    columns[name][7, 1] = number
    meta = write_chunk(tmp_path, meta_of(0, 20), columns)
    with pytest.raises(ChunkError, match=f"not all numbers are finite in {name}") as refused:
        read_chunk(tmp_path / meta.file, meta)
    assert refused.value.fault == "malformed"
