"""Runs from Python, from config to finished run folder: `train` in this process, `launch` with a herd."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.client.beginning import ResolvedRun, size_request, with_measured_sizes
from remuda.client.checking import check_address, with_agents
from remuda.client.client import Client
from remuda.config.load import LoadedConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.row_plan import row_plan
from remuda.wire.messages import ExperimentStatus
from remuda.wire.patience import Patience

if TYPE_CHECKING:
    from remuda.deploy.launcher import Launcher, WorkerCounts
    from remuda.deploy.nanny_process import NannyProcess
    from remuda.deploy.sizing import SizeRequest
    from remuda.learner.callbacks import CallbackLike
    from remuda.runner.serial import RunResult
    from remuda.worker.shutdown_guard import ShutdownGuard

RUNS_DIR = Path("runs")
TRAIN_GRACE_S = 60.0
"""Seconds to save the last checkpoint after Ctrl-C or SIGTERM, for a run in this process."""
LAUNCH_GRACE_S = 3_600.0
"""Seconds to save and evaluate the last checkpoint after a first Ctrl-C; longer than the limits of these steps."""
END_DEADLINE_S = 30.0
"""Longest time for processes to end after the run, before they are killed."""


def train(
    run: ResolvedRun,
    *,
    on_progress: Callable[[ExperimentStatus], None] = lambda status: None,
    say: Callable[[str], None] = lambda text: None,
    lifeline: int | None = None,
    stop: ShutdownGuard | None = None,
    callbacks: Sequence[CallbackLike] = (),
) -> RunResult:
    """Train in this process until a stop condition of the config, like `remuda train`.

    Args:
        run: the run to start; a run that was continued elsewhere from the bucket ends.
        on_progress: gets every status of the run.
        say: shows a line to the user, about measured sizes. Must not raise.
        lifeline: see ShutdownGuard.
        stop: ends the run. Without `stop`, Ctrl-C and SIGTERM save a checkpoint and end the run.
        callbacks: callbacks besides the config's callbacks.

    Raises the errors of remuda.runner.serial.run, and ConfigError.
    """
    from remuda.runner.serial import Start
    from remuda.runner.serial import run as run_serial
    from remuda.worker.shutdown_guard import ShutdownGuard

    with nullcontext(stop) if stop is not None else ShutdownGuard(lifeline=lifeline, grace_s=TRAIN_GRACE_S) as guard:
        if run.bucket is not None:
            run.bucket.when_moved(guard.end)
        loaded, request = run.loaded, size_request(run.loaded, serial=True)
        if request is not None:
            from remuda.deploy.sizing import measured

            loaded = _with_notes_shown(with_measured_sizes(loaded, request, measured(request)), say)
        start = Start(run.run_dir, run.on_exists, loaded.provenance, loaded.notes, callbacks)
        return run_serial(loaded.config, start, stop=guard, on_progress=on_progress)


def launch(
    run: ResolvedRun,
    *,
    on_progress: Callable[[ExperimentStatus], None] = lambda status: None,
    say: Callable[[str], None] = lambda text: None,
    limits: Sequence[str] = (),
    profile: Path | None = None,
    beside: Callable[[Path], AbstractContextManager[None]] = lambda connection_file: nullcontext(),
    nanny: NannyProcess | None = None,
) -> ExperimentStatus:
    """Train with a coordinator and workers of its own, like `remuda launch`.

    Call it in the main thread: Ctrl-C stops the run cleanly, a second Ctrl-C ends everything at once.

    Args:
        run: see `train`.
        on_progress: see `train`.
        say: shows a line to the user: about measured sizes, a long silence of the coordinator (with the same time limit
            as for workers), and messages of the launcher. Must not raise.
        limits: time limits for workers, for example `stuck_after_s=600` (see remuda.coordinator.settings.Limits).
        profile: a folder for the profiles of all processes.
        beside: called with the connection file after the submission; the returned context is active until the end of
            the run.
        nanny: a nanny that was started already, see LaunchRequest.

    Raises LaunchError, UnusableError, RefusedError, UnreachableError, ConnectionFileError, ConfigError, UserCodeError.
    """
    from remuda.deploy.launcher import entered
    from remuda.worker.shutdown_guard import ShutdownGuard

    loaded, request = run.loaded, size_request(run.loaded, serial=False)
    check_address(None if run.bucket is None else run.bucket.address, loaded.config.launch.on)
    launcher = _launcher(run, request, limits, profile, say, nanny)
    with ShutdownGuard(grace_s=LAUNCH_GRACE_S) as guard, entered(launcher):
        guard.on_forced_exit(launcher.kill)
        if run.bucket is not None:
            run.bucket.when_moved(guard.end)
        launcher.start(_workers(loaded.config), given_up=lambda: guard.ending)
        if request is not None:
            loaded = _with_notes_shown(
                with_measured_sizes(loaded, request, request.answer(launcher.connection_file.parent)), say
            )
        with Client(launcher.connection_file) as client:
            submitted = client.submit(  # first of all, so that the run's log says who joins the herd
                with_agents(loaded.config),
                run_dir=run.run_dir,
                on_exists=run.on_exists,
                provenance=loaded.provenance,
                notes=loaded.notes,
                check=launcher.check,
            )
            with beside(launcher.connection_file):
                patience = Patience(loaded.config.launch.coordinator_timeout_s, say)
                status = client.follow(
                    submitted.experiment,
                    on_progress,
                    check=launcher.check,
                    stop=lambda: guard.ending,
                    patience=patience,
                )
                client.shutdown("the run is over that this herd was launched for")
        launcher.wait_for_coordinator(END_DEADLINE_S)
        return status


def planned(run: ResolvedRun, *, limits: Sequence[str] = ()) -> str:
    """Return the launcher's description of a `launch`: commands or jobs. Starts and writes nothing.

    Raises UserCodeError, LaunchError, ConfigError.
    """
    request = size_request(run.loaded, serial=False)
    return _launcher(run, request, limits, None, lambda text: None).planned(_workers(run.loaded.config))


def _launcher(
    run: ResolvedRun,
    request: SizeRequest | None,
    limits: Sequence[str],
    profile: Path | None,
    say: Callable[[str], None],
    nanny: NannyProcess | None = None,
) -> Launcher:
    from remuda.deploy.launcher import LaunchRequest, make_launcher

    config = run.loaded.config
    asked = LaunchRequest(run.run_dir.parent, config.name, config.launch, limits, profile, say, request, nanny)
    return make_launcher(asked, source_dir=config.source_dir)


def _workers(config: ExperimentConfig) -> WorkerCounts:
    from remuda.deploy.launcher import WorkerCounts

    evaluators = config.evaluator.count if config.evaluator.episodes else 0
    learners = max(1, len(config.policies))
    return WorkerCounts(
        config.collector.count, evaluators, learners, config.reanalyzers, config.shared_inference.workers
    )


def _with_notes_shown(loaded: LoadedConfig, say: Callable[[str], None]) -> LoadedConfig:
    for note in loaded.notes:
        say(note)
    return loaded


def why_nothing_was_learned(config: ExperimentConfig, *, reason: str | None, train_iter: int) -> str | None:
    """Explain a run without updates, which ended for `reason` stop.max_env_steps at `train_iter` 0: return the number
    of steps required for an update. The end of such a run looks normal, although its policy is still the initial
    policy.

    Describes the first of several policies. Returns None for all remaining runs.
    """
    if train_iter or config.learner.inference or reason != "max_env_steps":
        return None
    own = config.of_policy(next(iter(config.policies))) if config.policies else config
    plan, buffer, batch_size = row_plan(own), own.buffer, own.learner.batch_size
    if plan.on_policy:
        steps = plan.slots_for(plan.rows_per_update)
        why = f"{plan.rows_per_update} segments of {plan.slots_per_row} steps"
        which = "policy.horizon_steps, env.num_envs or learner.segments_per_update"
    else:
        rows = buffer.min_rows + math.ceil(batch_size / (buffer.samples_per_insert or batch_size))
        steps = plan.slots_for(rows + plan.rows_held_back)
        kind = "sequences" if plan.overlapping else "rows"
        why = f"buffer.min_rows is {buffer.min_rows} {kind}, learner.batch_size {batch_size}"
        which = "these"
    return (
        f"nothing was learned: the first update needs about {steps} environment steps ({why}). Raise "
        f"stop.max_env_steps, or lower {which}"
    )
