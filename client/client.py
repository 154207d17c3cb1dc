"""The Python API to a coordinator: submit, status, stop, shutdown."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal
from uuid import uuid4

from remuda.config.schema import ExperimentConfig
from remuda.wire.connection_file import read
from remuda.wire.conversation import Conversation, UnreachableError
from remuda.wire.messages import (
    AnyMessage,
    ClientMessage,
    Done,
    ExperimentStatus,
    Origin,
    Shutdown,
    Status,
    StatusRequest,
    StopExperiment,
    Submit,
    Submitted,
)

ANSWER_DEADLINE_S = 10.0
SUBMIT_DEADLINE_S = 60.0
"""Making a run folder and recording git may take a while on a network file system."""
POLL_S = 0.2
OVER = ("finished", "stopped", "failed")


class Client:
    """A conversation with one coordinator; a context manager.

    Every method raises RefusedError when the coordinator says no and UnreachableError when it does not answer.
    """

    def __init__(self, connection_file: str | Path, *, answer_deadline_s: float = ANSWER_DEADLINE_S) -> None:
        """Raises ConnectionFileError when the file is missing, malformed or open to others."""
        self._answer_deadline_s = answer_deadline_s
        self._conversation = Conversation(read(Path(connection_file)))

    def submit(
        self,
        config: ExperimentConfig,
        *,
        run_dir: str | Path | None = None,
        on_exists: Literal["error", "resume", "force", "rename"] = "error",
        priority: int = 0,
        provenance: Mapping[str, Origin] | None = None,
    ) -> Submitted:
        """Submit an experiment. `run_dir` is absolute or relative to the coordinator's runs folder."""
        answer = self._ask(
            Submit(
                name=config.name,
                config_json=config.model_dump_json(),
                run_dir=os.fspath(run_dir if run_dir is not None else config.name),
                on_exists=on_exists,
                priority=priority,
                submitted_from=os.getcwd(),
                provenance=dict(provenance or {}),
                experiment=str(uuid4()),
            ),
            SUBMIT_DEADLINE_S,
        )
        assert isinstance(answer, Submitted), f"the coordinator answered Submit with {type(answer).__name__}"
        return answer

    def status(self, experiment: str | None = None) -> Status:
        """The coordinator, its workers, and its experiments (or one: by id, unique prefix of an id, or name)."""
        answer = self._ask(StatusRequest(experiment))
        assert isinstance(answer, Status), f"the coordinator answered StatusRequest with {type(answer).__name__}"
        return answer

    def experiment(self, experiment: str) -> ExperimentStatus:
        """One experiment's state."""
        return self.status(experiment).experiments[0]

    def follow(
        self,
        experiment: str,
        on_status: Callable[[ExperimentStatus], None],
        *,
        check: Callable[[], None] = lambda: None,
    ) -> ExperimentStatus:
        """Wait until the experiment is over and return its last state; `check` is called at each poll and may raise.

        It is asked first when the coordinator does not answer: it may know why.
        """
        while True:
            try:
                status = self.experiment(experiment)
            except UnreachableError:
                check()
                raise
            on_status(status)
            if status.state in OVER:
                return status
            check()
            time.sleep(POLL_S)

    def stop(self, experiment: str, *, now: bool = False) -> None:
        """Stop an experiment cleanly; `now` skips its final evaluation. Returns at once."""
        answer = self._ask(StopExperiment(experiment, now))
        assert isinstance(answer, Done), f"the coordinator answered StopExperiment with {type(answer).__name__}"

    def shutdown(self, reason: str = "asked to by a client") -> None:
        """Stop every experiment, send the workers home and end the coordinator. Returns at once."""
        answer = self._ask(Shutdown(reason))
        assert isinstance(answer, Done), f"the coordinator answered Shutdown with {type(answer).__name__}"

    def close(self) -> None:
        """End the conversation."""
        self._conversation.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, message: ClientMessage, deadline_s: float | None = None) -> AnyMessage:
        return self._conversation.ask(message, self._answer_deadline_s if deadline_s is None else deadline_s)
