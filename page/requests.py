"""Requests and answers: paths with parameters or bodies, and the answers to errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar

import msgspec
from msgspec import Struct
from starlette.responses import Response

from remuda.page import log_files
from remuda.page.actions import (
    Actions,
    BusyError,
    Check,
    ConfigProblemsError,
    EvaluateBody,
    NoteBody,
    PriorityBody,
    RefusedByCommandError,
    ReplayBody,
    ResumeBody,
    StopBody,
    SubmitBody,
)
from remuda.page.checkpoints import NoFilmError
from remuda.page.commands import BrokenOffError
from remuda.page.comparing import MOST_SETTINGS_RUNS
from remuda.page.coordinator_link import NoCoordinatorError
from remuda.page.curves import Quantity, UnknownCurveError
from remuda.page.growing import MOST_BUCKETS
from remuda.page.log_files import UnknownLogError
from remuda.page.run_ids import UnknownRunError
from remuda.page.views import MOST_CURVES, Views
from remuda.storage.notes import NotesError
from remuda.wire.conversation import RefusedError

LONGEST_TEXT = 2_000
MOST_POINTS = 1_000
MOST_CHARTS = 12
LONGEST_SEARCH = 200
_ALL_LOGS = "*"
_Body = TypeVar("_Body", bound=Struct)


class InvalidError(Exception):
    """Malformed parameter or body; the text names the parameter."""


class Query:
    """Pairs of names and texts, as in an address behind the question mark."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self._pairs = pairs

    def texts(self, name: str, *, most: int) -> list[str]:
        """All texts of this name. Raises InvalidError for more than `most`."""
        found = [text for key, text in self._pairs if key == name]
        if len(found) > most:
            raise InvalidError(f"{name}: given {len(found)} times, at most {most} are allowed")
        for text in found:
            if len(text) > LONGEST_TEXT:
                raise InvalidError(f"{name}: longer than {LONGEST_TEXT} characters")
        return found

    def some(self, name: str, *, most: int) -> list[str]:
        """Return the distinct texts of this name. Raises InvalidError for none, and for more than `most`."""
        found = list(dict.fromkeys(self.texts(name, most=most)))
        if not found:
            raise InvalidError(f"{name}: missing")
        return found

    def optional(self, name: str) -> str | None:
        """Return the text of this name, or None. Raises InvalidError for several."""
        found = self.texts(name, most=1)
        return found[0] if found else None

    def text(self, name: str) -> str:
        """Return the text of this name. Raises InvalidError for a missing or empty text."""
        found = self.optional(name)
        if not found:
            raise InvalidError(f"{name}: missing")
        return found

    def whole(self, name: str, default: int, *, least: int, most: int) -> int:
        """A whole number. Raises InvalidError."""
        found = self.optional(name)
        if found is None:
            return default
        if not (found.isascii() and found.isdecimal() and len(found) <= 20 and least <= int(found) <= most):
            raise InvalidError(f"{name}={found[:40]}: a whole number from {least} to {most}")
        return int(found)

    def offset(self, name: str) -> int | None:
        """Return an offset in a file, or None. Raises InvalidError."""
        return None if self.optional(name) is None else self.whole(name, 0, least=0, most=2**62)

    def seconds(self, name: str, default: float) -> float:
        """A number of seconds, 0 or more. Raises InvalidError."""
        found = self.optional(name)
        if found is None:
            return default
        try:
            value = float(found)
        except ValueError:
            value = math.nan
        if not value >= 0:
            raise InvalidError(f"{name}={found[:40]}: a number of seconds, 0 or more")
        return value

    def flag(self, name: str) -> bool:
        """True for 1, false for 0 or nothing. Raises InvalidError."""
        found = self.optional(name)
        if found not in (None, "0", "1"):
            raise InvalidError(f"{name}={found[:40] if found else ''}: 0 or 1")
        return found == "1"


_STATUS: Mapping[type[Exception], tuple[HTTPStatus, str]] = {
    InvalidError: (HTTPStatus.BAD_REQUEST, "invalid"),
    UnknownCurveError: (HTTPStatus.BAD_REQUEST, "invalid"),
    UnknownRunError: (HTTPStatus.NOT_FOUND, "unknown"),
    UnknownLogError: (HTTPStatus.NOT_FOUND, "unknown"),
    NoFilmError: (HTTPStatus.NOT_FOUND, "unknown"),
    NotesError: (HTTPStatus.BAD_REQUEST, "invalid"),
    BusyError: (HTTPStatus.TOO_MANY_REQUESTS, "busy"),
    RefusedByCommandError: (HTTPStatus.CONFLICT, "refused"),
    FileNotFoundError: (HTTPStatus.NOT_FOUND, "unknown"),
    RefusedError: (HTTPStatus.CONFLICT, "refused"),
    NoCoordinatorError: (HTTPStatus.SERVICE_UNAVAILABLE, "coordinator"),
    BrokenOffError: (HTTPStatus.SERVICE_UNAVAILABLE, "ended"),
}


