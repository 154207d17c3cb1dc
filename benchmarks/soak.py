"""Whether a run keeps its pace and its memory: `remuda launch` for a while, watched from outside.

`make soak` runs it for half an hour (`REMUDA_SOAK_MINUTES`); `make bench` has a short form.
"""

from __future__ import annotations

import os
import re
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.herd import launched, pss_bytes, until

CONFIG = "examples/cartpole_dqn.yaml"
ENDLESS = (
    *("--set", "stop.stop_value=null", "--set", "stop.max_env_steps=1000000000"),
    *("--set", "buffer.capacity=20000", "--set", "log.progress_interval_env_steps=1000"),
    *("--set", "evaluator.interval_env_steps=1000000000"),
)
"""No evaluations: they take longer the better the policy plays, which is no loss of pace."""
SHORT_MINUTES = 2.0
SAMPLES = 60
"""In all, evenly spread."""
EDGE = 1 / 6
"""Share of the time at the start and at the end whose paces are compared: five minutes of thirty."""
LEAST_PACE = 0.95
MOST_GROWTH = 1.05
"""Memory at the end against memory at first, the buffer being full: what `flat` means to a measurement with noise."""
WARM_UP_ENV_STEPS = 20_000
"""The buffer is full by then, and actions are chosen by the network, no longer at random, which takes less."""
START_DEADLINE_S = 120.0


@dataclass
class Watched:
    """What was seen of one run."""

    at_s: list[float] = field(default_factory=list[float])
    env_steps: list[int] = field(default_factory=list[int])
    pss_mib: list[float] = field(default_factory=list[float])
    processes: list[int] = field(default_factory=list[int])

    def pace_ratio(self) -> float:
        """Environment steps/s of the last stretch against those of the first."""
        edge = max(1, round(EDGE * (len(self.at_s) - 1)))
        return self._pace(-1 - edge, -1) / self._pace(0, edge)

    def memory_growth(self) -> float:
        """Memory of the last stretch against that of the first."""
        edge = max(1, round(EDGE * len(self.pss_mib)))
        return statistics.median(self.pss_mib[-edge:]) / statistics.median(self.pss_mib[:edge])

    def memory_mib_per_hour(self) -> float:
        """Slope of a line through all samples."""
        return statistics.linear_regression([at_s / 3600 for at_s in self.at_s], self.pss_mib).slope

    def _pace(self, begin: int, end: int) -> float:
        return (self.env_steps[end] - self.env_steps[begin]) / (self.at_s[end] - self.at_s[begin])


def watch(minutes: float) -> Watched:
    """Launch, wait until the buffer is full, then look at steps and memory in even distances."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        with launched(CONFIG, run_dir, *ENDLESS) as process:
            until(lambda: _env_step(run_dir) >= WARM_UP_ENV_STEPS, "a full buffer", deadline_s=START_DEADLINE_S)
            seen, begin_s = Watched(), time.monotonic()
            for number in range(SAMPLES + 1):
                time.sleep(max(0.0, begin_s + 60 * minutes * number / SAMPLES - time.monotonic()))
                if process.poll() is not None:
                    raise RuntimeError(f"the run ended by itself with exit code {process.returncode}")
                pss = pss_bytes(process)
                seen.at_s.append(time.monotonic() - begin_s)
                seen.env_steps.append(_env_step(run_dir))
                seen.pss_mib.append(sum(pss.values()) / 2**20)
                seen.processes.append(len(pss))
                _show(seen)
    return seen


def _env_step(run_dir: Path) -> int:
    """As of the newest row of progress.txt; 0 before there is one."""
    try:
        header, *rows = (run_dir / "progress.txt").read_text().splitlines()
    except (FileNotFoundError, ValueError):
        return 0
    return int(rows[-1].split("\t")[re.split("\t", header).index("TotalEnvInteracts")]) if rows else 0


def _show(seen: Watched) -> None:
    line = (
        f"{seen.at_s[-1]:7.1f} s  env_step {seen.env_steps[-1]:>9}  {seen.pss_mib[-1]:7.1f} MiB in {seen.processes[-1]}"
    )
    print(line, file=sys.stderr, flush=True)


def figures(peers: bool) -> list[Figure]:
    """Against limits that were set. One run gives all of them."""
    minutes = float(os.environ.get("REMUDA_SOAK_MINUTES", SHORT_MINUTES))
    seen = watch(minutes)
    print(f"memory grows by {seen.memory_mib_per_hour():.1f} MiB an hour", file=sys.stderr)
    pace = compare(
        f"soak_pace, {minutes:g} min",
        unit="last/first steps/s",
        goal=f">= {LEAST_PACE}",
        ours=seen.pace_ratio,
        references={"as at first": lambda: 1.0},
        n=1,
    )
    memory = compare(
        f"soak_memory, {minutes:g} min",
        unit="last/full MiB",
        goal=f"<= {MOST_GROWTH}",
        ours=seen.memory_growth,
        references={"flat": lambda: 1.0},
        n=1,
    )
    return pace + memory


if __name__ == "__main__":
    main(figures)
