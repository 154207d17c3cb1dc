"""The run folders of a coordinator: prepares them, and carries the state machine's effects out on disk.

A single thread at a time works on a run; different threads may work on different runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Literal

from msgspec import structs
from pydantic import ValidationError

from remuda.buffer.chunk import sweep_orphans
from remuda.config.dump import write_configs
from remuda.config.schema import ExperimentConfig
from remuda.coordinator.disk.allowed_code import AllowedCode
from remuda.coordinator.disk.recovery import (
    counters_after,
    curves_hold_until,
    found_in,
    payload_files,
    policy_file_of,
    resumed_at,
    uncounted_payloads,
    with_payloads,
)
from remuda.coordinator.disk.run_folder import EVERYTHING, OpenFiles, RunFiles, open_commander_logbook, show_missed
from remuda.coordinator.effects import PrepareRun
from remuda.coordinator.events import PreparedRun, RunRefused
from remuda.environments.assignment import configs_of_policies
from remuda.logbook.book import SERVICES_END_S, Logbook
from remuda.logbook.row_sinks import settings_of
from remuda.storage.atomic import DISK_IS_FULL
from remuda.storage.checkpoint_index import CheckpointIndex, CheckpointIndexError
from remuda.storage.existing_folder import RunFolderError, discard, prepare, submitted_folder
from remuda.storage.folder_token import FolderToken
from remuda.storage.git import write_git
from remuda.storage.lock import FolderOwnedError, Ownership
from remuda.storage.run_folder import RunFolder, folder_of_policy
from remuda.training.journal import RunJournal, journaled_policies, open_for_policies, open_journals
from remuda.training.journal_database import JournalDamagedError, JournalError
from remuda.training.journal_entry import Recovered
from remuda.training.league import why_unrated
from remuda.training.recovery import catch_up, check_rows, keep_counted, show_again
from remuda.wire.messages import OVER, Counters, Rejected, Submit

LONGEST_REASON = 10_000
"""Maximum length of a message about a wrong config, which may have a thousand wrong keys."""
CLOSING_S = 20.0
"""Time for which a new run waits for the previous run to close the folder; clients wait for 60 s."""


class RunFolders:
    """The folders of unfinished experiments. The files of a folder are open while the experiment is active."""

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
        """Folders of unfinished experiments, with links resolved: a new experiment may not begin here."""
        self._closing: set[str] = set()
        """Finished experiments of these folders, with files about to be closed."""
        self._lock = threading.Condition()
        """Guards `_in_use`, `_closing` and `_ended`; notified when a folder has become free."""
        self._ended: list[Logbook] = []
        """Logbooks of finished experiments whose services may still be running."""

    # --- a run begins ---

    def prepare(self, effect: PrepareRun) -> PreparedRun | RunRefused:
        """Check the config and make the run folder. A refused submission leaves nothing behind."""
        submit = effect.submit
        try:
            config = ExperimentConfig.model_validate_json(submit.config_json)
        except ValidationError as error:
            return _refused(effect, "invalid", f"the config is not valid: {error}"[:LONGEST_REASON])
        obstacle = _agents_unknown(config) or why_unrated(config)
        if obstacle is not None:
            return _refused(effect, "invalid", obstacle)
        forbidden = self._allowed.refusal(config, effect.requester.who)
        if forbidden is not None:
            return _refused(effect, "forbidden", forbidden)
        made: Path | None = None
        try:
            root = submitted_folder(self._runs_dir, submit.run_dir)
            str(root).encode()  # a name that is not UTF-8 can neither be journaled nor told to workers
            self._use(effect.experiment, root, submit)
            now = datetime.now().astimezone()
            names = sorted(config.policies)
            folder = prepare(root, submit.on_exists, mode="parallel", now=now, by=effect.experiment, policies=names)
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
        """Refuse the folder of an unfinished run: no user may resume or move the run while workers use the folder. Wait
        for the files of a finished run, since the end is known before the files are closed."""
        resolved = root.resolve()

        def users() -> set[str]:
            return {other for other, used in self._in_use.items() if used == resolved and other != experiment}

        with self._lock:
            if submit.on_exists != "rename":
                self._lock.wait_for(lambda: not users() & self._closing, CLOSING_S)
                for other in users():
                    instead = "choose another folder (--on-exists rename)"
                    if other in self._closing:
                        raise RunFolderError(
                            f"{root} is in use by experiment {other}, which is over, but its disk is slow to close its "
                            f"files: try again later, or {instead}"
                        )
                    raise RunFolderError(
                        f"{root} is in use by experiment {other}, which is not over: stop that one first, or {instead}"
                    )
                self._in_use[experiment] = resolved

    def _free(self, experiment: str) -> None:
        with self._lock:
            self._in_use.pop(experiment, None)
            self._closing.discard(experiment)
            self._lock.notify_all()

    def _begin(self, effect: PrepareRun, config: ExperimentConfig, folder: RunFolder) -> PreparedRun | RunRefused:
        """Make the files of a run. All files are closed again at the end, since a queued run keeps none open."""
        experiment, submit = effect.experiment, effect.submit
        resume = submit.on_exists == "resume"
        policies = configs_of_policies(config)
        folders = [folder_of_policy(folder.root, name) for name in policies]
        checkpoints = [CheckpointIndex(own.ckpt) for own in folders]
        if resume and any(index.last is None for index in checkpoints):
            text = f"{folder.root} cannot be resumed: it has no checkpoint yet; start over with --force"
            return _refused(effect, "exists", text)
        kept = check_rows(folder, policies) if resume else {}
        prepared: list[PreparedRun] = []
        with ExitStack() as files:
            ownership = Ownership(folder.owner)
            files.callback(ownership.release)
            journals, loss = _open_journals(folder, list(policies), resume=resume)
            files.callback(journals[0][0].close)
            known = [
                None if found is None else with_payloads(found, own.data)
                for own, (_, found) in zip(folders, journals, strict=True)
            ]
            begins = _begin_at(checkpoints, known) if resume else [None] * len(folders)
            changed = write_configs(folder.root, config, submit.provenance)
            for (name, own), its_folder, index, recovered, counters in zip(
                policies.items(), folders, checkpoints, known, begins, strict=True
            ):
                if recovered is not None:
                    catch_up(index, recovered.snapshot.experiment.dispatch.commander)
                # Services that sinks write to begin with the run, unless there is something that they may have missed.
                log = open_commander_logbook(its_folder, own, counters, sinks=recovered is not None)
                files.callback(log.close)
                log.describe(settings_of(own), train_iter=0 if counters is None else counters.train_iter)
                if recovered is not None:
                    show_again(log, recovered.snapshot, own)
                _tell(log, folder, submit, loss, changed, None if recovered is None else kept.get(name))
                uncounted = () if recovered is None else uncounted_payloads(recovered, its_folder.data)
                if resume and not prepared:  # all policies have the same leases
                    keep_counted(folder, recovered, uncounted)
                live = payload_files(recovered) | {meta.file for meta in uncounted}
                sweep_orphans(its_folder.data, live)  # left by an earlier incarnation
                policy_file = policy_file_of(its_folder, experiment)
                resumed = resumed_at(index, log, counters, policy_file, config=own, recovered=recovered)
                identity = effect.identity(str(folder.root), str(policy_file), policy=name, project=config.project)
                prepared.append(PreparedRun(effect, config, identity, resumed, recovered, uncounted))
        self._files[experiment] = _run_files(folders, policies, begins)
        with self._lock:
            self._in_use[experiment] = folder.root.resolve()
        return replace(prepared[0], others=tuple(prepared[1:]))

    # --- a coordinator begins ---

    def recover(self, run_dir: Path) -> Recovered:
        """Recover a run of a previous coordinator.

        Raises JournalError, FolderOwnedError, CheckpointIndexError, ValueError or OSError if impossible, and changes
        nothing.
        """
        folder = RunFolder(run_dir)
        if not run_dir.is_dir():
            raise JournalDamagedError(_gone(folder))
        with ExitStack() as undo:
            ownership = Ownership(folder.owner)
            undo.callback(ownership.release)
            if not folder.journal.exists():
                raise JournalDamagedError(_gone(folder))
            names = journaled_policies(folder.journal) or [""]
            folders = [folder_of_policy(run_dir, name) for name in names]
            journals = open_journals(folder.journal, names)
            undo.callback(journals[0].close)
            found = [(own, each.read()) for own, each in zip(folders, journals, strict=True)]
            known = [found_in(one, own) for own, one in found if one is not None]
            if len(known) < len(found):
                raise JournalDamagedError(f"{folder.journal} is empty")
            recovered = _put_together(known)
            config = ExperimentConfig.model_validate_json(recovered.snapshot.identity.config_json)
            state = recovered.snapshot.experiment.state
            if state in OVER:
                return recovered
            policies = configs_of_policies(config)
            for path in (path for own in folders for path in own.folders(serial=False)):
                path.mkdir(parents=True, exist_ok=True)  # a copy from a bucket has no empty folders
            missed: Sequence[Recovered | None] = [None] * len(folders)
            opened: Sequence[OpenFiles] = []
            if state != "queued":
                there = [with_payloads(one, own.data) for own, one in zip(folders, known, strict=True)]
                uncounted = [uncounted_payloads(one, own.data) for own, one in zip(folders, there, strict=True)]
                recovered = _put_together(
                    [replace(one, uncounted=found) for one, found in zip(there, uncounted, strict=True)]
                )
                opened = _reopened(folders, list(policies.values()), known, journals, ownership)
                missed = missed if opened else known
            folder.beginner(recovered.snapshot.identity.id).unlink(missing_ok=True)
            if opened:
                undo.pop_all()
        experiment = recovered.snapshot.identity.id
        snapshots = [one.snapshot for one in known]
        begins = [EVERYTHING if one is None else curves_hold_until(snapshots, i) for i, one in enumerate(missed)]
        self._files[experiment] = _run_files(folders, policies, begins, opened, missed)
        with self._lock:
            self._in_use[experiment] = run_dir.resolve()
        return recovered

    # --- a run goes on ---

    def files(self, experiment: str) -> RunFiles | None:
        """Return the files of an unfinished experiment."""
        return self._files.get(experiment)

    def run_dir(self, experiment: str) -> Path:
        """Return the run folder of an unfinished experiment."""
        return self._files[experiment].folder.root

    # --- it ends ---

    def about_to_close(self, experiment: str) -> None:
        """A run is over, and `close_run` follows."""
        with self._lock:
            if experiment in self._in_use:
                self._closing.add(experiment)

    def close_run(self, experiment: str) -> None:
        """Close a run's files. May be called again."""
        files = self._files.pop(experiment, None)
        if files is not None:
            files.close()
            with self._lock:
                self._ended = [log for log in (*self._ended, *files.ended) if log.busy]
        self._free(experiment)

    def forget(self, experiment: str) -> None:
        """Forget a finished run with an incomplete end; the run's thread still closes the files."""
        self._files.pop(experiment, None)
        self._free(experiment)

    def close(self) -> None:
        """Close all open files, and wait for the end of the services behind log sinks."""
        for experiment in list(self._files):
            self.close_run(experiment)
        deadline_s = time.monotonic() + SERVICES_END_S
        for log in self._ended:
            log.finish(deadline_s)


