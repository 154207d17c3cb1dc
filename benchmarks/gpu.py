"""What a GPU is for, in eight minutes: updates beside the CPU and plain torch loops, runs beside LeanRL's, and a Pong.

Each part runs in a process of its own and has a deadline; what it printed before counts. Without a GPU the same parts
run on the CPU, and nothing is stored.

    python -m remuda.benchmarks.gpu                                      # all that `make gpu` measures
    python -m remuda.benchmarks.gpu --parts updates --cases pendulum_td3
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from tabulate import tabulate

from remuda.benchmarks import process
from remuda.benchmarks.figure import Figure, to_json
from remuda.benchmarks.in_run import at_env_step, rate_in_run
from remuda.benchmarks.learning.runs import PROGRESS, STEPS, curve_of
from remuda.benchmarks.machine import facts
from remuda.benchmarks.records import RESULTS, Record, parse, store
from remuda.benchmarks.updates import CASES, EXAMPLES, measured
from remuda.client.plots.runs import read_progress
from remuda.config.load import load_config

LEANRL = "LeanRL with torch.compile and CUDA graphs on an H100, as published"
FORMER = "the same on an H100 on 2026-11-27"
FORMER_PONG_STEPS_PER_S = 5_876.0
PERFECT, WORST = 21.0, -21.0
"""Returns of a game of Pong."""
GRACE_S = 70.0
"""For the start of a run, its last evaluation and its end."""


class Options(argparse.Namespace):
    """The command line."""

    part: str | None
    parts: list[str]
    cases: list[str]
    device: str | None
    measured_s: float
    results: Path | None


@dataclass(frozen=True)
class Part:
    """Figures that are measured in a process."""

    figures: Callable[[Options, str], Iterator[Figure]]
    """For a device."""
    deadline_s: float


def updates(options: Options, device: str) -> Iterator[Figure]:
    """Every algorithm at the sizes of examples."""
    return measured(options.cases, device, seconds=options.measured_s)


@dataclass(frozen=True)
class Published:
    """A run of LeanRL that was published with its steps per second, and our run of the same sizes."""

    config: Path
    settings: Sequence[str]
    warm_up: int
    """Environment steps before the measured ones."""
    steps_per_s: float


CHEETAH = (
    "env.num_envs=1",
    "buffer.min_rows=1000",
    "buffer.capacity=100000",
    "policy.random_env_steps=null",
    "learner.batch_size=256",
)
PUBLISHED = {
    "ppo": Published(  # eight games, 128 steps, 4 epochs of 4 minibatches
        Path(__file__).parent / "configs" / "pong_ppo.yaml",
        ("env.id=ALE/Breakout-v5", "env.num_envs=8", "collector.count=1"),
        8 * 1_024,
        6_809.0,
    ),
    "sac": Published(EXAMPLES / "half_cheetah_sac.yaml", CHEETAH, 1_500, 725.0),
    "td3": Published(EXAMPLES / "half_cheetah_sac.yaml", ("policy.type=td3", *CHEETAH), 1_500, 936.0),
}


def beside_leanrl(algorithm: str, options: Options, device: str) -> Iterator[Figure]:
    """Environment steps/s of a herd with one collector, while it learns: one update per step, or PPO's 16 per 1024."""
    published = PUBLISHED[algorithm]
    quiet = ("evaluator.episodes=0", "checkpoint.interval_env_steps=null", "stop.max_env_steps=1000000000")
    acts = "cpu" if algorithm != "ppo" else device  # for a single observation numpy is faster
    overrides = [*published.settings, *quiet, f"learner.device={device}", f"collector.device={acts}"]
    config = load_config(published.config, overrides=overrides).config
    ours = rate_in_run(config, at_env_step, warm_up=published.warm_up, window_s=10.0 * options.measured_s)
    yield _figure(f"{algorithm} on {device}: steps", "env steps/s", ours, published.steps_per_s, LEANRL)


