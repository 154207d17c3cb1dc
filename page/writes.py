"""What a page answers to operators: each path, the body that it takes, and the action that it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from remuda.page.actions import (
    Actions,
    Check,
    EvaluateBody,
    NoteBody,
    PriorityBody,
    ResumeBody,
    StopBody,
    SubmitBody,
    body_of,
)


@dataclass(frozen=True)
class Write:
    """One path."""

    action: str
    """The name in NEEDS of what its user must be allowed to do."""
    carry_out: Callable[[Actions, bytes], object]
    """Takes the body; the answer becomes JSON."""
    status: HTTPStatus = HTTPStatus.OK


WRITES: Mapping[str, Write] = {
    "/api/config/check": Write("submit", lambda actions, body: actions.check(body_of(body, Check))),
    "/api/submit": Write("submit", lambda actions, body: actions.submit(body_of(body, SubmitBody))),
    "/api/resume": Write("resume", lambda actions, body: actions.resume(body_of(body, ResumeBody))),
    "/api/stop": Write("stop", lambda actions, body: actions.stop(body_of(body, StopBody))),
    "/api/priority": Write("priority", lambda actions, body: actions.prioritize(body_of(body, PriorityBody))),
    "/api/note": Write("note", lambda actions, body: actions.note(body_of(body, NoteBody))),
    "/api/evaluate": Write(
        "evaluate", lambda actions, body: actions.evaluate(body_of(body, EvaluateBody)), HTTPStatus.ACCEPTED
    ),
}
"""By path; all are POST."""