def _agents_unknown(config: ExperimentConfig) -> str | None:
    """Reason to refuse a config without agents: this process builds no environment, so the config
    must list the agents."""
    if config.env.kind != "pettingzoo" or config.env.agents:
        return None
    return "env.agents is missing: it names the agents of the environment, and `remuda submit` fills it in"


def _refused(effect: PrepareRun, code: Literal["invalid", "exists", "forbidden"], reason: str) -> RunRefused:
    return RunRefused(effect.experiment, effect.requester, Rejected(code, reason))


def _open_journals(
    folder: RunFolder, policies: Sequence[str], *, resume: bool
) -> tuple[list[tuple[RunJournal, Recovered | None]], str | None]:
    """Open the journals of a run's policies, with their contents for a resumed run; the last value explains missing
    contents."""
    gone = not folder.journal.exists()
    journals, damage = open_for_policies(folder.journal, policies)
    known = [found is not None for _, found in journals]
    if resume and all(known):
        return journals, None
    if any(known):  # begun and journaled before, by a coordinator that could not answer
        try:
            for journal, _ in journals:
                journal.clear()
        except JournalError:
            journals[0][0].close()
            raise
    loss = damage or f"{folder.journal} {'is gone' if gone else 'was empty'}"
    return [(journal, None) for journal, _ in journals], loss if resume else None