def pong(options: Options, device: str) -> Iterator[Figure]:
    """A minute of PPO on Pong, evaluated before and after."""
    seconds = 40.0 * options.measured_s
    settings = ["env.num_envs=16", "policy.horizon_steps=64", "buffer.max_policy_lag=1"]
    settings += [f"learner.device={device}", f"collector.device={device}", f"stop.max_wall_s={seconds}"]
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        command = [sys.executable, "-m", "remuda.cli", "launch", str(EXAMPLES / "pong_ppo.yaml")]
        command += [word for setting in settings for word in ("--set", setting)]
        done = process.run([*command, "--run-dir", str(run_dir)], deadline_s=seconds + GRACE_S)
        if done.status != 0:
            raise RuntimeError(f"remuda launch ended with status {done.status}: {done.errors[-1_000:]}")
        steps = float(read_progress(run_dir / PROGRESS)[STEPS][-1])  # after the last evaluation
        curve = curve_of(run_dir)
    name = f"pong_ppo on {device}, {seconds:g} s"
    yield _figure(f"{name}: steps", "env steps/s", steps / seconds, FORMER_PONG_STEPS_PER_S, FORMER)
    if not curve:
        raise RuntimeError(f"no evaluation ended within {seconds:g} s and the grace after them")
    _, last = curve[-1]
    yield _figure(f"{name}: return above the worst", "points", last - WORST, PERFECT - WORST, "a perfect game")


PARTS = {
    "updates": Part(updates, 200.0),
    **{algorithm: Part(partial(beside_leanrl, algorithm), 45.0) for algorithm in PUBLISHED},
    "pong": Part(pong, 135.0),
}
"""Together 470 s."""


def _figure(name: str, unit: str, ours: float, reference: float, reference_name: str) -> Figure:
    return Figure(name, unit, ours, reference, reference_name, ours / reference, ">= 0", True, 1)


# --- the command


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table of all figures. Returns 1 if something was not measured, or weights are too far apart."""
    options = _parse(arguments)
    has_gpu = torch.cuda.is_available()
    device = options.device or ("cuda" if has_gpu else "cpu")
    if options.part is not None:
        for figure in PARTS[options.part].figures(options, device):
            print(to_json(figure), flush=True)
        return 0
    machine, date = facts(), datetime.datetime.now(datetime.UTC).date().isoformat()
    if device == "cpu":
        why = "there is a GPU" if has_gpu else f"torch {torch.__version__} finds no GPU on this machine"
        print(f"{why}; this is the CPU form: the same parts on the CPU, which say nothing about a GPU", flush=True)
    else:
        machine["gpu"] = torch.cuda.get_device_name(device)
    records: list[Record] = []
    failures: list[str] = []
    for name in options.parts:
        done = _run(name, options, device)
        records += parse(done.output.splitlines(), date=date, machine=machine)
        if done.status is None:
            failures.append(f"{name}: it was not done after {PARTS[name].deadline_s:g} s and was stopped")
        elif done.status:
            failures.append(f"{name}: it ended with status {done.status}: {_last_line(done.errors)}")
    print(table(records))
    missed = [record.name for record in records if not record.met]
    print("".join(f"missed: {name}\n" for name in missed), end="")
    print("".join(f"not measured: {line}\n" for line in failures), end="", flush=True)
    folder = options.results or (RESULTS / "gpu" if device != "cpu" else None)
    if folder is not None and records:
        print(f"stored in {store(records, kind='gpu', date=date, folder=folder)}")
    return 1 if failures or missed else 0


def table(records: Sequence[Record]) -> str:
    """Show a line per figure, with the reference and the ratio."""
    rows = [
        (one.name, f"{one.ours:.4g} {one.unit}", f"{one.reference:.4g}", one.reference_name, f"{one.ratio:.3g}")
        for one in records
    ]
    return tabulate(rows, headers=("figure", "ours", "reference", "", "ratio"), disable_numparse=True)


def _run(name: str, options: Options, device: str) -> process.Finished:
    deadline_s = PARTS[name].deadline_s
    print(f"--- {name}: at most {deadline_s:g} s", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "remuda.benchmarks.gpu", "--part", name, "--device", device]
    command += ["--measured-s", str(options.measured_s), "--cases", *options.cases]
    return process.run(command, deadline_s=deadline_s, environment=dict(os.environ))


def _last_line(text: str) -> str:
    return next(reversed(text.strip().splitlines()), "")


def _parse(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS), help="default: all")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES), help="default: all")
    parser.add_argument("--device", help="default: cuda, or cpu without a GPU")
    parser.add_argument("--measured-s", type=float, default=1.5, help="seconds per rate; runs take ten times")
    parser.add_argument("--results", type=Path, help="folder of the stored figures (default: results/gpu, with a GPU)")
    parser.add_argument("--part", choices=list(PARTS), help="measure this part in this process, one JSON line a figure")
    return parser.parse_args(arguments, namespace=Options())


if __name__ == "__main__":
    sys.exit(main())