def json(value: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Anything that msgspec knows as JSON."""
    return Response(msgspec.json.encode(value), status_code=status.value, media_type="application/json")


def failure(status: HTTPStatus, code: str, message: str, problems: Sequence[object] = ()) -> Response:
    """An error as JSON."""
    listed = {"problems": problems} if problems else {}
    return json({"error": {"code": code, "message": message, **listed}}, status)


def error_answer(error: Exception) -> Response | None:
    """Return the answer to an error of the user; None for a fault of this program."""
    if isinstance(error, ConfigProblemsError):
        return failure(HTTPStatus.UNPROCESSABLE_ENTITY, "config", str(error), error.problems)
    for kind, (status, code) in _STATUS.items():
        if isinstance(error, kind):
            text = "it does not exist (any more)" if isinstance(error, FileNotFoundError) else str(error)
            return failure(status, code, text)
    return None


Read = Callable[[Views, Query], object]


def _curves(views: Views, query: Query) -> object:
    x, names = query.optional("x") or "env_step", query.some("y", most=MOST_CHARTS)
    points = query.whole("points", 400, least=2, most=MOST_POINTS)
    return views.curves(query.texts("run", most=MOST_CURVES), [Quantity(y, x) for y in names], points)


def _timeline(views: Views, query: Query) -> object:
    buckets = query.whole("buckets", 200, least=1, most=MOST_BUCKETS)
    from_s, to_s = query.seconds("from_s", 0.0), query.seconds("to_s", float("inf"))
    return views.timeline(query.text("run"), buckets, from_s, to_s)


def _log(views: Views, query: Query) -> object:
    try:
        return _log_part(views, query)
    except FileNotFoundError:
        raise
    except OSError as error:  # a link, or a file without permission
        raise log_files.UnknownLogError(f"the log cannot be read: {error.strerror}") from error


def _log_part(views: Views, query: Query) -> object:
    folder, file = views.ids.folder(query.text("run")), query.text("file")
    before, wanted = query.offset("before"), query.optional("search")
    if not wanted:
        if file == _ALL_LOGS:
            raise InvalidError("file=*: all logs can only be searched: add search=TEXT")
        lines = query.whole("lines", 500, least=1, most=log_files.MOST_LINES)
        return log_files.read_part(folder.log, file, before=before, after=query.offset("after"), lines=lines)
    if len(wanted) > LONGEST_SEARCH:
        raise InvalidError(f"search: longer than {LONGEST_SEARCH} characters")
    if file == _ALL_LOGS:
        if before is not None:
            raise InvalidError("before: a search of all logs cannot be continued; name one log")
        return log_files.search_all(folder.log, wanted, case=query.flag("case"))
    return log_files.search(folder.log, file, wanted, before=before, case=query.flag("case"))


READS: dict[str, Read] = {
    "/api/herd": lambda views, query: views.herd(),
    "/api/queue": lambda views, query: views.queue(),
    "/api/runs": lambda views, query: views.runs(),
    "/api/run": lambda views, query: views.run(query.text("run")),
    "/api/curves": _curves,
    "/api/metrics": lambda views, query: views.metrics(query.texts("run", most=MOST_CURVES)),
    "/api/timeline": _timeline,
    "/api/logs": lambda views, query: {"files": views.logs(query.text("run"))},
    "/api/log": _log,
    "/api/checkpoints": lambda views, query: views.checkpoints(query.text("run")),
    "/api/config": lambda views, query: views.settings(query.some("run", most=MOST_SETTINGS_RUNS)),
    "/api/compare": lambda views, query: views.compared(query.texts("run", most=MOST_CURVES), query.optional("sweep")),
    "/api/lineage": lambda views, query: views.lineage(query.text("sweep")),
    "/api/examples": lambda views, query: {"examples": views.examples()},
}
"""By path. The answers become JSON."""


@dataclass(frozen=True)
class Write:
    """Handler of a path."""

    action: str
    """Name of the needed permission in NEEDS."""
    carry_out: Callable[[Actions, bytes], object]
    """Takes the body; the answer becomes JSON, and pieces are sent as they come."""
    status: HTTPStatus = HTTPStatus.OK

    @classmethod
    def of(
        cls,
        action: str,
        kind: type[_Body],
        method: Callable[[Actions, _Body], object],
        status: HTTPStatus = HTTPStatus.OK,
    ) -> Write:
        """Decode the body as `kind`, and pass the body to the method."""
        return cls(action, lambda actions, content: method(actions, body_of(content, kind)), status)


WRITES: Mapping[str, Write] = {
    "/api/config/check": Write.of("submit", Check, Actions.check),
    "/api/submit": Write.of("submit", SubmitBody, Actions.submit),
    "/api/resume": Write.of("resume", ResumeBody, Actions.resume),
    "/api/stop": Write.of("stop", StopBody, Actions.stop),
    "/api/priority": Write.of("priority", PriorityBody, Actions.prioritize),
    "/api/replay": Write.of("replay", ReplayBody, Actions.replay),
    "/api/note": Write.of("note", NoteBody, Actions.note),
    "/api/evaluate": Write.of("evaluate", EvaluateBody, Actions.evaluate, HTTPStatus.ACCEPTED),
}
"""By path; all are POST."""


def body_of(content: bytes, kind: type[_Body]) -> _Body:
    """The body of a request. Raises InvalidError."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidError(f"the body: {error}") from None
