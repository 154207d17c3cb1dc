"""What stands before everything that a page answers: the token, and headers that are the same for all."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from remuda.page.answers import failure
from remuda.page.tokens import Tokens

API = "/api/"
RIGHT = "remuda_page_right"
"""The key under which a request's scope has the right of its token."""
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
"""Of every answer. Nothing is loaded from elsewhere, no text becomes a program, and no other site gets at an answer."""


class Guard:
    """Passes on requests for files of the browser side, which hold no data, and those for data that show a token."""

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI calls it."""
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