def _begin_at(checkpoints: Sequence[CheckpointIndex], known: Sequence[Recovered | None]) -> list[Counters | None]:
    """Return the start of each policy of a resumed run. A step of the environment counts for all policies, even if
    policies were saved at different steps and the journal is lost."""
    each = [counters_after(index.last, recovered) for index, recovered in zip(checkpoints, known, strict=True)]
    env_step = max((counters.env_step for counters in each if counters is not None), default=0)
    return [None if counters is None else structs.replace(counters, env_step=env_step) for counters in each]


def _put_together(known: Sequence[Recovered]) -> Recovered:
    return replace(known[0], others=tuple(known[1:]))


def _reopened(
    folders: Sequence[RunFolder],
    configs: Sequence[ExperimentConfig],
    known: Sequence[Recovered],
    journals: Sequence[RunJournal],
    ownership: Ownership,
) -> Sequence[OpenFiles]:
    """Open the files of a recovered run, with writes missed in the last moment. Empty if the disk is full: the run's
    thread then opens the files as soon as the disk has room. Raises as `recover` does."""
    opened: list[OpenFiles] = []
    snapshots = [one.snapshot for one in known]
    with ExitStack() as undo:
        try:
            for i, (folder, own, one, journal) in enumerate(zip(folders, configs, known, journals, strict=True)):
                checkpoints = CheckpointIndex(folder.ckpt)
                log = open_commander_logbook(folder, own, curves_hold_until(snapshots, i))
                undo.callback(log.close)
                show_missed(log, checkpoints, one, own)
                opened.append(OpenFiles(log, checkpoints, journal, None if opened else ownership))
        except OSError as error:
            if error.errno not in DISK_IS_FULL:
                raise
            return []
        undo.pop_all()
    return opened


