"""How long the user waits: for `remuda --help`, and from `remuda launch` until environments step."""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.herd import REMUDA, collectors_seen, launched, until

CONFIG = "examples/cartpole_dqn.yaml"
HELP_S = 0.3
FIRST_STEP_S = 4.0
DEADLINE_S = 60.0


def help_s() -> float:
    """From the command to its end."""
    begin_s = time.perf_counter()
    subprocess.run([*REMUDA, "--help"], stdout=subprocess.DEVNULL, check=True, timeout=DEADLINE_S)
    return time.perf_counter() - begin_s


def first_step_s() -> float:
    """From the command until the first chunk lies in data/: 64 environment steps after the first."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        begin_s = time.perf_counter()
        with launched(CONFIG, run_dir):
            until(lambda: bool(collectors_seen(run_dir)), "the first chunk", deadline_s=DEADLINE_S)
            return time.perf_counter() - begin_s


def figures(peers: bool) -> list[Figure]:
    """Against limits that were set, not measured."""
    return [
        *compare("help", unit="s", goal="<= 1", ours=help_s, references={"limit": lambda: HELP_S}),
        *compare(
            "launch_to_first_step", unit="s", goal="<= 1", ours=first_step_s, references={"limit": lambda: FIRST_STEP_S}
        ),
    ]


if __name__ == "__main__":
    main(figures)
