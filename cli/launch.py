"""`remuda launch`: parallel mode in one command."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, closing
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from remuda.cli.errors import InputError, RunFailedError
from remuda.cli.options import (
    LimitOption,
    Name,
    Profile,
    RunOptions,
    named,
    print_changes,
    print_unused,
    with_run_options,
)
from remuda.cli.page import PageSwitch, check_page, launch_page

if TYPE_CHECKING:
    from remuda.client.beginning import ResolvedRun
    from remuda.deploy.nanny_process import NannyProcess
    from remuda.wire.messages import ExperimentStatus

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
    """Run an experiment with a coordinator and workers, here or on a cluster (--on); show progress, and
    end all processes with the run.

    A first Ctrl-C stops the run cleanly: the last checkpoint is saved and evaluated. A second Ctrl-C ends everything at
    once.
    """
    from remuda.cli.options import parse_limits
    from remuda.cli.output import profile_folder
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
            status = _run(resolved, limits, profiles.folder, page, nanny)
        profiles.keep_in(Path(status.run_dir))
    from remuda.client.running import why_nothing_was_learned  # the run need not wait for what this imports

    unlearned = why_nothing_was_learned(resolved.loaded.config, reason=status.reason, train_iter=status.train_iter)
    _print_end(status, limits, unlearned)


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


def _run(
    resolved: ResolvedRun,
    limits: Sequence[str],
    profile: Path | None,
    page: bool | None,
    nanny: NannyProcess | None,
) -> ExperimentStatus:
    from remuda.client import running
    from remuda.client.progress import open_view
    from remuda.deploy.launcher import LaunchError
    from remuda.wire.conversation import UnreachableError

    def served(connection_file: Path) -> AbstractContextManager[None]:
        return launch_page(page, runs_dir=resolved.run_dir.parent, connection_file=connection_file)

    try:
        with closing(open_view(resolved.loaded.config.stop)) as view:
            return running.launch(
                resolved,
                on_progress=lambda status: view.update(status, time.monotonic()),
                say=lambda text: print(text, file=sys.stderr, flush=True),
                limits=limits,
                profile=profile,
                beside=served,
                nanny=nanny,
            )
    except (LaunchError, UnreachableError) as error:
        # the folder of a run that takes another name is not known here
        policies = resolved.loaded.config.policies
        known = resolved.on_exists != "rename"
        again = _resume_hint(resolved.run_dir, policies, limits) if known else ""
        raise RunFailedError(f"{error}{again}") from error


def _resume_hint(run_dir: Path, policies: Collection[str], limits: Sequence[str]) -> str:
    """Return a hint with the command to continue the run in `run_dir`; empty if a policy has no checkpoint."""
    from remuda.storage.run_folder import folder_of_policy

    folders = [folder_of_policy(run_dir, name) for name in policies or [""]]
    if not all((folder.ckpt / "index.json").exists() for folder in folders):
        return ""
    return f"\nto continue from the last checkpoint, type: {_resume_command(run_dir, limits)}"


def _resume_command(run_dir: Path, limits: Sequence[str], *, resumable: bool = True) -> str:
    from remuda.training.next_command import restart_command, resume_command

    command = resume_command if resumable else restart_command
    return command("launch", _shown(run_dir), options=[word for one in limits for word in ("--limit", one)])


def _shown(run_dir: Path) -> Path:
    """Return the shortest path to type."""
    return run_dir.relative_to(Path.cwd()) if run_dir.is_relative_to(Path.cwd()) else run_dir


def _print_end(status: ExperimentStatus, limits: Sequence[str] = (), unlearned: str | None = None) -> None:
    """Print the end of the run and the next commands; `unlearned` explains a run without updates."""
    from remuda.client.progress import commander_log, ending
    from remuda.page.process import is_installed
    from remuda.training.next_command import evaluate_command

    shown = _shown(Path(status.run_dir))
    print(ending(status))
    print(f"env_step {status.env_step}, train_iter {status.train_iter}, {status.wall_s:.1f} s")
    if unlearned is not None:
        print(f"warning: {unlearned}")
    print(f"run folder: {shown}")
    log = commander_log(status, shown)
    if status.state == "failed":
        again = _resume_hint(Path(status.run_dir), [one.name for one in status.policies], limits)
        raise RunFailedError(f"the run failed: {status.reason}\nread why in {log}{again}")
    begun = not _stopped_too_early(status)
    print("next:")
    bests = [status.best_return, *(one.best_return for one in status.policies)]
    if begun:
        print(f"  {evaluate_command(shown, has_best=any(best is not None for best in bests))}")
    print(f"  tensorboard --logdir {quote(str(shown / 'log'))}")
    print(f"  less {quote(str(log))}")
    if is_installed():
        print(f"  remuda page {quote(str(shown.parent))}")
    if status.state == "stopped":
        print(f"  {_resume_command(shown, limits, resumable=begun)}")


def _stopped_too_early(status: ExperimentStatus) -> bool:
    """True if the run was stopped before its first checkpoint. False for a run folder on another machine."""
    from remuda.storage.run_folder import folder_of_policy

    folders = [folder_of_policy(Path(status.run_dir), one.name) for one in status.policies]
    ckpts = [folder.ckpt for folder in folders or [folder_of_policy(Path(status.run_dir), "")]]
    return status.state == "stopped" and any(ckpt.is_dir() and not (ckpt / "index.json").exists() for ckpt in ckpts)
