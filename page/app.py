"""The page's server as an application of Starlette, behind a guard that checks tokens."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar, cast

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from remuda.page.actions import LONGEST_BODY_BYTES, Actions, allowed
from remuda.page.curves import Quantity
from remuda.page.process import PageRight, Tokens
from remuda.page.requests import READS, WRITES, Query, Read, Write, error_answer, failure, json
from remuda.page.run_ids import UnknownRunError
from remuda.page.stream import Follower, Position, StreamOptions
from remuda.page.views import MOST_CURVES, Session, Views

API = "/api/"
RIGHT = "remuda_page_right"
"""Key of the token's right in the scope of a request."""
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob: data:",
        "connect-src 'self'",
        "font-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Sequence[tuple[str, str]] = (
    ("Content-Security-Policy", _POLICY),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
"""Headers of every answer: no content from elsewhere, no inline scripts, no access by other sites."""
STATIC = Path(__file__).resolve().parent / "static"
"""The files of the browser side."""
MOST_STREAMS = 64
MOST_DOWNLOADS = 4
"""CSV tables sent at the same time, beside replays."""
ROUND_S = 1.0
"""Between two rounds of a stream."""
KEEP_ALIVE_S = 15.0
"""Seconds of silence after which a stream sends a comment."""
_THREADS = 8
"""Most requests that read files at the same time."""
_T = TypeVar("_T")


class Guard:
    """Passes on requests for files of the browser side, which hold no data, and requests for data with a token."""

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_data = str(scope["path"]).startswith(API)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=list(message.get("headers", ())))
                for name, value in HEADERS:
                    headers[name] = value
                headers["Cache-Control"] = "no-store" if is_data else "no-cache"
                message = {**message, "headers": headers.raw}
            await send(message)

        app = self._app
        if is_data:
            right = self._tokens.right(Headers(scope=scope).get("authorization"))
            scope[RIGHT] = right
            if right is None:
                app = failure(HTTPStatus.UNAUTHORIZED, "token", "this link's token is missing or no longer valid")
        await app(scope, receive, send_with_headers)


