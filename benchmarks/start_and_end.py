"""How long the user waits for a command: from its start to the first environment step, and after the last update."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from remuda.benchmarks import process
from remuda.benchmarks.figure import Figure, Measure, compare, main
from remuda.benchmarks.herd import REMUDA
from remuda.benchmarks.noted_cartpole import ENV_ID, FILE
from remuda.benchmarks.peers import peer
from remuda.benchmarks.ppo_cartpole import CONFIG, ONE_COLLECTOR
from remuda.logbook.series import Event, read_series
from remuda.storage.run_folder import RunFolder

START_S, END_S, HELP_S = 2.0, 0.5, 0.3
TRAIN_ITERS = 160
"""Eight batches of 256 environment steps, 20 gradient updates each."""
DEADLINE_S = 120.0
IMPORTS = "import time, torch, gymnasium; print(repr(time.time()))"
"""The least that any of this needs."""

Way = Literal["train", "launch"]
WAYS: tuple[Way, ...] = ("train", "launch")


def figures(peers: bool) -> list[Figure]:
    """Against limits that were set, and beside bare imports: of torch and gymnasium, in a process that does no more."""
    found = compare("help", unit="s", goal="<= 1", ours=help_s, references={"limit": lambda: HELP_S})
    for way in WAYS:
        waits = _Waits(way)
        for name, most_s, ours, imports, theirs in (
            ("start", START_S, waits.start_s, imports_s, _theirs_from_start),
            ("end", END_S, waits.end_s, imports_end_s, _theirs_to_end),
        ):
            most: dict[str, Measure] = {"limit": partial(float, most_s)}
            found += compare(f"{name}_{way}", unit="s", goal="<= 1", ours=ours, references=most)
            others: dict[str, Measure] = {"bare imports": imports}
            if peers:
                others["stable-baselines3"] = theirs
            found += compare(f"{name}_{way}_beside", unit="s", goal=">= 0", ours=ours, references=others)
    return found


def help_s() -> float:
    """From the command to its end."""
    return _run([*REMUDA, "--help"]).took_s


def imports_s() -> float:
    """From the command until both are imported."""
    ran = _run([sys.executable, "-c", IMPORTS])
    return float(ran.output) - ran.began_s


def imports_end_s() -> float:
    """From then to the end of the process."""
    ran = _run([sys.executable, "-c", IMPORTS])
    return ran.ended_s - float(ran.output)


@dataclass
class _Waits:
    """Of runs of one command. Each run gives both times; either is asked for as often as the other."""

    way: Way
    _starts: deque[float] = field(default_factory=deque[float])
    _ends: deque[float] = field(default_factory=deque[float])

    def start_s(self) -> float:
        """From the command to its first environment step for learning."""
        if not self._starts:
            self._measure()
        return self._starts.popleft()

    def end_s(self) -> float:
        """From the last update to the prompt: a checkpoint is saved, and evaluated with ten episodes."""
        if not self._ends:
            self._measure()
        return self._ends.popleft()

    def _measure(self) -> None:
        start_s, end_s = waited(self.way)
        self._starts.append(start_s)
        self._ends.append(end_s)


def waited(way: Way) -> tuple[float, float]:
    """Run it once; returns the seconds before the first step and those after the last update."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir, noted = Path(folder) / "run", Path(folder) / "first_step"
        settings = [f"env.id={ENV_ID}", "stop.stop_value=null", f"stop.max_train_iters={TRAIN_ITERS}"]
        more = ONE_COLLECTOR if way == "launch" else ()
        command = [*REMUDA, way, str(CONFIG), "--run-dir", str(run_dir), *_sets(settings), *more]
        ran = _run(command, {FILE: str(noted)})
        first_s = float(noted.read_text(encoding="ascii"))
        records = read_series(RunFolder(run_dir).series)
        [last_s] = [record.time_s for record in records if isinstance(record, Event) and record.event == "run_ends"]
    return first_s - ran.began_s, ran.ended_s - last_s


@dataclass(frozen=True)
class _Ran:
    output: str
    began_s: float
    """Seconds since 1970."""
    ended_s: float

    @property
    def took_s(self) -> float:
        return self.ended_s - self.began_s


def _run(command: Sequence[str], variables: dict[str, str] | None = None) -> _Ran:
    began_s = time.time()
    done = process.run(command, deadline_s=DEADLINE_S, environment={**os.environ, **(variables or {})})
    ended_s = time.time()
    if done.status != 0:
        raise RuntimeError(f"{' '.join(command)} ended with status {done.status}: {done.errors[-1_000:]}")
    return _Ran(done.output, began_s, ended_s)


def _sets(settings: Sequence[str]) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


def _theirs_from_start() -> float:
    began_s = time.time()
    return peer("stable-baselines3", "start_and_end", "--noted", "first step")() - began_s


def _theirs_to_end() -> float:
    noted_s = peer("stable-baselines3", "start_and_end", "--noted", "last update")()
    return time.time() - noted_s


if __name__ == "__main__":
    main(figures)
