"""One exchange of HTTP: the head of a request in, the bytes of an answer out. Opens no socket."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

END_OF_HEAD = b"\r\n\r\n"
_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) (/[!-~]{0,2048}) HTTP/1\.[01]\r\n")
_PLAIN = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class Page:
    """What is served at a path."""

    status: HTTPStatus
    content_type: str
    body: bytes


def answer(head: bytes, pages: Mapping[str, Callable[[], Page]]) -> bytes:
    """The answer to a request. `head` ends with END_OF_HEAD; a body that follows it is not read.

    Only GET and HEAD are known; what follows a question mark in the path is ignored.
    """
    line = _REQUEST_LINE.match(head)
    if line is None:
        return failure(HTTPStatus.BAD_REQUEST)
    method, path = line[1], line[2].partition(b"?")[0].decode("ascii")
    make = pages.get(path)
    if make is None:
        return failure(HTTPStatus.NOT_FOUND)
    if method not in (b"GET", b"HEAD"):
        return failure(HTTPStatus.METHOD_NOT_ALLOWED, "Allow: GET, HEAD\r\n")
    return _encoded(make(), with_body=method == b"GET")


def failure(status: HTTPStatus, headers: str = "") -> bytes:
    """An answer that says no more than what is wrong with the request."""
    return _encoded(Page(status, _PLAIN, f"{status.phrase}\n".encode()), headers=headers)


def _encoded(page: Page, *, with_body: bool = True, headers: str = "") -> bytes:
    head = (
        f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\n"
        f"{headers}"
        "Cache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("ascii") + (page.body if with_body else b"")
