"""Whether a run that is over has lost nothing, and counted nothing twice, over all that was done to its herd."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from remuda.config.schema import ExperimentConfig
from remuda.tests.faults.herd import assert_exact_run

IN_WORK_CHUNKS = 3
"""What a collector may have in work that is lost with it: two chunks not yet announced, and one being filled."""


class InexactError(Exception):
    """A counter is wrong; the text says which."""


def check_exact(run: Path, config: ExperimentConfig, counts: Path, collectors: Iterable[int], *, lost: int) -> str:
    """Compare what was counted with the journal, with data/, and with the steps that environments say they took.

    Args:
        run: the run folder, which no coordinator has any more.
        config: its config, which says how large a chunk is.
        counts: where each process has left the number of its steps.
        collectors: ids of all processes that were collectors of this run.
        lost: how many of these processes, or of their leases, were lost.

    Returns a sentence with the numbers. Raises InexactError.
    """
    try:
        env_step = assert_exact_run(run, all_kept=False)
    except AssertionError as error:
        raise InexactError(f"{run}: {error}") from error
    taken = sum(_steps(counts / str(pid)) for pid in collectors)
    assert config.collector.chunk_env_steps is not None, "a run whose chunks have a length"
    may_lack = lost * IN_WORK_CHUNKS * (config.collector.chunk_env_steps + config.env.num_envs - 1)
    found = f"{env_step} env steps counted, {taken} taken, at most {may_lack} of them in the work of who was killed"
    if not env_step <= taken <= env_step + may_lack:
        raise InexactError(found)
    return found


def _steps(path: Path) -> int:
    """Of a process; one that was killed at its start has none."""
    return int(path.read_text() or 0) if path.exists() else 0
