"""`remuda launch`: parallel mode in one command."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from remuda.cli.errors import InputError, RefusedError, RunFailedError
from remuda.cli.options import LimitOption, Profile, ResolvedRun, RunOptions, with_run_options
from remuda.cli.resuming import tell_changes

if TYPE_CHECKING:
    from remuda.config.schema import ExperimentConfig
    from remuda.environments.spaces import Space
    from remuda.wire.messages import ExperimentStatus

Collectors = Annotated[int | None, typer.Option(metavar="N", min=1, help="Short for --set collector.count=N.")]
Evaluators = Annotated[int | None, typer.Option(metavar="N", min=1, help="Short for --set evaluator.count=N.")]
On = Annotated[Literal["local"], typer.Option(help="Where the processes run: on this machine.")]


@with_run_options
def launch(
    run: RunOptions,
    collectors: Collectors = None,
    evaluators: Evaluators = None,
    on: On = "local",
    limit: LimitOption = None,
    profile: Profile = False,
) -> None:
    """Run an experiment with a coordinator and a herd of workers, follow it to its end, and leave no process behind.

    A first Ctrl-C stops cleanly: the last checkpoint is saved and judged. A second one ends everything at once.
    """
    from remuda.cli.herd_limits import herd_limits
    from remuda.cli.profiles import kept_profiles

    limits = limit or []
    herd_limits(limits)

    counts = {"collector.count": collectors, "evaluator.count": evaluators}
    resolved = run.resolved(*(f"{key}={count}" for key, count in counts.items() if count is not None))
    _check(resolved)
    with kept_profiles(profile) as keeping:
        status = _run(resolved, limits, keeping.folder)
        keeping.keep_in(Path(status.run_dir))
    _tell(status, resolved.loaded.path)


def _check(resolved: ResolvedRun) -> None:
    """What can be wrong with the input is found before anything is started or written."""
    from remuda.storage.existing_folder import check

    check(resolved.run_dir, resolved.on_exists, mode="parallel")
    _check_devices(resolved)
    check_input(resolved)
    tell_changes(resolved)


def _check_devices(resolved: ResolvedRun) -> None:
    """All workers will run on this machine. Raises InputError for a device that it lacks."""
    config = resolved.loaded.config
    devices = {"learner.device": config.learner.device, "collector.device": config.collector.device}
    others = {setting: device for setting, device in devices.items() if device != "cpu"}
    if not others:
        return  # the import of torch takes over a second
    from remuda.policy.tensors import DeviceError, usable

    try:
        for setting, device in others.items():
            usable(device, setting=setting)
    except DeviceError as error:
        raise InputError(str(error)) from error


def check_input(resolved: ResolvedRun) -> None:
    """Build the environment once and see that the algorithm can act in it, with the weights that the run is to begin
    with. Raises InputError."""
    from remuda.environments.check import check_environment
    from remuda.environments.errors import EnvironmentBuildError
    from remuda.policy.algorithms import make_policy
    from remuda.policy.spaces import ActionSpec, ObservationSpec, UnsupportedSpaceError

    config, path = resolved.loaded.config, resolved.loaded.path
    try:
        observation, action = check_environment(config)
        make_policy(config, ObservationSpec.of(observation), ActionSpec.of(action))
    except (EnvironmentBuildError, UnsupportedSpaceError) as error:
        raise InputError(f"{path}: {error}") from error
    if resolved.on_exists == "resume":
        _check_resumed(resolved, observation, action)
    if config.learner.initialize_from is not None:
        _check_weights(Path(config.learner.initialize_from), resolved, observation, action)


def _check_resumed(resolved: ResolvedRun, observation: Space, action: Space) -> None:
    """Where the network may be another one, look whether the newest checkpoint fits it. Raises InputError."""
    from remuda.config.changes import changed_settings

    config = resolved.loaded.config
    if not any(line.startswith(("policy.", "env.")) for line in changed_settings(resolved.run_dir, config)):
        return  # the import of torch takes over a second
    from remuda.learner.start import continue_from, new_algorithm
    from remuda.policy.checkpoint_file import CheckpointError
    from remuda.policy.loading import find_checkpoint
    from remuda.storage.checkpoint_index import CheckpointIndexError

    try:
        continue_from(
            find_checkpoint(resolved.run_dir, "last"), new_algorithm(_on_cpu(config), observation, action), config
        )
    except (CheckpointError, CheckpointIndexError) as error:
        raise InputError(str(error)) from error


def _on_cpu(config: ExperimentConfig) -> ExperimentConfig:
    return config.model_copy(update={"learner": config.learner.model_copy(update={"device": "cpu"})})


def _check_weights(weights: Path, resolved: ResolvedRun, observation: Space, action: Space) -> None:
    """In a function of its own, as it takes the import of torch: over a second that other runs need not wait."""
    from remuda.learner.start import new_algorithm, take_weights
    from remuda.policy.checkpoint_file import CheckpointError

    config = resolved.loaded.config
    if resolved.on_exists != "resume":
        try:
            take_weights(weights, new_algorithm(_on_cpu(config), observation, action))
        except CheckpointError as error:
            raise InputError(f"{resolved.loaded.path}: {error}") from error
    if resolved.on_exists == "force" and weights.is_relative_to(resolved.run_dir):
        raise InputError(
            f"the weights {weights} lie in the folder that --force moves away: copy the file, or choose another run "
            "folder (--on-exists rename)"
        )


def _run(resolved: ResolvedRun, limits: Sequence[str], profile: Path | None) -> ExperimentStatus:
    from remuda.cli.progress import open_view
    from remuda.client import running
    from remuda.deploy.launcher import LaunchError
    from remuda.wire import conversation

    view = open_view(resolved.loaded.config.stop)
    try:
        return running.launch(
            resolved.loaded,
            run_dir=resolved.run_dir,
            on_exists=resolved.on_exists,
            on_progress=lambda status: view.update(status, time.monotonic()),
            on_silence=lambda text: print(text, file=sys.stderr, flush=True),
            limits=limits,
            profile=profile,
        )
    except conversation.RefusedError as error:
        raise (RefusedError if error.code == "protocol" else InputError)(str(error)) from error
    except (LaunchError, conversation.UnreachableError) as error:
        raise RunFailedError(str(error)) from error
    finally:
        view.close()


def _tell(status: ExperimentStatus, config: Path) -> None:
    """How it ended and what to type next."""
    from remuda.cli.progress import ending

    shown = Path(status.run_dir)
    if shown.is_relative_to(Path.cwd()):
        shown = shown.relative_to(Path.cwd())
    print(ending(status))
    print(f"env_step {status.env_step}, train_iter {status.train_iter}, {status.wall_s:.1f} s")
    print(f"run folder: {shown}")
    if status.state == "failed":
        raise RunFailedError(
            f"the run failed: {status.reason}\nread why in {shown / 'log' / 'commander' / 'commander_logger.txt'}"
        )
    typed = quote(str(shown))
    print("next:")
    print(f"  remuda evaluate {typed} -i best -n 20 -d")
    print(f"  tensorboard --logdir {quote(str(shown / 'log'))}")
    print(f"  less {quote(str(shown / 'log' / 'commander' / 'commander_logger.txt'))}")
    if status.state == "stopped":
        print(f"  remuda launch {quote(str(config))} --run-dir {typed} --resume")
