"""`remuda train`: one experiment in this process."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from functools import partial
from importlib import import_module
from shlex import quote
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from remuda.cli.errors import RunFailedError
from remuda.cli.options import (
    AsJson,
    Name,
    Profile,
    RunOptions,
    named,
    print_changes,
    print_unused,
    with_run_options,
)
from remuda.cli.output import reserved_stdout

if TYPE_CHECKING:  # the runner brings torch, which --help does not need
    from remuda.client.beginning import ResolvedRun
    from remuda.runner.serial import RunResult
    from remuda.wire.messages import ExperimentStatus

EXAMPLE = "remuda train examples/cartpole_dqn.yaml --seed 1 --run-id first"

Lifeline = Annotated[int | None, typer.Option(hidden=True)]
"""Reading end of a pipe that breaks when the parent process ends; the run then stops as after Ctrl-C."""


@with_run_options
def train(
    run: RunOptions,
    name: Name = None,
    profile: Profile = False,
    as_json: AsJson = False,
    lifeline: Lifeline = None,
) -> None:
    """Train in this process until a stop condition of the config.

    Runs with the same seed give the same numbers. Ctrl-C saves a checkpoint and ends with exit code 0; a second Ctrl-C
    ends at once.

    With --resume a run continues from its newest checkpoint: weights, optimizer, counters, exploration, replay, best
    score and logs are restored. Unfinished episodes are lost; new episodes begin. Without CONFIG the run keeps all its
    settings: remuda train --resume --run-dir runs/first
    """
    from remuda.cli.output import profile_folder
    from remuda.worker.process import bound_threads, gc_frozen
    from remuda.worker.profile import profiled

    bound_threads()
    with gc_frozen():  # what is imported stays
        asked = run.resolved(*named(name))
    print_changes(asked)
    print_unused(asked)
    with reserved_stdout(alone=as_json) as output:
        with profile_folder(profile) as profiles:
            with asked.shipped(), profiled(profiles.folder, "serial"):
                result, status = _run(asked, lifeline)
            profiles.keep_in(result.run_dir, sys.stderr if as_json else None)
        if as_json:
            _print_json(result, status, output)
    _print_end(result, asked, quiet=as_json)


def _run(asked: ResolvedRun, lifeline: int | None) -> tuple[RunResult, ExperimentStatus]:
    """Run the experiment; return the result and the last status."""
    from remuda.worker.process import gc_frozen

    with gc_frozen():
        import_module("remuda.runner.serial")  # which `running.train` imports later
        from remuda.client import running
        from remuda.client.progress import open_view

    last: list[ExperimentStatus] = []

    def show(status: ExperimentStatus) -> None:
        last[:] = [status]
        view.update(status, time.monotonic())

    with closing(open_view(asked.loaded.config.stop)) as view:
        say = partial(print, file=sys.stderr, flush=True)
        result = running.train(asked, on_progress=show, say=say, lifeline=lifeline)
        return result, last[0]


def _print_json(result: RunResult, status: ExperimentStatus, output: TextIO) -> None:
    """Print the last status, in the form of `remuda status --json`."""
    import msgspec

    content: dict[str, object] = {**msgspec.to_builtins(status), "explanation": result.explanation}
    print(msgspec.json.encode(content).decode(), file=output, flush=True)


def _print_end(result: RunResult, asked: ResolvedRun, *, quiet: bool) -> None:
    """Print the end of the run and the next commands."""
    from remuda.client.running import why_nothing_was_learned
    from remuda.training.next_command import evaluate_command, resume_command

    counters, best = result.counters, result.best
    if result.failed:
        bests = [best, *(own.best for own in result.policies.values())]
        resumable = any(one is not None for one in bests)
        again = resume_command("train", result.run_dir)
        saved = f"\nWhat was learned is saved. When the cause is fixed, type: {again}" if resumable else ""
        first = next(iter(result.policies), "")  # each of several policies has the traceback
        log = result.run_dir / "log" / first / "evaluator" / "evaluator_logger.txt"
        raise RunFailedError(f"The run failed: {result.reason}\nThe traceback is in {log}.{saved}")
    if quiet:
        return
    explained = "" if result.explanation == result.reason else f": {result.explanation}"
    print(f"ended      {result.reason}{explained}")
    print(f"counters   env_step {counters.env_step}, train_iter {counters.train_iter}, {counters.wall_s:.1f} s")
    unlearned = why_nothing_was_learned(asked.loaded.config, reason=result.reason, train_iter=counters.train_iter)
    if unlearned is not None:
        print(f"warning    {unlearned}")
    if not result.policies:
        print("best       " + ("none" if best is None else f"mean return {best.reward_mean:.6g}, {best.record.file}"))
    for name, own in result.policies.items():
        of = own.best
        best_one = "none" if of is None else f"mean return {of.reward_mean:.6g}, ckpt/{name}/{of.record.file}"
        print(f"{name:10} train_iter {own.counters.train_iter}, best {best_one}")
    print(f"run folder {result.run_dir}")
    has_best = best is not None or any(own.best is not None for own in result.policies.values())
    print("\nType next:")
    print(f"  {evaluate_command(result.run_dir, has_best=has_best)}")
    curves = result.run_dir / "log" if result.policies else result.run_dir / "log" / "serial"
    print(f"  tensorboard --logdir {quote(str(curves))}")
    if result.reason == "stopped":
        print(f"  {resume_command('train', result.run_dir)}")
