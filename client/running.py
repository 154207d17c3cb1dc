"""Experiments from Python, from config to finished run folder: `train` in this process, `launch` with a herd."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.client.agents import with_agents
from remuda.client.client import Client
from remuda.config.load import LoadedConfig, Origin, load_config
from remuda.config.schema import ExperimentConfig
from remuda.storage.existing_folder import OnExists
from remuda.wire.messages import ExperimentStatus
from remuda.wire.patience import Patience

if TYPE_CHECKING:  # they import torch
    from remuda.deploy.launcher import Launcher, WorkerCounts
    from remuda.runner.components import StopRequest
    from remuda.runner.serial import RunResult

Config = ExperimentConfig | LoadedConfig | str | os.PathLike[str]
"""A config, or the file that has one."""

RUNS_DIR = Path("runs")
TRAIN_GRACE_S = 60.0
"""Seconds to save the last checkpoint after Ctrl-C or SIGTERM, for a run in this process."""
LAUNCH_GRACE_S = 3_600.0
"""Seconds to save and evaluate the last checkpoint after a first Ctrl-C; longer than the limits of these steps."""
END_DEADLINE_S = 30.0
"""How long processes may take to end after the run, before they are killed."""


@dataclass(frozen=True)
class _Given:
    config: ExperimentConfig
    provenance: Mapping[str, Origin]
    run_dir: Path


def train(
    config: Config,
    *,
    run_dir: str | os.PathLike[str] | None = None,
    on_exists: OnExists = "error",
    overrides: Sequence[str] = (),
    on_progress: Callable[[ExperimentStatus], None] = lambda status: None,
    stop: StopRequest | None = None,
) -> RunResult:
    """Train in this process until a stop condition of the config is reached, as `remuda train` does.

    Args:
        config: a config, or the file that holds one.
        run_dir: the run folder; the default is `runs/<name>`.
        on_exists: what to do with a run folder that is already there, see `remuda.train`.
        overrides: settings as `a.b=value`, for a config that is loaded from a file.
        on_progress: gets each status of the run.
        stop: ends the run; needed outside the main thread (see remuda.worker.shutdown_guard.ShutdownGuard). Without it,
            Ctrl-C and SIGTERM save a checkpoint and end the run.

    Raises what remuda.runner.serial.run raises, and ConfigError.
    """
    from remuda.runner.serial import Start, run
    from remuda.worker.shutdown_guard import ShutdownGuard

    given = _given(config, run_dir, overrides)
    with ExitStack() as stack:
        asked = stop if stop is not None else stack.enter_context(ShutdownGuard(grace_s=TRAIN_GRACE_S))
        start = Start(given.run_dir, on_exists, given.provenance)
        return run(given.config, start, stop=asked, on_progress=on_progress)


def launch(
    config: Config,
    *,
    run_dir: str | os.PathLike[str] | None = None,
    on_exists: OnExists = "error",
    overrides: Sequence[str] = (),
    on_progress: Callable[[ExperimentStatus], None] = lambda status: None,
    say: Callable[[str], None] = lambda text: None,
    limits: Sequence[str] = (),
    profile: Path | None = None,
    beside: Callable[[Path], AbstractContextManager[None]] = lambda connection_file: nullcontext(),
) -> ExperimentStatus:
    """Run an experiment with its own coordinator and herd, as `remuda launch` does.

    Call it in the main thread: Ctrl-C stops the run cleanly, a second one ends everything at once.

    Args:
        config: as for `train`; also `run_dir`, `on_exists`, `overrides` and `on_progress`.
        run_dir: see `train`.
        on_exists: see `train`.
        overrides: see `train`.
        on_progress: see `train`.
        say: shows a line to the user: that the coordinator has been silent for long (it is waited for as long as its
            workers do), or what the launcher has to tell. Must not raise.
        limits: time limits for workers, such as `stuck_after_s=600` (see remuda.coordinator.limits.Limits).
        profile: a folder into which every process writes a profile.
        beside: is given the connection file once the run is submitted; what it returns is entered until the run is
            over.

    Raises LaunchError, RefusedError, UnreachableError, ConnectionFileError, ConfigError, UserCodeError.
    """
    from remuda.worker.shutdown_guard import ShutdownGuard

    given = _given(config, run_dir, overrides)
    launcher = _launcher(given, limits, profile, say)
    with ShutdownGuard(grace_s=LAUNCH_GRACE_S) as guard, launcher:
        guard.on_forced_exit(launcher.kill)
        launcher.start(_workers(given.config), given_up=lambda: guard.ending)
        with Client(launcher.connection_file) as client:
            submitted = client.submit(  # first of all, so that the run's log says who joins the herd
                with_agents(given.config), run_dir=given.run_dir, on_exists=on_exists, provenance=given.provenance
            )
            with beside(launcher.connection_file):
                patience = Patience(given.config.launch.coordinator_timeout_s, say)
                status = client.follow(
                    submitted.experiment,
                    on_progress,
                    check=launcher.check,
                    stop=lambda: guard.ending,
                    patience=patience,
                )
                client.shutdown("the run is over")
        launcher.wait_for_coordinator(END_DEADLINE_S)
        return status


def planned(
    config: Config,
    *,
    run_dir: str | os.PathLike[str] | None = None,
    overrides: Sequence[str] = (),
    limits: Sequence[str] = (),
) -> str:
    """What `launch` would run or submit, as its launcher shows it; nothing is started or written.

    Raises UserCodeError, LaunchError, ConfigError.
    """
    given = _given(config, run_dir, overrides)
    return _launcher(given, limits, None, lambda text: None).planned(_workers(given.config))


def _launcher(given: _Given, limits: Sequence[str], profile: Path | None, say: Callable[[str], None]) -> Launcher:
    from remuda.deploy.launcher import LaunchRequest
    from remuda.deploy.launchers import make_launcher

    config = given.config
    request = LaunchRequest(given.run_dir.parent, config.name, config.launch, limits, profile, say)
    return make_launcher(request, source_dir=config.source_dir)


def _workers(config: ExperimentConfig) -> WorkerCounts:
    from remuda.deploy.launcher import WorkerCounts

    evaluators = config.evaluator.count if config.evaluator.episodes else 0
    reanalyzers = config.reanalyzer.count if config.policy.reanalyzed_share else 0
    learners = max(1, len(config.policies))
    return WorkerCounts(config.collector.count, evaluators, learners, reanalyzers)


def _given(config: Config, run_dir: str | os.PathLike[str] | None, overrides: Sequence[str]) -> _Given:
    if isinstance(config, ExperimentConfig | LoadedConfig) and overrides:
        raise ValueError("overrides need a config that is loaded from a file; this one is loaded already")
    if isinstance(config, ExperimentConfig):
        loaded, provenance = config, dict[str, Origin]()
    else:
        read = config if isinstance(config, LoadedConfig) else load_config(Path(config), overrides=overrides)
        loaded, provenance = read.config, dict(read.provenance)
    return _Given(loaded, provenance, Path(os.path.abspath(run_dir if run_dir is not None else RUNS_DIR / loaded.name)))
