"""64 collectors on one machine: how soon all of them step, and how much memory everything takes together."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.herd import collectors_seen, launched, pss_bytes, until

CONFIG = "examples/cartpole_dqn.yaml"
COLLECTORS = 64
MEMORY_GIB = 4.0
FIRST_STEPS_S = 10.0
SETTLE_S = 5.0
"""After the first steps, so that memory is what it is in a run that goes on."""
DEADLINE_S = 60.0
ENDLESS = ("--set", "stop.stop_value=null", "--set", "stop.max_env_steps=1000000000")


def first_steps_s() -> float:
    """From the command until every collector has written a chunk."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        begin_s = time.perf_counter()
        with launched(CONFIG, run_dir, "--collectors", str(COLLECTORS), *ENDLESS):
            _wait_for_all(run_dir)
            return time.perf_counter() - begin_s


def memory_gib() -> float:
    """Proportional memory of the command, coordinator, nanny, learner, evaluator and all collectors while they work."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        with launched(CONFIG, run_dir, "--collectors", str(COLLECTORS), *ENDLESS) as process:
            _wait_for_all(run_dir)
            time.sleep(SETTLE_S)
            return sum(pss_bytes(process).values()) / 2**30


def _wait_for_all(run_dir: Path) -> None:
    seen: set[str] = set()

    def all_seen() -> bool:
        seen.update(collectors_seen(run_dir))
        return len(seen) == COLLECTORS

    until(all_seen, f"a chunk of each of {COLLECTORS} collectors", deadline_s=DEADLINE_S, pause_s=0.02)


def figures(peers: bool) -> list[Figure]:
    """Against limits that were set, not measured."""
    memory = compare(
        "many_collectors_memory", unit="GiB", goal="<= 1", ours=memory_gib, references={"limit": lambda: MEMORY_GIB}
    )
    start = compare(
        "many_collectors_start", unit="s", goal="<= 1", ours=first_steps_s, references={"limit": lambda: FIRST_STEPS_S}
    )
    return memory + start


if __name__ == "__main__":
    main(figures)
