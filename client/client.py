"""The Python API to a coordinator: submit, status, stop, shutdown."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Literal, TypeVar
from uuid import uuid4

from remuda.config.schema import ExperimentConfig
from remuda.storage.git import capture_git
from remuda.wire.connection_file import ConnectionFileError, read
from remuda.wire.conversation import Conversation, MovedError, RefusedError, UnreachableError
from remuda.wire.messages import (
    OVER,
    AccountStatus,
    Bill,
    BillKey,
    BillLine,
    BillRequest,
    ClientMessage,
    Done,
    ExperimentStatus,
    LogPiece,
    LogPosition,
    LogRequest,
    LogText,
    Origin,
    Prioritize,
    Quota,
    QuotaRequest,
    Quotas,
    SetQuota,
    Shutdown,
    Status,
    StatusRequest,
    StopExperiment,
    Submit,
    Submitted,
    shortened,
)
from remuda.wire.patience import Patience

ANSWER_DEADLINE_S = 10.0
SUBMIT_DEADLINE_S = 60.0
"""Making a run folder may take a while on a network file system."""
POLL_S = 0.2
"""Between two looks at logs, or two requests to a busy coordinator."""
FOLLOW_POLL_S = 0.1
"""Between two looks at a run."""
END_POLL_S = 0.02
"""Interval for an ending run, to notice the end quickly."""
RETURN_DEADLINE_S = 60.0
"""Longest wait for a missing coordinator, which continues all experiments after a restart; see `with_retries`."""
_T = TypeVar("_T")


class Client:
    """Client of the coordinator in a connection file; a context manager.

    All methods raise RefusedError if the coordinator refuses the request, and UnreachableError without an answer, or if
    the coordinator stays too busy. The next request then reads the connection file again, and raises
    ConnectionFileError if the file is missing.
    """

    def __init__(self, connection_file: str | Path, *, answer_deadline_s: float = ANSWER_DEADLINE_S) -> None:
        """Raises ConnectionFileError if the file is missing, malformed or readable by other users, or without a key for
        this coordinator."""
        self._answer_deadline_s = answer_deadline_s
        self._connection_file = Path(connection_file)
        self._connection = read(self._connection_file)
        self._conversation = Conversation(self._connection)
        """Closed after a request without an answer: the next request opens a new conversation."""

    def submit(
        self,
        config: ExperimentConfig,
        *,
        name: str | None = None,
        run_dir: str | Path | None = None,
        on_exists: Literal["error", "resume", "force", "rename"] = "error",
        priority: int = 0,
        provenance: Mapping[str, Origin] | None = None,
        notes: Sequence[str] = (),
        experiment: str | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> Submitted:
        """Submit a run.

        Args:
            config: settings of the run, with the names of all agents (remuda.client.checking.with_agents).
            name: name of the run with the coordinator; the default is the name in the config.
            run_dir: the run folder, absolute or relative to the coordinator's runs folder; the default is the name in
                the config.
            on_exists: action for an existing run folder, see `remuda.train`.
            priority: runs with a higher priority get workers first.
            provenance: origins of the settings, by dotted name, for the run folder.
            notes: lines for the commander's log.
            experiment: id of the experiment, a UUID: submitted again, nothing happens twice; the default is a new id.
            check: called several times a second until the coordinator answers. May raise an error of the launcher.
        """
        return self._ask(
            Submit(
                name=name or config.name,
                config_json=config.model_dump_json(),
                run_dir=os.fspath(run_dir if run_dir is not None else config.name),
                on_exists=on_exists,
                priority=priority,
                git=capture_git(Path.cwd()),
                provenance=dict(provenance or {}),
                notes=[shortened(note) for note in notes],
                experiment=experiment or str(uuid4()),
            ),
            Submitted,
            deadline_s=SUBMIT_DEADLINE_S,
            check=check,
        )

    def status(self, experiment: str | None = None) -> Status:
        """Return the state of the coordinator, its workers, and all experiments (or one: by id, unique prefix of an id,
        or name)."""
        return self._ask(StatusRequest(experiment), Status)

    def experiment(self, experiment: str) -> ExperimentStatus:
        """Return the state of an experiment."""
        return self.status(experiment).experiments[0]

    def follow(
        self,
        experiment: str,
        on_status: Callable[[ExperimentStatus], None],
        *,
        check: Callable[[], None] = lambda: None,
        stop: Callable[[], bool] = lambda: False,
        patience: Patience | None = None,
    ) -> ExperimentStatus:
        """Wait until an experiment is over and return its last status.

        Args:
            experiment: id, beginning of an id, or name.
            on_status: gets every status.
            check: called at every poll, and several times a second while the coordinator does not answer. May raise
                with the reason, but must send no requests.
            stop: once it returns True, the experiment is asked to stop.
            patience: limits the wait for a silent or missing coordinator, which then is an UnreachableError; default:
                no wait.
        """
        patience = patience or Patience(0.0)
        heard_s, stopping = time.monotonic(), False
        while True:
            try:
                if stop() and not stopping:
                    self._ask(StopExperiment(experiment), Done, check=check)
                    stopping = True
                status = self._ask(StatusRequest(experiment), Status, check=check).experiments[0]
            except (UnreachableError, ConnectionFileError) as error:
                check()
                silence_s = time.monotonic() - heard_s
                if silence_s > patience.limit_s:
                    raise UnreachableError(str(error)) from error
                if isinstance(error, ConnectionFileError):
                    patience.note(str(error))
                patience.silent(silence_s)
                time.sleep(FOLLOW_POLL_S)
                continue
            patience.heard(time.monotonic() - heard_s)
            heard_s = time.monotonic()
            on_status(status)
            if status.state in OVER:
                return status
            check()
            time.sleep(END_POLL_S if status.state == "stopping" else FOLLOW_POLL_S)

    def logs(
        self, experiment: str, source: str = "commander", *, last_lines: int | None = None, follow: bool = False
    ) -> Iterator[LogPiece]:
        """Yield pieces of a run's log: the last `last_lines` lines (None: all), and with `follow` all further lines
        until the experiment is over. Waits for a restarted coordinator; no line comes twice."""
        reader = LogReader(self, experiment, source, last_lines=last_lines)
        while True:
            pieces = reader.read()
            yield from pieces
            if not pieces and not reader.more:
                if reader.over or not follow:
                    return
                time.sleep(POLL_S)

    def read_log(self, request: LogRequest) -> LogText:
        """Request one step of `logs`."""
        return self._ask(request, LogText)

    def stop(self, experiment: str, *, now: bool = False) -> None:
        """Ask to stop an experiment cleanly; `now` skips the final evaluation. Returns at once."""
        self._ask(StopExperiment(experiment, now), Done)

    def prioritize(self, experiment: str, priority: int) -> None:
        """Change the priority of an unfinished experiment; experiments with a higher priority get workers first."""
        self._ask(Prioritize(experiment, priority), Done)

    def bill(self, by: BillKey = "user", *, since_hour: int = 0, until_hour: int | None = None) -> list[BillLine]:
        """Return the use of all runs by user, project, run or day, in a period of whole hours since 1970 (UTC)."""
        request = BillRequest(by, since_hour) if until_hour is None else BillRequest(by, since_hour, until_hour)
        return self._ask(request, Bill).lines

    def quotas(self) -> list[AccountStatus]:
        """Return all accounts with a quota or with recent use."""
        return self._ask(QuotaRequest(), Quotas).accounts

    def set_quota(self, quota: Quota) -> None:
        """Set weight and limits of a user or project; a quota without any removes the former."""
        self._ask(SetQuota(quota), Done)

    def shutdown(self, reason: str = "asked to by a client") -> None:
        """Ask to stop every experiment, let the workers leave and end the coordinator. Returns at once."""
        self._ask(Shutdown(reason), Done)

    def close(self) -> None:
        """End the conversation."""
        self._conversation.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(
        self,
        message: ClientMessage,
        kind: type[_T],
        *,
        deadline_s: float | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> _T:
        end_s = time.monotonic() + (self._answer_deadline_s if deadline_s is None else deadline_s)

        def moved() -> bool:
            check()
            return self._coordinator_moved()

        while True:
            try:
                answer = self._open_conversation().ask(message, end_s - time.monotonic(), moved=moved)
            except MovedError:  # every request may be repeated: a submission has an id
                continue
            except RefusedError as error:
                if error.code != "busy":
                    raise
                if time.monotonic() + POLL_S >= end_s:
                    raise UnreachableError(f"the coordinator is busy: {error}") from error
                check()
                time.sleep(POLL_S)
                continue
            got = type(answer).__name__
            assert isinstance(answer, kind), f"the coordinator answered {type(message).__name__} with {got}"
            return answer

    def _open_conversation(self) -> Conversation:
        """Return the conversation; if closed, open one with the coordinator now in the connection file."""
        if self._conversation.closed:
            self._connection = read(self._connection_file)
            self._conversation = Conversation(self._connection)
        return self._conversation

    def _coordinator_moved(self) -> bool:
        """True if the connection file names another coordinator, started after a crash."""
        with contextlib.suppress(ConnectionFileError):  # it is being started
            return read(self._connection_file).coordinator != self._connection.coordinator
        return False


def with_retries(ask: Callable[[], _T], pause: Callable[[], None]) -> _T:
    """Return the coordinator's answer, waiting for a missing or busy coordinator. Raises UnreachableError after
    RETURN_DEADLINE_S."""
    end_s = time.monotonic() + RETURN_DEADLINE_S
    while True:
        try:
            return ask()
        except (UnreachableError, ConnectionFileError) as error:  # without a file a coordinator is being started
            if time.monotonic() > end_s:
                raise UnreachableError(str(error)) from error
            pause()


class LogReader:
    """Reads one source of a run's logs step by step, also across restarts of the coordinator."""

    def __init__(self, client: Client, experiment: str, source: str, *, last_lines: int | None) -> None:
        self._client = client
        self._experiment = experiment
        self._source = source
        self._last_lines = last_lines
        self._positions: dict[str, LogPosition] = {}
        self.over = False
        """The experiment is over and everything was read."""
        self.more = False
        """True if more text can be read at once."""

    def read(self) -> list[LogPiece]:
        """Return new pieces, if any. Raises UnreachableError if no coordinator answers for RETURN_DEADLINE_S."""
        request = LogRequest(self._experiment, self._source, self._last_lines, list(self._positions.values()))
        answer = with_retries(partial(self._client.read_log, request), partial(time.sleep, POLL_S))
        for piece in answer.pieces:  # files that were just read go to the end, so that each file has its turn
            self._positions.pop(piece.position.file, None)
            self._positions[piece.position.file] = piece.position
        self.more = answer.more
        if self._positions and not answer.more:
            self._last_lines = None  # logs that appear later are shown from their beginning
        self.over = answer.over
        return [piece for piece in answer.pieces if piece.text]
