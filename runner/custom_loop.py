"""A run folder for a custom training loop: the files of a serial run, written by a few calls."""

from __future__ import annotations

import time
import traceback
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import SupportsFloat, SupportsInt

from pydantic import JsonValue

from remuda.config.dump import write_configs, write_custom_configs
from remuda.config.plain import masked, plain
from remuda.config.schema import ExperimentConfig
from remuda.config.workers import SinkName
from remuda.logbook.book import Logbook
from remuda.logbook.episode_reports import CollectReport, CollectTotals, CollectWindow, EvaluationReport
from remuda.logbook.progress import ProgressColumns, ProgressRow
from remuda.logbook.reports import LearnReport
from remuda.logbook.role_logbooks import serial_logbook
from remuda.logbook.row_sinks import SinkContext, attach_sinks
from remuda.logbook.statistics import Statistics
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.existing_folder import OnExists, RunFolderError, prepare
from remuda.storage.git import record_git
from remuda.storage.lock import Ownership
from remuda.storage.run_folder import RunFolder
from remuda.training.commander.evaluation import is_best
from remuda.wire.messages import CheckpointRecord, Counters

_NOTHING: tuple[tuple[()], tuple[()], dict[str, Sequence[float]], None] = ((), (), {}, None)
"""Test episodes of a row without a new evaluation."""


