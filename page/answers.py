"""Answers as JSON, and which error becomes which status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus

import msgspec
from msgspec import Struct
from starlette.responses import Response

from remuda.page.actions import BusyError, RefusedByCommandError
from remuda.page.checking import ConfigProblemsError
from remuda.page.commands import BrokenOffError
from remuda.page.coordinator_link import NoCoordinatorError
from remuda.page.curves import UnknownCurveError
from remuda.page.films import NoFilmError
from remuda.page.log_files import UnknownLogError
from remuda.page.query import InvalidError
from remuda.page.run_ids import UnknownRunError
from remuda.storage.notes import NotesError
from remuda.wire.conversation import RefusedError

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


class Failure(Struct, frozen=True, omit_defaults=True):
    """What was wrong."""

    code: str
    message: str
    problems: Sequence[object] = ()


class _Error(Struct, frozen=True):
    error: Failure


def json(value: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Any struct as JSON."""
    return Response(msgspec.json.encode(value), status_code=status.value, media_type="application/json")


def failure(status: HTTPStatus, code: str, message: str, problems: Sequence[object] = ()) -> Response:
    """An error as JSON."""
    return json(_Error(Failure(code, message, problems)), status)


def told(error: Exception) -> Response | None:
    """The answer to an error that somebody may see; None for a fault of this program."""
    if isinstance(error, ConfigProblemsError):
        return failure(HTTPStatus.UNPROCESSABLE_ENTITY, "config", str(error), error.problems)
    for kind, (status, code) in _STATUS.items():
        if isinstance(error, kind):
            text = "it is not there (any more)" if isinstance(error, FileNotFoundError) else str(error)
            return failure(status, code, text)
    return None
