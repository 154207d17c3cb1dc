"""`remuda train` and `remuda launch`: one run, in this process or with a coordinator and workers."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from remuda.cli.errors import InputError, RunFailedError, text_of
from remuda.cli.options import (
    AsJson,
    LimitOption,
    Name,
    Profile,
    RunOptions,
    named,
    parse_limits,
    print_changes,
    print_unused,
    with_run_options,
)
from remuda.cli.output import print_end, profile_folder, require_success, reserved_stdout, resume_hint
from remuda.cli.page import PageSwitch, check_page, launch_page

if TYPE_CHECKING:  # the runner brings torch, which --help does not need
    from remuda.client.beginning import ResolvedRun
    from remuda.deploy.nanny_process import NannyProcess
    from remuda.runner.serial import RunResult
    from remuda.wire.messages import ExperimentStatus

TRAIN_EXAMPLE = "remuda train examples/cartpole_dqn.yaml --seed 1 --run-id first"
LAUNCH_EXAMPLE = "remuda launch examples/cartpole_dqn.yaml --collectors 2"

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
                result = _trained(asked, lifeline)
            profiles.keep_in(result.run_dir, sys.stderr if as_json else None)
        if as_json:
            _print_json(result, output)
    if as_json:
        require_success(result.status, "train")
    else:
        print_end(result.status, asked.loaded.config, "train", explanation=result.explanation)


def _trained(asked: ResolvedRun, lifeline: int | None) -> RunResult:
    from remuda.worker.process import gc_frozen

    with gc_frozen():
        import_module("remuda.runner.serial")  # which `running.train` imports later
        from remuda.client import running
        from remuda.client.progress import shown_progress

    with shown_progress(asked.loaded.config) as show:
        say = partial(print, file=sys.stderr, flush=True)
        return running.train(asked, on_progress=show, say=say, lifeline=lifeline)


def _print_json(result: RunResult, output: TextIO) -> None:
    """Print the last status, in the form of `remuda status --json`."""
    import msgspec

    content: dict[str, object] = {**msgspec.to_builtins(result.status), "explanation": result.explanation}
    print(msgspec.json.encode(content).decode(), file=output, flush=True)


Collectors = Annotated[int | None, typer.Option(metavar="N", min=1, help="Short for --set collector.count=N.")]
Evaluators = Annotated[int | None, typer.Option(metavar="N", min=1, help="Short for --set evaluator.count=N.")]
Reanalyzers = Annotated[int | None, typer.Option(metavar="N", min=0, help="Short for --set reanalyzer.count=N.")]
On = Annotated[
    str | None,
    typer.Option(
        metavar="LAUNCHER",
        help="Short for --set launch.on=…: what starts the processes: local (this machine), an engine such as slurm, "
        "a launcher of an installed package by its name, or your own module:Class.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be run or submitted, and start nothing.")]


@with_run_options
def launch(
    run: RunOptions,
    context: typer.Context,
    name: Name = None,
    collectors: Collectors = None,
    evaluators: Evaluators = None,
    reanalyzers: Reanalyzers = None,
    on: On = None,
    limit: LimitOption = None,
    profile: Profile = False,
    page: PageSwitch = None,
    dry_run: DryRun = False,
) -> None:
    """Train with a coordinator and workers, here or on a cluster (--on); show progress, and
    end all processes with the run.

    A first Ctrl-C stops the run cleanly: the last checkpoint is saved and evaluated. A second Ctrl-C ends everything at
    once.
    """
    from remuda.worker.process import gc_frozen

    limits = limit or []
    parse_limits(limits)
    check_page(page)

    short = {
        "collector.count": collectors,
        "evaluator.count": evaluators,
        "reanalyzer.count": reanalyzers,
        "launch.on": None if on is None else json.dumps(on),
    }
    with gc_frozen():  # what is imported stays
        sets = [f"{key}={value}" for key, value in short.items() if value is not None]
        resolved = run.resolved(*named(name), *sets, opens=not dry_run, launches=True)
        import_module("remuda.client.checking")  # which `_check` needs; it runs code of the user, too
    if dry_run:
        _check(resolved)
        print(_planned(resolved, limits), end="")
        return
    with profile_folder(profile) as profiles:
        with resolved.shipped():
            _check(resolved)
            nanny = _nanny_for_local_run(context.obj, resolved)
            status = _launched(resolved, limits, profiles.folder, page, nanny)
        profiles.keep_in(Path(status.run_dir))
    print_end(status, resolved.loaded.config, "launch", options=_typed(limits))


def _typed(limits: Sequence[str]) -> list[str]:
    return [word for one in limits for word in ("--limit", one)]


def _nanny_for_local_run(nanny: NannyProcess | None, resolved: ResolvedRun) -> NannyProcess | None:
    """Return the nanny that was started before the config was known, for a run on this machine; else end the nanny."""
    from remuda.config.launching import LOCAL

    if nanny is None or resolved.loaded.config.launch.on == LOCAL:
        return nanny
    nanny.end()
    return None


def _check(resolved: ResolvedRun) -> None:
    """Check the input before anything is started or written. Raises UnusableError, UserCodeError."""
    from remuda.client.checking import check_launch
    from remuda.deploy.launcher import find_launcher

    config = resolved.loaded.config
    find_launcher(config.launch.on, source_dir=config.source_dir)
    check_launch(resolved.loaded, resolved.run_dir, resolved.on_exists)
    print_changes(resolved)
    print_unused(resolved)


def _planned(resolved: ResolvedRun, limits: Sequence[str]) -> str:
    from remuda.client import running
    from remuda.deploy.launcher import LaunchError

    try:
        return running.planned(resolved, limits=limits)
    except LaunchError as error:
        raise InputError(str(error)) from error


def _launched(
    resolved: ResolvedRun,
    limits: Sequence[str],
    profile: Path | None,
    page: bool | None,
    nanny: NannyProcess | None,
) -> ExperimentStatus:
    from remuda.client import running
    from remuda.client.progress import shown_progress
    from remuda.deploy.launcher import LaunchError
    from remuda.wire.conversation import UnreachableError

    def served(connection_file: Path) -> AbstractContextManager[None]:
        return launch_page(page, runs_dir=resolved.run_dir.parent, connection_file=connection_file)

    try:
        with shown_progress(resolved.loaded.config) as show:
            return running.launch(
                resolved,
                on_progress=show,
                say=lambda text: print(text, file=sys.stderr, flush=True),
                limits=limits,
                profile=profile,
                beside=served,
                nanny=nanny,
            )
    except (LaunchError, UnreachableError) as error:
        # the folder of a run that takes another name is not known here
        known = resolved.on_exists != "rename" and resolved.run_dir.is_dir()
        policies = resolved.loaded.config.policies
        again = resume_hint("launch", resolved.run_dir, policies, _typed(limits)) if known else ""
        raise RunFailedError(f"{text_of(error)}{again}") from error