class Run:
    """One run of a loop; see run_context. The loop keeps the counters and passes them with every call."""

    def __init__(self, folder: RunFolder, book: Logbook, checkpoints: CheckpointIndex, *, keep: int) -> None:
        self.folder = folder
        self.resumed: CheckpointRecord | None = None
        """The checkpoint of a resumed run; see `load`."""
        self._book = book
        self._checkpoints = checkpoints
        self._keep = keep
        self._counters = Counters()
        self._started_s = self._logged_s = time.monotonic()
        self._test: tuple[Sequence[float], Sequence[int], Mapping[str, Sequence[float]], int | None] = _NOTHING

    def log(
        self,
        *,
        env_step: SupportsInt,
        train_iter: SupportsInt = 0,
        returns: Iterable[SupportsFloat] = (),
        lengths: Iterable[SupportsInt] = (),
        info: Mapping[str, Iterable[SupportsFloat]] | None = None,
        metrics: Mapping[str, SupportsFloat] | None = None,
    ) -> None:
        """Write a row of progress.txt, curves and logs about the time since the last call.

        `returns`, `lengths` and `info` are of the finished training episodes, `metrics` are averages of the algorithm's
        metrics; numbers and arrays may be numpy's. Raises ValueError if a counter is lower than before, or if a
        metric's name cannot be a column.
        """
        env_step, train_iter = int(env_step), int(train_iter)
        returns, lengths, info = _floats(returns), _integers(lengths), _floats_by_name(info)
        averages = {name: float(value) for name, value in (metrics or {}).items()}
        before, now_s = self._counters, time.monotonic()
        self._reach(env_step, train_iter, episodes=len(returns))
        test_returns, test_lengths, test_info, test_env_step = self._test
        self._book.progress(
            ProgressRow(
                epoch=self._book.progress_file.next_epoch if self._book.progress_file is not None else 0,
                env_step=env_step,
                train_iter=train_iter,
                episode=self._counters.episode,
                returns=returns,
                lengths=lengths,
                info=info,
                test_returns=test_returns,
                test_lengths=test_lengths,
                test_info=test_info,
                test_env_step=test_env_step,
                losses=averages,
                metrics=averages,
                wall_s=self._counters.wall_s,
            )
        )
        window = CollectWindow(
            env_steps=env_step - before.env_step,
            train_samples=env_step - before.env_step,
            duration_s=now_s - self._logged_s,
            episode_returns=returns,
            episode_lengths=lengths,
            episode_info=info,
        )
        self._emit(window, averages)
        self._test, self._logged_s = _NOTHING, now_s

    def save(self, state: Mapping[str, object], *, env_step: SupportsInt, train_iter: SupportsInt) -> CheckpointRecord:
        """Write ckpt/iteration_<train_iter>.pth.tar with `state` and the counters, and enter the file in index.json.

        The newest `keep`, the initial, the best and the last checkpoint stay. `state` holds tensors, numbers, text, and
        lists and dicts of them, so that `torch.load(weights_only=True)` opens the file. Raises ValueError, OSError.
        """
        self._reach(int(env_step), int(train_iter))
        record = write_state(self.folder.checkpoint(self._counters.train_iter), state, self._counters)
        self._checkpoints.add(record, keep=self._keep)
        self._book.say("learner", f"saved checkpoint {self.folder.ckpt / record.file}")
        return record

    def log_evaluation(
        self,
        record: CheckpointRecord,
        returns: Iterable[SupportsFloat],
        lengths: Iterable[SupportsInt],
        *,
        info: Mapping[str, Iterable[SupportsFloat]] | None = None,
        duration_s: float = 0.0,
    ) -> bool:
        """Log returns and lengths of a checkpoint's evaluation. Returns True if the checkpoint is the best so far.

        The evaluation is written to the evaluator's log, its curves, index.json, and the next row of progress.txt.
        """
        returns, lengths, info = _floats(returns), _integers(lengths), _floats_by_name(info)
        best = self._checkpoints.best
        mean = Statistics.of(returns).mean
        better = is_best(mean, None if best is None else best.reward)
        report = EvaluationReport(
            train_iter=record.train_iter,
            env_step=record.env_step,
            ckpt_name=record.file,
            returns=returns,
            lengths=lengths,
            duration_s=duration_s,
            info=info,
            wall_s=record.wall_s,
            best=better,
        )
        self._book.emit(report)
        self._test = returns, lengths, info, record.env_step
        self._checkpoints.set_reward(record.train_iter, mean, best=better)
        return better

    def load(self) -> Mapping[str, object]:
        """Return the state of the checkpoint of a resumed run. Raises CheckpointError, also if no run was resumed."""
        return read_state(self.folder.ckpt, self.resumed)

    def say(self, text: str) -> None:
        """Write a line to log/evaluator/evaluator_logger.txt, the log of decisions of a serial run."""
        self._book.say("commander", text)

    def go_on_from(self, record: CheckpointRecord) -> None:
        """Continue counting from a checkpoint."""
        self.resumed = record
        self._counters = record.counters
        self._started_s -= record.wall_s

    def end(self, error: BaseException | None) -> None:
        """Log the end of the run, and link the checkpoint of an interrupted run."""
        if isinstance(error, Exception):
            self._book.say("commander", f"the run failed:\n{''.join(traceback.format_exception(error))}", level="error")
        elif error is not None and self._checkpoints.last is not None:
            self._checkpoints.link_interrupt(self._checkpoints.last.train_iter)
        how = "finished" if error is None else type(error).__name__
        self._book.say("commander", f"the run is over after {time.monotonic() - self._started_s:.1f} s: {how}")

    def _reach(self, env_step: int, train_iter: int, *, episodes: int = 0) -> None:
        known = self._counters
        if env_step < known.env_step or train_iter < known.train_iter:
            raise ValueError(
                f"env_step {env_step}, train_iter {train_iter}: the run was at {known.env_step}, {known.train_iter} "
                "already, and counters never go back"
            )
        wall_s = time.monotonic() - self._started_s
        self._counters = Counters(env_step, train_iter, known.episode + episodes, 0, wall_s)

    def _emit(self, window: CollectWindow, metrics: Mapping[str, float]) -> None:
        counters = self._counters
        totals = CollectTotals(
            env_steps=counters.env_step,
            train_samples=counters.env_step,
            episodes=counters.episode,
            duration_s=counters.wall_s,
        )
        train_iter, env_step = counters.train_iter, counters.env_step
        if window.episode_returns:
            self._book.emit(CollectReport(train_iter=train_iter, env_step=env_step, window=window, totals=totals))
        if metrics:
            self._book.emit(LearnReport(train_iter=train_iter, env_step=env_step, variables=metrics))


