"""`remuda.train` and `remuda.launch`: from a config to a finished run folder."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from pydantic import JsonValue

from remuda.client import running
from remuda.client.beginning import ResolvedRun, with_former_settings
from remuda.client.checking import check_address, check_launch
from remuda.client.progress import log_of_decisions, shown_progress
from remuda.config.errors import Error
from remuda.config.load import LoadedConfig, load_config, load_settings
from remuda.config.readers import Override
from remuda.config.schema import ExperimentConfig
from remuda.storage.bucket.address import address_of_folder
from remuda.storage.bucket.shipping import open_bucket
from remuda.storage.existing_folder import OnExists
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import ExperimentStatus

if TYPE_CHECKING:  # only the serial mode has it
    from remuda.learner.callbacks import CallbackLike

Config = ExperimentConfig | Mapping[str, object] | str | os.PathLike[str]
"""A config, settings as nested dicts, or the path of a config file."""


@dataclass(frozen=True)
class TrainingResult:
    """Result of a run."""

    run_dir: Path
    """The run folder, absolute."""
    state: Literal["finished", "stopped"]
    """`stopped` if Ctrl-C, SIGTERM or a client ended the run before a stop condition did."""
    reason: str
    """The stop condition: stop_value, max_env_steps, max_train_iters, max_wall_s, `callback <Class>: …`, stopped."""
    env_step: int
    """Environment steps in total. Like all counters, includes the steps before a resume."""
    train_iter: int
    """Gradient updates."""
    episode: int
    """Finished training episodes."""
    wall_s: float
    """Seconds of training."""
    last_return: float | None
    """Mean return of the last evaluation; None without evaluations."""
    best_return: float | None
    """Mean return of the best evaluation, with the checkpoint `ckpt/ckpt_best.pth.tar`; None without evaluations."""


class MainThreadError(Error, RuntimeError):
    """`train` or `launch` was called outside the main thread, where Python cannot handle Ctrl-C."""


class TrainingFailedError(Error):
    """The run began and failed, for example because of its environment; `run_dir` has the results until then."""

    def __init__(self, reason: str, run_dir: Path, log: Path) -> None:
        super().__init__(f"the run failed: {reason}\nthe traceback is in {log}")
        self.reason = reason
        self.run_dir = run_dir


def train(
    config: Config | None = None,
    *,
    run_dir: str | os.PathLike[str] | None = None,
    on_exists: OnExists = "error",
    progress: bool = True,
    callbacks: Sequence[CallbackLike] = (),
    **overrides: object,
) -> TrainingResult:
    """Train in this process until a stop condition of the config, like the command `remuda train`.

    Ctrl-C (in a notebook: interrupt) saves a checkpoint and returns with the state `stopped`; a second Ctrl-C ends the
    process at once. Afterwards numerical libraries use one thread, unless OMP_NUM_THREADS is set.

    Args:
        config: A file (YAML, JSON, or a config in a run folder), a dict of settings, or an ExperimentConfig. Relative
            paths, and the module of `env.make`, are looked up in the folder of the file; without a file, in the working
            directory. Omit `config` to continue a run with its own settings:
            `remuda.train(run_dir="runs/first", on_exists="resume")`.
        run_dir: The run folder, or its address in a bucket such as s3://bucket/runs/first; the default is the config's
            name in `runs`, or in $REMUDA_RUNS_DIR.
        on_exists: Action for an existing run folder: `error`, `resume` (continue the run), `force` (move its files
            away) or `rename` (take another name).
        progress: Show progress, in a notebook below the cell, else on standard error.
        callbacks: Callbacks, or classes of callbacks, besides `callbacks` in the config: see remuda.Callback. The run
            folder does not record these callbacks: give them again at a resume.
        overrides: Settings that override `config`, as in `seed=1`. Give a section as a dict; its remaining settings do
            not change: `stop={"max_env_steps": 5000}`. A dotted name replaces the whole value of a setting:
            `**{"env.kwargs": {"size": 8}}`.

    Raises:
        ConfigError: A setting is wrong; the text names the setting, and the most similar valid setting.
        UserCodeError: A callback cannot be made. This error and the next nine errors are raised before
            anything is written.
        EnvironmentBuildError: The environment cannot be built.
        UnsupportedSpaceError: The algorithm cannot act in this environment.
        SmallBufferError: The buffer is too small for the rows that a collector hands in at once.
        DeviceError: `learner.device` or `collector.device` cannot be used.
        CheckpointError: Weights or a checkpoint cannot be loaded.
        CheckpointIndexError: index.json of the run folder is damaged.
        JournalError: The journal of the run folder is damaged.
        RunFolderError: The run folder does not permit `on_exists`.
        FolderOwnedError: Another process has the run folder open.
        BucketError: The address holds a run already, or cannot be read or written.
        NotShippedError: The run has ended, and its bucket does not have all of it.
        TrainingFailedError: The run began and failed.
        MainThreadError: This is not the main thread.
    """
    _require_main_thread("train")
    with (
        _opened(config, overrides, run_dir, on_exists) as run,
        _shown(run.loaded.config, progress=progress) as show,
    ):
        result = running.train(run, on_progress=show, say=_warn, callbacks=callbacks)
    return _result(result.status, serial=True)


def launch(
    config: Config | None = None,
    *,
    run_dir: str | os.PathLike[str] | None = None,
    on_exists: OnExists = "error",
    progress: bool = True,
    on: str | None = None,
    **overrides: object,
) -> TrainingResult:
    """Train with a coordinator and worker processes, like the command `remuda launch`.

    Returns after the end of the run and of all its processes. Ctrl-C saves and evaluates a last checkpoint, with the
    state `stopped`; a second Ctrl-C ends everything at once, including this process.

    Args:
        config: As for `remuda.train`; also the following arguments.
        run_dir: See `remuda.train`.
        on_exists: See `remuda.train`.
        progress: See `remuda.train`.
        on: The launcher, in place of `launch.on` of the config: `local` (this machine), your own launcher as
            `module:Class`, or a launcher of an installed package by name.
        overrides: See `remuda.train`.

    Raises:
        ConfigError: A setting is wrong; the text names the setting, and the most similar valid setting.
        UnusableError: The config cannot run here; nothing was started.
        UserCodeError: Your algorithm, launcher, callback or log sink cannot be used; nothing was started.
        RunFolderError: The run folder does not permit `on_exists`; nothing was started.
        RefusedError: The coordinator refused the run, for example because another process has the run folder open.
        BucketError: As for `remuda.train`.
        NotShippedError: As for `remuda.train`.
        LaunchError: The coordinator or its workers could not be started, or died.
        UnreachableError: The coordinator did not answer.
        ConnectionFileError: The coordinator's connection file is missing or damaged, for example because it was
            removed.
        TrainingFailedError: The run began and failed.
        MainThreadError: This is not the main thread.
    """
    _require_main_thread("launch")
    launcher = {} if on is None else {"launch.on": on}
    with _opened(config, {**overrides, **launcher}, run_dir, on_exists, launches=True) as run:
        check_launch(run.loaded, run.run_dir, run.on_exists)
        with _shown(run.loaded.config, progress=progress) as show:
            status = running.launch(run, on_progress=show, say=_warn)
    return _result(status, serial=False)


def _shown(config: ExperimentConfig, *, progress: bool) -> AbstractContextManager[Callable[[ExperimentStatus], None]]:
    return shown_progress(config) if progress else nullcontext(lambda status: None)


def _result(status: ExperimentStatus, *, serial: bool) -> TrainingResult:
    run_dir = Path(status.run_dir)
    if status.state not in ("finished", "stopped"):
        log = log_of_decisions(status, run_dir, serial=serial)
        raise TrainingFailedError(status.reason or status.state, run_dir, log)
    return TrainingResult(
        run_dir=run_dir,
        state=status.state,
        reason=status.reason or status.state,
        env_step=status.env_step,
        train_iter=status.train_iter,
        episode=status.episode,
        wall_s=status.wall_s,
        last_return=status.last_return,
        best_return=status.best_return,
    )


def _loaded(config: Config, overrides: Mapping[str, object]) -> LoadedConfig:
    settings = [one for key, value in overrides.items() for one in _overrides(key, value)]
    if isinstance(config, ExperimentConfig | Mapping):
        return load_settings(config, overrides=settings, folder=Path.cwd())
    return load_config(Path(config), overrides=settings)


def _overrides(key: str, value: object) -> list[Override]:
    """Return an override per setting; a section given as a dict has several."""
    if "." in key or not isinstance(value, Mapping):
        return [_override(tuple(key.split(".")), value)]
    inside = cast("Mapping[object, object]", value)
    return [_override((key, str(name)), one) for name, one in inside.items()]


def _override(loc: tuple[str, ...], value: object) -> Override:
    return Override(loc, cast(JsonValue, value), "override")  # the schema checks its type


@contextmanager
def _opened(
    config: Config | None,
    overrides: Mapping[str, object],
    run_dir: str | os.PathLike[str] | None,
    on_exists: OnExists,
    *,
    launches: bool = False,
) -> Generator[ResolvedRun]:
    """Load the config, and open the run's bucket if `run_dir` is an address; the bucket has all of the run afterwards.
    Without `run_dir`, the default is the same as for the commands."""
    loaded = None if config is None else _loaded(config, overrides)
    if run_dir is None and loaded is not None:
        run_dir = Path(os.environ.get("REMUDA_RUNS_DIR") or running.RUNS_DIR) / loaded.config.name
    if run_dir is None or (loaded is None and on_exists != "resume"):
        raise TypeError('give a config, or a run to continue: run_dir="runs/first", on_exists="resume"')
    if launches and loaded is not None:
        check_address(address_of_folder(run_dir), loaded.config.launch.on)
    bucket = open_bucket(run_dir, on_exists, _warn)
    with nullcontext() if bucket is None else bucket:
        folder = Path(os.path.abspath(run_dir)) if bucket is None else bucket.folder
        loaded = loaded or _loaded(RunFolder(folder).config_json, overrides)
        on_exists = on_exists if bucket is None else bucket.on_exists
        loaded = with_former_settings(loaded, folder) if on_exists == "resume" else loaded
        yield ResolvedRun(loaded, folder, on_exists, bucket)


def _warn(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _require_main_thread(verb: str) -> None:
    """Raise MainThreadError elsewhere: Python handles Ctrl-C only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        raise MainThreadError(
            f"remuda.{verb} was called in the thread {threading.current_thread().name!r}: call it in the main thread, "
            f"or start a process with the command `remuda {verb}`"
        )
