"""The longest turn of the coordinator's loop, in which nobody else is answered, where there is much to do.

The demo from its submission to its end; a start over a hundred past runs, and one to be taken up whose curves hold 100
MB each; and a thousand and ten thousand simulated collectors at work (see busy_collectors.py). The first two are real
processes: how long their turns took is what `remuda status` says. Leave the machine alone: a coordinator that is not
let run takes long turns, too. What it says of those, with its own processor time, is printed.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import msgspec

from remuda.benchmarks import busy_collectors
from remuda.benchmarks.effective_training import CONFIG as ENDLESS
from remuda.benchmarks.figure import Figure, Goal, main
from remuda.benchmarks.herd import ROOT, until
from remuda.benchmarks.served_herd import ServedHerd, served_herd
from remuda.config.load import load_config
from remuda.coordinator.measuring import LONG_TURN_S
from remuda.logbook.curve_file import CurveFile
from remuda.logbook.event_file import scalar_event
from remuda.training.run_snapshot import FinishedRun
from remuda.wire.messages import OVER

DEMO = ROOT / "examples" / "cartpole_dqn.yaml"
FINISHED_RUNS = 100
CURVE_BYTES = 100_000_000
EVENTS_AT_ONCE = 1_000
SCALARS = 4
CURVES = ("commander/commander_tb_logger", "learner/learner_tb_logger")
BEFORE_ENV_STEPS = 5_000
"""Of the run that is taken up."""
MORE_ENV_STEPS = 5_000
"""Which it must take afterwards."""
DEADLINE_S = 600.0


def demo(folder: Path) -> float:
    """In seconds; the demo goes on until it is solved or its steps are taken."""
    with served_herd(folder) as herd:
        with herd.client() as client:
            client.submit(load_config(DEMO).config)
        longest_s = 0.0

        def over() -> bool:
            nonlocal longest_s
            status = herd.status()
            if status is None:
                return False
            longest_s = status.coordinator.load.longest_turn_ever_s
            return status.experiments[0].state in OVER

        until(over, "the demo's end", deadline_s=DEADLINE_S, pause_s=0.5)
        return longest_s


def restart(folder: Path) -> float:
    """In seconds, until the run that was taken up has gone on for a while. The coordinator and all workers had died."""
    with served_herd(folder) as herd:
        with herd.client() as client:
            past = client.submit(load_config(ENDLESS, overrides=["name=past"]).config, run_dir="past")
            _until_env_step(herd, past.experiment, 1)
            client.stop(past.experiment, now=True)
            until(lambda: client.experiment(past.experiment).state in OVER, "a past run", deadline_s=DEADLINE_S)
            running = client.submit(load_config(ENDLESS).config)
        _until_env_step(herd, running.experiment, BEFORE_ENV_STEPS)
        herd.kill_coordinator()
    _multiply_finished(herd.runs / "coordinator.sqlite")
    for curve in CURVES:
        _grow(Path(running.run_dir) / "log" / curve)
    with served_herd(folder) as herd:
        _until_env_step(herd, running.experiment, BEFORE_ENV_STEPS + MORE_ENV_STEPS)
        time.sleep(5.0)  # it weighs itself that often
        status = herd.status()
        if status is None or len(status.experiments) <= FINISHED_RUNS:
            raise RuntimeError("the coordinator that was started again does not show all runs")
        return status.coordinator.load.longest_turn_ever_s


def _until_env_step(herd: ServedHerd, experiment: str, env_step: int) -> None:
    def there() -> bool:
        status = herd.status()
        return status is not None and any(e.id == experiment and e.env_step >= env_step for e in status.experiments)

    until(there, f"env_step {env_step}", deadline_s=DEADLINE_S, pause_s=0.1)


def _multiply_finished(listed: Path) -> None:
    """A hundred rows of the one run that is over, as if each were of its own."""
    with closing(sqlite3.connect(listed)) as db, db:
        (body,) = db.execute("select last from run where is_over and last is not null").fetchone()
        last = msgspec.msgpack.decode(body, type=FinishedRun)
        for number in range(FINISHED_RUNS - 1):
            id, run_dir = str(uuid4()), f"{last.identity.run_dir}_{number}"
            copy = msgspec.structs.replace(
                last,
                identity=msgspec.structs.replace(last.identity, id=id, run_dir=run_dir, submitted=-number - 1),
                last=msgspec.structs.replace(last.last, id=id, run_dir=run_dir),
            )
            row = (id, run_dir, msgspec.msgpack.encode(copy))
            db.execute("insert into run (experiment, run_dir, is_over, last) values (?, ?, 1, ?)", row)


def _grow(folder: Path) -> None:
    """Real events, all before the point from which the run goes on."""
    tags = {f"earlier_iter/value_{number}": float(number) for number in range(SCALARS)}
    block = b"".join(scalar_event(time.time(), step, tags) for step in range(EVENTS_AT_ONCE))
    with closing(CurveFile(folder, now_s=time.time)) as curve:
        for _ in range(CURVE_BYTES // len(block) + 1):
            curve.append(block, {"earlier_iter": EVENTS_AT_ONCE - 1})


def busy(collectors: int) -> Callable[[Path], float]:
    """The longest of all phases."""
    return lambda folder: max(busy_collectors.longest_turns(collectors, folder).values())


def figures(peers: bool) -> list[Figure]:
    """None of the systems compared with says what its longest turn is."""
    if peers:
        return []
    cases: dict[str, tuple[Callable[[Path], float], float]] = {
        "the demo": (demo, LONG_TURN_S),
        f"a start over {FINISHED_RUNS} past runs, curves of 100 MB": (restart, LONG_TURN_S),
        **{
            f"{size:,} busy collectors": (busy(size), busy_collectors.LONGEST_S[size]) for size in busy_collectors.SIZES
        },
    }
    return [_measured(name, case, most_s) for name, (case, most_s) in cases.items()]


def _measured(name: str, case: Callable[[Path], float], most_s: float) -> Figure:
    with tempfile.TemporaryDirectory() as folder:
        longest_s = case(Path(folder))
        _print_said(Path(folder))
    ratio, goal = longest_s / most_s, Goal.parse("<= 1")
    print(f"{name:50}  longest turn {longest_s:6.3f} s  (at most {most_s:.2f} s)", file=sys.stderr, flush=True)
    return Figure(f"turns: {name}", "s", longest_s, most_s, "at most", ratio, "<= 1", goal.met(ratio), 1)


def _print_said(folder: Path) -> None:
    """What the coordinator said of long turns."""
    with contextlib.suppress(FileNotFoundError):
        for line in re.findall(r"a turn of .*", (folder / "coordinator.log").read_text(errors="replace")):
            print(f"    {line}", file=sys.stderr)


if __name__ == "__main__":
    main(figures)