def _floats(values: Iterable[SupportsFloat]) -> list[float]:
    """Return plain numbers: checkpoints and JSON take no others."""
    return [float(value) for value in values]


def _integers(values: Iterable[SupportsInt]) -> list[int]:
    return [int(value) for value in values]


def _floats_by_name(info: Mapping[str, Iterable[SupportsFloat]] | None) -> dict[str, list[float]]:
    return {name: _floats(values) for name, values in (info or {}).items()}


@contextmanager
def run_context(
    run_dir: str | Path,
    config: ExperimentConfig | Mapping[str, object],
    *,
    on_exists: OnExists = "error",
    keep: int = 5,
    sinks: Sequence[SinkName] = (),
) -> Generator[Run, None, None]:
    """Keep a run folder for the loop inside the `with`: configs, git, progress.txt, logs, curves, checkpoints.

    `config` may be any mapping; it is written as config.json, total_config.py and formatted_total_config.py. Only one
    process at a time can use the folder. However the body ends, every file is complete and closed, and an exception of
    the body is raised again. Raises RunFolderError, FolderOwnedError, CheckpointIndexError, OSError.
    """
    root = Path(run_dir).absolute()
    folder = prepare(root, on_exists, mode="serial", now=datetime.now().astimezone())
    with ExitStack() as stack:
        ownership = Ownership(folder.owner)
        stack.callback(ownership.release)
        checkpoints = CheckpointIndex(folder.ckpt)
        record = checkpoints.last if on_exists == "resume" else None
        if on_exists == "resume" and record is None:
            raise RunFolderError(f"{root} cannot be resumed: it has no checkpoint yet; start over with on_exists=force")
        name = _write_configs(folder, config)
        resumed = None if record is None else record.counters
        book = stack.enter_context(serial_logbook(folder, ProgressColumns(None), resumed=resumed))
        settings = masked(plain(config))
        assert isinstance(settings, dict), "a mapping stays one"
        book.describe(settings, train_iter=0 if resumed is None else resumed.train_iter)
        step = None if resumed is None else resumed.env_step
        attach_sinks(book, sinks, SinkContext(folder, name, settings, step))
        warning = record_git(folder.root, Path.cwd())
        if warning is not None:
            book.say("commander", warning, level="warning")
        run = Run(folder, book, checkpoints, keep=keep)
        if record is not None:
            run.go_on_from(record)
        try:
            yield run
        except BaseException as error:
            run.end(error)
            raise
        run.end(None)


def _write_configs(folder: RunFolder, config: ExperimentConfig | Mapping[str, object]) -> str:
    """Return the run's name: from the config, else from the folder."""
    if isinstance(config, ExperimentConfig):
        write_configs(folder.root, config, {})
        return config.name
    settings: dict[str, JsonValue] = {"name": folder.root.name}
    given = plain(config)
    assert isinstance(given, dict), "a mapping stays one"
    settings |= given
    write_custom_configs(folder.root, settings)
    return str(settings["name"])


def write_state(path: Path, state: Mapping[str, object], counters: Counters) -> CheckpointRecord:
    """Write `state` and the counters, atomically and synced to the disk, and describe the file for index.json.

    Raises ValueError for content that `torch.load(weights_only=True)` would not open, and for reserved keys; OSError
    leaves an older file of this name unchanged.
    """
    # Imports torch, which takes a second: loops without checkpoints save it.
    from remuda.policy.files.checkpoint_file import OURS, encode, require_loadable, write

    if taken := sorted(state.keys() & set(OURS)):
        raise ValueError(f"the state's {', '.join(taken)} would hide entries of Remuda: choose other names")
    content = encode(state, counters)
    require_loadable(content)
    return write(path, content, counters)


def read_state(folder: Path, record: CheckpointRecord | None) -> Mapping[str, object]:
    """Return the written state, without additions. Raises CheckpointError."""
    from remuda.policy.files.checkpoint_file import OURS, CheckpointError, read

    if record is None:
        raise CheckpointError("nothing is resumed: open the run with on_exists='resume'")
    content = read(folder / record.file)
    return {name: value for name, value in content.items() if name not in OURS}
