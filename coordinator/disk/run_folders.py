"""The run folders of a coordinator: prepares them, and carries the state machine's effects out on disk.

The work of one run is done by one thread at a time; work of different runs may be done at the same time.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from remuda.buffer.chunk import sweep_orphans
from remuda.config.dump import write_configs
from remuda.config.schema import ExperimentConfig
from remuda.coordinator.disk.allowed_code import AllowedCode
from remuda.coordinator.disk.recovery import (
    counters_after,
    curves_hold_until,
    payload_files,
    policy_file_of,
    resumed_at,
    uncounted_payloads,
    with_payloads,
)
from remuda.coordinator.disk.run_folder import EVERYTHING, OpenFiles, RunFiles, open_commander_logbook
from remuda.coordinator.effects import PrepareRun
from remuda.coordinator.events import PreparedRun, RunRefused
from remuda.logbook.book import SERVICES_END_S, Logbook
from remuda.logbook.row_sinks import settings_of
from remuda.storage.checkpoint_index import CheckpointIndex, CheckpointIndexError
from remuda.storage.existing_folder import RunFolderError, discard, prepare, submitted_folder
from remuda.storage.folder_token import FolderToken
from remuda.storage.git import write_git
from remuda.storage.ownership import FolderOwnedError, Ownership
from remuda.storage.run_folder import RunFolder
from remuda.training.journal import RunJournal, open_or_begin
from remuda.training.journal_database import JournalDamagedError, JournalError
from remuda.training.journal_entry import Recovered
from remuda.training.recovery import catch_up, show_again
from remuda.wire.messages import OVER, Rejected, Submit

LONGEST_REASON = 10_000
"""The most characters of a message about a wrong config, which may have a thousand wrong keys."""


class RunFolders:
    """The folders of experiments that are not over. The files of a folder are open while its experiment is active."""

    def __init__(
        self,
        runs_dir: Path,
        token: FolderToken | None = None,
        allowed: AllowedCode = AllowedCode(),  # noqa: B008  (immutable)
    ) -> None:
        """`token` is in the runs folder from the first run on."""
        self._runs_dir = runs_dir
        self._token = token
        self._allowed = allowed
        self._files: dict[str, RunFiles] = {}
        self._in_use: dict[str, Path] = {}
        """The folders of experiments that are not over, with links resolved: no other experiment may begin there."""
        self._lock = threading.Lock()
        """Guards `_in_use` and `_ended`."""
        self._ended: list[Logbook] = []
        """Folders of experiments that are over and whose services may still be running."""

    # --- a run begins ---

    def prepare(self, effect: PrepareRun) -> PreparedRun | RunRefused:
        """Check the config and make the run folder. If it is refused, nothing is left behind."""
        submit = effect.submit
        try:
            config = ExperimentConfig.model_validate_json(submit.config_json)
        except ValidationError as error:
            return _refused(effect, "invalid", f"the config is not valid: {error}"[:LONGEST_REASON])
        obstacle = config.obstacle_to_herds
        if obstacle is not None:
            return _refused(effect, "invalid", obstacle)
        forbidden = self._allowed.refusal(config, effect.asked.who)
        if forbidden is not None:
            return _refused(effect, "forbidden", forbidden)
        made: Path | None = None
        try:
            root = submitted_folder(self._runs_dir, submit.run_dir)
            str(root).encode()  # a name that is not UTF-8 can neither be journaled nor told to workers
            self._use(effect.experiment, root, submit)
            now = datetime.now().astimezone()
            folder = prepare(root, submit.on_exists, mode="parallel", now=now, by=effect.experiment)
            made = folder.root
            if self._token is not None:
                self._token.write()
            prepared = self._begin(effect, config, folder)
        except (RunFolderError, CheckpointIndexError, FolderOwnedError, JournalError) as error:
            prepared = _refused(effect, "exists", str(error))
        except (OSError, ValueError) as error:  # ValueError: a null byte in a path, or one that is not UTF-8
            prepared = _refused(effect, "invalid", f"the run folder cannot be written: {error}")
        if isinstance(prepared, RunRefused):
            self._free(effect.experiment)
            if made is not None and effect.experiment not in self._files:
                with suppress(OSError, FolderOwnedError):  # a disk that does not take that either, or another's run
                    discard(made, effect.experiment)
        return prepared

    def _use(self, experiment: str, root: Path, submit: Submit) -> None:
        """Refuse a folder whose run is not over: nobody may resume it or move it away while its workers use it."""
        resolved = root.resolve()
        with self._lock:
            if submit.on_exists != "rename":
                for other, used in self._in_use.items():
                    if used == resolved and other != experiment:
                        raise RunFolderError(
                            f"{root} is in use by experiment {other}, which is not over: stop that one first, or "
                            "choose another folder (--on-exists rename)"
                        )
                self._in_use[experiment] = resolved

    def _free(self, experiment: str) -> None:
        with self._lock:
            self._in_use.pop(experiment, None)

    def _begin(self, effect: PrepareRun, config: ExperimentConfig, folder: RunFolder) -> PreparedRun | RunRefused:
        """All files are closed again at the end, since a queued run keeps none open."""
        experiment, submit = effect.experiment, effect.submit
        resume = submit.on_exists == "resume"
        checkpoints = CheckpointIndex(folder.ckpt)
        if resume and checkpoints.last is None:
            text = f"{folder.root} cannot be resumed: it has no checkpoint yet; start over with --force"
            return _refused(effect, "exists", text)
        with ExitStack() as files:
            ownership = Ownership(folder.owner)
            files.callback(ownership.release)
            journal, found, loss = _open_journal(folder, resume=resume)
            files.callback(journal.close)
            recovered = None if found is None else with_payloads(found, folder.data)
            if recovered is not None:
                catch_up(checkpoints, recovered.snapshot.experiment.dispatch.commander)
            counters = counters_after(checkpoints.last, recovered) if resume else None
            changed = write_configs(folder.root, config, submit.provenance)
            # Services that sinks write to begin with the run, unless there is something that they may have missed.
            log = open_commander_logbook(folder, config, counters, sinks=recovered is not None)
            files.callback(log.close)
            log.describe(settings_of(config), train_iter=0 if counters is None else counters.train_iter)
            if recovered is not None:
                show_again(log, recovered.snapshot, config)
            _warn(log, folder, submit, loss, changed)
            uncounted = () if recovered is None else uncounted_payloads(recovered, folder.data)
            live = payload_files(recovered) | {meta.file for meta in uncounted}
            sweep_orphans(folder.data, live, older_than_s=0.0)  # left by an earlier incarnation
            policy_file = policy_file_of(folder, experiment)
            resumed = resumed_at(checkpoints, log, counters, policy_file)
        self._files[experiment] = RunFiles(folder, config, counters)
        with self._lock:
            self._in_use[experiment] = folder.root.resolve()
        return PreparedRun(effect, config, str(folder.root), str(policy_file), resumed, recovered, uncounted)

    # --- a coordinator begins ---

    def recover(self, run_dir: Path) -> Recovered:
        """Recover a run of a previous coordinator.

        Raises JournalError, FolderOwnedError, CheckpointIndexError, ValueError or OSError if that is impossible;
        nothing is changed then.
        """
        folder = RunFolder(run_dir)
        if not run_dir.is_dir():
            raise JournalDamagedError(_gone(folder))
        with ExitStack() as undo:
            ownership = Ownership(folder.owner)
            undo.callback(ownership.release)
            if not folder.journal.exists():
                raise JournalDamagedError(_gone(folder))
            journal = RunJournal(folder.journal)
            undo.callback(journal.close)
            recovered = journal.read()
            if recovered is None:
                raise JournalDamagedError(f"{folder.journal} is empty")
            config = ExperimentConfig.model_validate_json(recovered.snapshot.identity.config_json)
            state = recovered.snapshot.experiment.state
            if state in OVER:
                return recovered
            files: OpenFiles | None = None
            if state != "queued":
                checkpoints = CheckpointIndex(folder.ckpt)
                catch_up(checkpoints, recovered.snapshot.experiment.dispatch.commander)
                log = open_commander_logbook(folder, config, curves_hold_until(recovered.snapshot))
                undo.callback(log.close)
                show_again(log, recovered.snapshot, config)
                recovered = with_payloads(recovered, folder.data)
                recovered = replace(recovered, uncounted=uncounted_payloads(recovered, folder.data))
                files = OpenFiles(log, checkpoints, journal, ownership)
            folder.beginner(recovered.snapshot.identity.id).unlink(missing_ok=True)
            if files is not None:
                undo.pop_all()
        experiment = recovered.snapshot.identity.id
        self._files[experiment] = RunFiles(folder, config, EVERYTHING, files)
        with self._lock:
            self._in_use[experiment] = run_dir.resolve()
        return recovered

    # --- a run goes on ---

    def files(self, experiment: str) -> RunFiles | None:
        """The folder of an experiment that is not over."""
        return self._files.get(experiment)

    # --- it ends ---

    def close_run(self, experiment: str) -> None:
        """Close a run's files. May be called again."""
        files = self._files.pop(experiment, None)
        if files is not None:
            files.close()
            with self._lock:
                self._ended = [log for log in (*self._ended, files.ended) if log is not None and log.busy]
        self._free(experiment)

    def forget(self, experiment: str) -> None:
        """A run is over that could not be written to its end; the thread that writes it still closes its files."""
        self._files.pop(experiment, None)
        self._free(experiment)

    def close(self) -> None:
        """Close all files that are still open, and wait for the end of the services that log sinks write to."""
        for experiment in list(self._files):
            self.close_run(experiment)
        deadline_s = time.monotonic() + SERVICES_END_S
        for log in self._ended:
            log.finish(deadline_s)


