"""`remuda launch`: parallel mode in one command."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from remuda.cli.errors import InputError, RefusedError, RunFailedError
from remuda.cli.options import (
    DEFAULT_RUNS_DIR,
    ConfigPath,
    Device,
    Force,
    Inference,
    InitializeFrom,
    OnExistsOption,
    Profile,
    ResolvedRun,
    Resume,
    RunDir,
    RunId,
    RunsDir,
    Seed,
    Sets,
    resolve_run,
)

if TYPE_CHECKING:
    from remuda.client.client import Client
    from remuda.deploy.local import LocalLauncher
    from remuda.environments.spaces import Space
    from remuda.wire.messages import ExperimentStatus, Submitted
    from remuda.worker.life import Life

END_DEADLINE_S = 30.0
"""How long processes may take to end after the run is over, before they are ended."""
INTERRUPT_GRACE_S = 900.0
"""A first Ctrl-C saves and judges a last checkpoint; this is the last resort behind the deadlines of those steps."""

Collectors = Annotated[int | None, typer.Option(metavar="N", min=1, help="Short for --set collector.count=N.")]
Evaluators = Annotated[int | None, typer.Option(metavar="N", min=1, help="Short for --set evaluator.count=N.")]
On = Annotated[Literal["local"], typer.Option(help="Where the processes run: on this machine.")]


def launch(
    config: ConfigPath,
    collectors: Collectors = None,
    evaluators: Evaluators = None,
    on: On = "local",
    sets: Sets = None,
    seed: Seed = None,
    device: Device = None,
    run_dir: RunDir = None,
    run_id: RunId = None,
    runs_dir: RunsDir = DEFAULT_RUNS_DIR,
    on_exists: OnExistsOption = None,
    resume: Resume = False,
    force: Force = False,
    initialize_from: InitializeFrom = None,
    inference: Inference = False,
    profile: Profile = False,
) -> None:
    """Run an experiment with a coordinator and a herd of workers, follow it to its end, and leave no process behind.

    A first Ctrl-C stops cleanly: the last checkpoint is saved and judged. A second one ends everything at once.
    """
    from remuda.cli.profiles import kept_profiles

    counts = {"collector.count": collectors, "evaluator.count": evaluators}
    extra = [f"{key}={count}" for key, count in counts.items() if count is not None]
    resolved = resolve_run(
        config,
        sets=[*(sets or ()), *extra],
        seed=seed,
        device=device,
        run_dir=run_dir,
        run_id=run_id,
        runs_dir=runs_dir,
        on_exists=on_exists,
        resume=resume,
        force=force,
        initialize_from=initialize_from,
        inference=inference,
    )
    _check(resolved)
    with kept_profiles(profile) as keeping:
        status = _run(resolved, keeping.folder)
        keeping.keep_in(Path(status.run_dir))
    _tell(status)


def _check(resolved: ResolvedRun) -> None:
    """What can be wrong with the input is found before anything is started or written."""
    from remuda.storage.run_folder import check

    check(resolved.run_dir, resolved.on_exists, mode="parallel")
    check_input(resolved)


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
    if config.learner.initialize_from is not None:
        _check_weights(Path(config.learner.initialize_from), resolved, observation, action)


def _check_weights(weights: Path, resolved: ResolvedRun, observation: Space, action: Space) -> None:
    """In a function of its own, as it takes the import of torch: over a second that other runs need not wait."""
    from remuda.learner.start import new_algorithm, take_weights
    from remuda.policy.checkpoint_file import CheckpointError

    config = resolved.loaded.config
    if resolved.on_exists != "resume":
        on_cpu = config.model_copy(update={"learner": config.learner.model_copy(update={"device": "cpu"})})
        try:
            take_weights(weights, new_algorithm(on_cpu, observation, action))
        except CheckpointError as error:
            raise InputError(f"{resolved.loaded.path}: {error}") from error
    if resolved.on_exists == "force" and weights.is_relative_to(resolved.run_dir):
        raise InputError(
            f"the weights {weights} lie in the folder that --force moves away: copy the file, or choose another run "
            "folder (--on-exists rename)"
        )


def _run(resolved: ResolvedRun, profile: Path | None) -> ExperimentStatus:
    from remuda.client.client import Client
    from remuda.deploy.launcher import Herd, LaunchError
    from remuda.deploy.local import LocalLauncher
    from remuda.wire import conversation
    from remuda.worker.life import Life

    config = resolved.loaded.config
    evaluators = config.evaluator.count if config.evaluator.episodes else 0
    herd = Herd(collectors=config.collector.count, evaluators=evaluators)
    try:
        launcher = LocalLauncher(resolved.run_dir.parent, profile=profile)
        with Life(grace_s=INTERRUPT_GRACE_S) as life, launcher:
            life.on_forced_exit(launcher.kill)
            launcher.start(herd)
            with Client(launcher.connection_file) as client:
                submitted = client.submit(
                    config,
                    run_dir=resolved.run_dir,
                    on_exists=resolved.on_exists,
                    provenance=resolved.loaded.provenance,
                )
                status = _follow(client, submitted, launcher, life, resolved)
                client.shutdown("the run is over")
            launcher.wait_for_coordinator(END_DEADLINE_S)
            return status
    except conversation.RefusedError as error:
        raise (RefusedError if error.code == "protocol" else InputError)(str(error)) from error
    except (LaunchError, conversation.UnreachableError) as error:
        raise RunFailedError(str(error)) from error


def _follow(
    client: Client, submitted: Submitted, launcher: LocalLauncher, life: Life, resolved: ResolvedRun
) -> ExperimentStatus:
    """Show progress until the run is over; pass the first Ctrl-C on."""
    from remuda.cli.progress import open_view

    view = open_view(resolved.loaded.config.stop)
    stopping = False

    def check() -> None:
        nonlocal stopping
        launcher.check()
        if life.ending and not stopping:
            stopping = True
            client.stop(submitted.experiment)

    try:
        return client.follow(submitted.experiment, lambda status: view.update(status, time.monotonic()), check=check)
    finally:
        view.close()


def _tell(status: ExperimentStatus) -> None:
    """How it ended and what to type next."""
    shown = Path(status.run_dir)
    if shown.is_relative_to(Path.cwd()):
        shown = shown.relative_to(Path.cwd())
    best = "none" if status.best_return is None else f"{status.best_return:.2f}"
    print(f"{status.name} {status.state}: {status.reason}; best return {best}")
    print(f"env_step {status.env_step}, train_iter {status.train_iter}, {status.wall_s:.1f} s")
    print(f"run folder: {shown}")
    if status.state == "failed":
        raise RunFailedError(
            f"the run failed: {status.reason}\nread why in {shown / 'log' / 'commander' / 'commander_logger.txt'}"
        )
    print("next:")
    print(f"  remuda evaluate {shown} -i best -n 20 -d")
    print(f"  tensorboard --logdir {shown / 'log'}")
    print(f"  less {shown / 'log' / 'commander' / 'commander_logger.txt'}")
