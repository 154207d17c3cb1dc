"""One exchange of HTTP: two methods, the pages that there are, and an answer to everything else."""

from __future__ import annotations

from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.coordinator.monitoring.exchange import END_OF_HEAD, Page, answer

PAGES = {"/health": lambda: Page(HTTPStatus.SERVICE_UNAVAILABLE, "application/json", b"{}\n")}


def ask(line: bytes, headers: bytes = b"") -> tuple[int, bytes]:
    """Status and body."""
    head, _, body = answer(line + b"\r\n" + headers + b"\r\n", PAGES).partition(END_OF_HEAD)
    return int(head.split()[1]), body


@pytest.mark.parametrize("version", [b"HTTP/1.0", b"HTTP/1.1"])
def test_a_page_with_its_status(version: bytes) -> None:
    assert ask(b"GET /health " + version, b"Host: here\r\nX: y\r\n") == (503, b"{}\n")


def test_the_whole_answer() -> None:
    assert answer(b"GET /health HTTP/1.1\r\n\r\n", PAGES) == (
        b"HTTP/1.1 503 Service Unavailable\r\n"
        b"Content-Type: application/json\r\n"
        b"Content-Length: 3\r\n"
        b"Cache-Control: no-store\r\n"
        b"X-Content-Type-Options: nosniff\r\n"
        b"Connection: close\r\n\r\n{}\n"
    )


def test_head_is_get_without_the_body() -> None:
    whole = answer(b"HEAD /health HTTP/1.1\r\n\r\n", PAGES)
    assert whole.endswith(b"\r\n\r\n")
    assert b"Content-Length: 3\r\n" in whole


def test_what_follows_the_question_mark_is_ignored() -> None:
    assert ask(b"GET /health?probe=1 HTTP/1.1") == (503, b"{}\n")


def test_another_method_is_told_which_there_are() -> None:
    assert ask(b"POST /health HTTP/1.1", b"Content-Length: 5\r\n")[0] == 405
    assert b"\r\nAllow: GET, HEAD\r\n" in answer(b"DELETE /health HTTP/1.1\r\n\r\n", PAGES)


@pytest.mark.parametrize("path", [b"/", b"/healthy", b"/health/", b"/../etc/passwd", b"/%2e%2e/health", b"//health"])
def test_no_other_path_leads_anywhere(path: bytes) -> None:
    assert ask(b"GET " + path + b" HTTP/1.1") == (404, b"Not Found\n")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"GET /health",
        b"GET  /health HTTP/1.1",
        b"get /health HTTP/1.1",
        b"GET /health HTTP/2.0",
        b"GET health HTTP/1.1",
        b"GET http://here/health HTTP/1.1",
        b"GET /health\x00 HTTP/1.1",
        b"GET /h\xe4lth HTTP/1.1",
        b"GET /health HTTP/1.1 ",
        b"GET /" + 3_000 * b"a" + b" HTTP/1.1",
        b"\x16\x03\x01\x02\x00\x01\x00",  # somebody speaks TLS
        b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f",  # somebody speaks ZeroMQ
    ],
)
def test_what_is_no_request_is_answered_with_400(line: bytes) -> None:
    assert ask(line) == (400, b"Bad Request\n")


@given(st.binary(max_size=300))
def test_nothing_that_is_sent_raises_or_comes_back(head: bytes) -> None:
    status, body = ask(b"\x7f" + head)
    assert (status, body) == (400, b"Bad Request\n")
