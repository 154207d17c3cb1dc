"""`remuda train`: one run in this process."""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

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
from remuda.cli.output import print_end, profile_folder, require_success, reserved_stdout

if TYPE_CHECKING:  # the runner brings torch, which --help does not need
    from remuda.client.beginning import ResolvedRun
    from remuda.runner.serial import RunResult

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
                result = _run(asked, lifeline)
            profiles.keep_in(result.run_dir, sys.stderr if as_json else None)
        if as_json:
            _print_json(result, output)
    if as_json:
        require_success(result.status, "train")
    else:
        print_end(result.status, asked.loaded.config, "train", explanation=result.explanation)


def _run(asked: ResolvedRun, lifeline: int | None) -> RunResult:
    from remuda.worker.process import gc_frozen

    with gc_frozen():
        import_module("remuda.runner.serial")  # which `running.train` imports later
        from remuda.client import running
        from remuda.client.progress import shown_progress

    with shown_progress(asked.loaded.config.stop) as show:
        say = partial(print, file=sys.stderr, flush=True)
        return running.train(asked, on_progress=show, say=say, lifeline=lifeline)


def _print_json(result: RunResult, output: TextIO) -> None:
    """Print the last status, in the form of `remuda status --json`."""
    import msgspec

    content: dict[str, object] = {**msgspec.to_builtins(result.status), "explanation": result.explanation}
    print(msgspec.json.encode(content).decode(), file=output, flush=True)