def _run_files(
    folders: Sequence[RunFolder],
    policies: Mapping[str, ExperimentConfig],
    begins: Sequence[Counters | None],
    opened: Sequence[OpenFiles] = (),
    missed: Sequence[Recovered | None] = (),
) -> RunFiles:
    """`opened` and `missed`: of each policy, or empty."""
    nothing = [None] * len(folders)
    parts = zip(folders, policies.values(), begins, opened or nothing, missed or nothing, strict=True)
    first, *others = [RunFiles(folder, own, counters, its, one) for folder, own, counters, its, one in parts]
    return first.with_others(others)


def _tell(
    log: Logbook, folder: RunFolder, submit: Submit, loss: str | None, changed: str | None, kept: str | None
) -> None:
    """Log the beginning of a run: measurements and problems."""
    for note in submit.notes:
        log.say("commander", note)
    without_git = write_git(folder.root, submit.git)
    warnings = [warning for warning in (without_git, changed, kept) if warning is not None]
    if loss is not None:
        warnings.append(f"goes on from its last checkpoint alone, without replay and what was counted since: {loss}")
    for warning in warnings:
        log.say("commander", warning, level="warning")


def _gone(folder: RunFolder) -> str:
    return f"{folder.journal if folder.root.exists() else folder.root} is gone"
