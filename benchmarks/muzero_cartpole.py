"""Seconds and environment steps from the start of training until MuZero has solved CartPole-v0, beside LightZero.

With LightZero's settings, in one process (`train`) and as a herd (`launch`), and with those of the example that is made
for speed, in one process (`fast`). It is solved when ten evaluation episodes have a mean return of 195.
"""

from __future__ import annotations

import functools
import math
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from remuda.benchmarks import process
from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.peers import printed
from remuda.benchmarks.rounds import Rounds, Run
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder

ROOT = Path(__file__).resolve().parents[1]
SEEDS = 5
STOP_VALUE = 195.0
DEADLINE_S = PEER_CAP_S = 480.0
"""A run of the peer's that is not over by then counts as this long, which flatters it."""
PEER_DEADLINE_S = PEER_CAP_S + 180.0
"""Its start and its end are not counted, and may take some time as well."""


@dataclass(frozen=True)
class Way:
    """One way to train, and the share of the peer's time, and of its steps, that it may take."""

    command: Literal["train", "launch"]
    config: Path
    goal: str
    steps_goal: str
    settings: tuple[str, ...] = ()


_LIKE_THEIRS = ROOT / "examples" / "cartpole_muzero.yaml"
_FAST = ROOT / "examples" / "cartpole_gumbel_muzero.yaml"
WAYS = {
    "train": Way("train", _LIKE_THEIRS, "<= 0.25", "<= 1"),
    "launch": Way("launch", _LIKE_THEIRS, "<= 0.25", "<= 1"),
    "fast": Way("train", _FAST, "<= 0.1", ">= 0", ("env.id=CartPole-v0", f"stop.stop_value={STOP_VALUE:g}")),
}


def figures(peers: bool) -> list[Figure]:
    """All ways and the peer run seed 0, then seed 1, and so on to 4."""
    if not peers:
        return []
    rounds = Rounds({**{name: functools.partial(ours, way) for name, way in WAYS.items()}, "lightzero": theirs})

    def compared(name: str, unit: str, goal: str, way: str, what: Callable[[Run], float]) -> list[Figure]:
        references = {"lightzero": rounds.measure("lightzero", what)}
        return compare(name, unit=unit, goal=goal, ours=rounds.measure(way, what), references=references, n=SEEDS)

    found: list[Figure] = []
    for name, way in WAYS.items():
        found += compared(f"muzero_cartpole_{name}", "s", way.goal, name, lambda run: run.seconds)
        figure = f"muzero_cartpole_{name}, env steps"
        found += compared(figure, "env steps", way.steps_goal, name, lambda run: run.env_steps)
    return found


def ours(way: Way, seed: int) -> Run:
    """Run the command as a user types it, and say on stderr what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "remuda.cli", way.command, str(way.config), "--seed", str(seed)]
        settings = [word for setting in way.settings for word in ("--set", setting)]
        done = process.run([*command, "--run-dir", f"{folder}/run", *settings], deadline_s=DEADLINE_S)
        if done.status not in (0, None):
            raise RuntimeError(f"remuda {way.command} ended with status {done.status}: {done.errors[-1_000:]}")
        run = solved(RunFolder(Path(folder) / "run"))
    _say(f"{way.config.stem}, {way.command}", seed, run)
    return run


def solved(folder: RunFolder) -> Run:
    """By the run's own clock and counter when it saves its last checkpoint, right after the evaluation that ends it."""
    checkpoints = CheckpointIndex(folder.ckpt)
    best, last = checkpoints.best, checkpoints.last
    if best is None or last is None or best.reward is None or best.reward < STOP_VALUE:
        return Run(math.inf, math.inf)
    return Run(last.wall_s, last.env_step)


def theirs(seed: int) -> Run:
    """By the script's clock, from its learner's first hook to its last. Raises ReferenceFailedError."""
    arguments = ("--seed", str(seed), "--cap", str(PEER_CAP_S))
    line = printed("lightzero", "cartpole_muzero", *arguments, deadline_s=PEER_DEADLINE_S)
    run = Run(line.value, line.env_steps)
    _say("lightzero" if line.reached else "lightzero, cut off", seed, run)
    return run


def _say(who: str, seed: int, run: Run) -> None:
    print(f"{who}, seed {seed}: {run.seconds:.1f} s, {run.env_steps:g} env steps", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(figures)