class Page:
    """Answers requests. Work that may wait for a disk or for the coordinator runs in a few threads."""

    def __init__(self, views: Views, actions: Actions, ending: asyncio.Event) -> None:
        self._views = views
        self._actions = actions
        self._ending = ending
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._streams = 0
        self._downloads = 0

    def routes(self, static: Path) -> list[Route]:
        files = StaticFiles(directory=static, check_dir=False)
        return [
            Route("/", partial(_file, files)),
            Route("/static/{path:path}", partial(_file, files)),
            Route("/api/session", self._session),
            Route("/api/film", self._film),
            Route("/api/csv", self._csv),
            Route("/api/events", self._events),
            *(Route(path, partial(self._read, read)) for path, read in READS.items()),
            *(Route(path, partial(self._write, write), methods=["POST"]) for path, write in WRITES.items()),
        ]

    def session(self, right: PageRight) -> Session:
        """Return the session of a user with this right."""
        return self._views.session(right, self._actions.names(right))

    async def _session(self, request: Request) -> Response:
        return await self._answered(lambda: json(self.session(right_of(request))))

    async def _read(self, read: Read, request: Request) -> Response:
        query = _query(request)
        return await self._answered(lambda: json(read(self._views, query)))

    async def _write(self, write: Write, request: Request) -> Response:
        if write.action not in allowed(right_of(request)):
            text = f"this link's token allows only reading: {write.action} needs the right operator"
            return failure(HTTPStatus.FORBIDDEN, "right", text)
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return failure(HTTPStatus.BAD_REQUEST, "invalid", "the body must be application/json")
        body = await _body(request)
        if body is None:
            text = f"the body is larger than {LONGEST_BODY_BYTES} bytes"
            return failure(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "large", text)

        def carried_out() -> Response:
            answer = write.carry_out(self._actions, body)
            if isinstance(answer, Generator):
                pieces = cast("Generator[bytes]", answer)
                return StreamingResponse(self._sent(pieces), media_type="application/x-ndjson")
            return json(answer, write.status)

        return await self._answered(carried_out)

    async def _film(self, request: Request) -> Response:
        query = _query(request)

        def film() -> Response:
            query.text("train_iter")
            train_iter = query.whole("train_iter", 0, least=0, most=2**53)
            return Response(self._views.films(query.text("run")).gif(train_iter), media_type="image/gif")

        return await self._answered(film)

    async def _csv(self, request: Request) -> Response:
        if request.method != "GET":
            return failure(HTTPStatus.METHOD_NOT_ALLOWED, "method", "a table is read with GET")
        if self._downloads >= MOST_DOWNLOADS:
            text = f"{self._downloads} tables are being sent: try again in a moment"
            return failure(HTTPStatus.TOO_MANY_REQUESTS, "busy", text)
        query = _query(request)

        def begun() -> Response:
            pieces = self._views.csv(query.some("run", most=MOST_CURVES), Quantity(query.text("y"), "env_step"))
            headers = {"Content-Disposition": 'attachment; filename="curve.csv"'}
            return StreamingResponse(self._sent(pieces), media_type="text/csv; charset=utf-8", headers=headers)

        return await self._answered(begun)

    async def _sent(self, pieces: Generator[bytes]) -> AsyncGenerator[bytes]:
        """Send the pieces at the pace of the reader, who may leave. An error breaks off the answer, to show a missing
        rest."""
        self._downloads += 1
        try:
            while (piece := await self._in_thread(lambda: next(pieces, None))) is not None:
                yield piece
        finally:
            self._downloads -= 1
            pieces.close()

    async def _events(self, request: Request) -> Response:
        if request.method != "GET":
            return failure(HTTPStatus.METHOD_NOT_ALLOWED, "method", "a stream is read with GET")
        if self._ending.is_set():
            return failure(HTTPStatus.SERVICE_UNAVAILABLE, "ended", "the page's server is ending")
        if self._streams >= MOST_STREAMS:
            text = f"{self._streams} streams are open: close one"
            return failure(HTTPStatus.TOO_MANY_REQUESTS, "busy", text)
        query, right = _query(request), right_of(request)
        position = Position.of(request.headers.get("last-event-id"))

        def begun() -> Response:
            follower = Follower(self._views, _stream_options(query), partial(self.session, right), position)
            return StreamingResponse(self._event_bytes(follower), media_type="text/event-stream")

        return await self._answered(begun)

    async def _event_bytes(self, follower: Follower) -> AsyncGenerator[bytes]:
        """Send news, round by round, until the reader disconnects or the server ends."""
        self._streams += 1
        try:
            silent_s = 0.0
            while not self._ending.is_set():
                messages = await self._in_thread(lambda: list(follower.news()))
                if messages:
                    yield b"".join(message.encoded() for message in messages)
                elif silent_s >= KEEP_ALIVE_S:
                    yield b": nothing new\n\n"
                silent_s = 0.0 if messages or silent_s >= KEEP_ALIVE_S else silent_s + ROUND_S
                with anyio.move_on_after(ROUND_S):
                    await self._ending.wait()
        except (UnknownRunError, OSError):
            return  # the run was removed: the next request gets the error
        finally:
            self._streams -= 1

    async def _answered(self, make: Callable[[], Response]) -> Response:
        """Return the answer, or the answer to an exception of `make`."""
        try:
            return await self._in_thread(make)
        except Exception as error:
            answer = error_answer(error)
            if answer is None:
                traceback.print_exc(file=sys.stderr)
                text = "the page's server failed: the terminal of its command shows the reason"
                answer = failure(HTTPStatus.INTERNAL_SERVER_ERROR, "failed", text)
            return answer

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await anyio.to_thread.run_sync(work, limiter=self._threads)


def make_app(
    views: Views,
    actions: Actions,
    tokens: Tokens,
    *,
    static: Path = STATIC,
    ending: asyncio.Event | None = None,
) -> Guard:
    """Make the application. The caller closes `views` and `actions`. `ending` ends the streams, which are otherwise
    endless."""
    routes = Page(views, actions, ending or asyncio.Event()).routes(static)
    return Guard(Starlette(routes=routes, exception_handlers={HTTPException: _http_error}), tokens)


def right_of(request: Request) -> PageRight:
    """Return the right of a request behind the guard."""
    return cast("PageRight", request.scope[RIGHT])


async def _body(request: Request) -> bytes | None:
    """Return the body; None for a body above the limit, without reading the rest."""
    parts = bytearray()
    async for part in request.stream():
        parts += part
        if len(parts) > LONGEST_BODY_BYTES:
            return None
    return bytes(parts)


def _query(request: Request) -> Query:
    return Query(request.query_params.multi_items())


def _stream_options(query: Query) -> StreamOptions:
    return StreamOptions(
        run=query.optional("run"),
        log=query.optional("log"),
        after=query.offset("after"),
        runs=query.flag("runs"),
        herd=query.flag("herd"),
    )


async def _file(files: StaticFiles, request: Request) -> Response:
    path = request.path_params.get("path", "index.html")
    return await files.get_response(path, request.scope)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for these alone"
    status = HTTPStatus(error.status_code)
    codes = {HTTPStatus.NOT_FOUND: "unknown", HTTPStatus.METHOD_NOT_ALLOWED: "method"}
    return failure(status, codes.get(status, "invalid"), f"{status.phrase}: {request.url.path[:200]}")