def _refused(effect: PrepareRun, code: Literal["invalid", "exists", "forbidden"], reason: str) -> RunRefused:
    return RunRefused(effect.experiment, effect.asked, Rejected(code, reason))


def _open_journal(folder: RunFolder, *, resume: bool) -> tuple[RunJournal, Recovered | None, str | None]:
    """Open a journal, with what a resumed run finds in it; the third value says why it finds nothing."""
    gone = not folder.journal.exists()
    journal, found, damage = open_or_begin(folder.journal)
    if found is not None and not resume:  # begun and journaled before, by a coordinator that could not answer
        try:
            journal.clear()
        except JournalError:
            journal.close()
            raise
    if found is not None and resume:
        return journal, found, None
    loss = damage or f"{folder.journal} {'is gone' if gone else 'was empty'}"
    return journal, None, loss if resume else None


def _warn(log: Logbook, folder: RunFolder, submit: Submit, loss: str | None, changed: str | None) -> None:
    """Remove the chunks whose payload the run folder does not have."""
    without_git = write_git(folder.root, submit.git)
    warnings = [warning for warning in (without_git, changed) if warning is not None]
    if loss is not None:
        warnings.append(f"goes on from its last checkpoint alone, without replay and what was counted since: {loss}")
    for warning in warnings:
        log.say("commander", warning, level="warning")


def _gone(folder: RunFolder) -> str:
    return f"{folder.journal if folder.root.exists() else folder.root} is gone"
