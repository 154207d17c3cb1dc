"""A real S3 server, moto's, in a process of its own: `python -m remuda.tests.parallel.faulty_s3 HOST PORT RATE FILE`.

With the probability RATE each, signed requests are answered by 503, uploads are cut in half and answered by 503, and
lists are answered as they were before; what a test asks itself is not signed. FILE has all changes: a server that is
started again has what the killed one confirmed.
"""

from __future__ import annotations

import base64
import io
import json
import random
import sys
import threading
from collections.abc import Callable, Iterable
from importlib import import_module  # moto comes with an extra
from pathlib import Path
from typing import Any

from werkzeug.serving import run_simple

Environ = dict[str, Any]
BUSY = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class Kept:
    """An application, with all changes in a file."""

    def __init__(self, application: Callable[..., Iterable[bytes]], file: Path) -> None:
        self.application, self.lock = application, threading.Lock()
        lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
        for line in lines:
            if line.endswith(b"\n"):  # else the server was killed while it wrote
                environ, body = json.loads(line)
                self.ask(environ, base64.b64decode(body), lambda *given: None)
        self.file = file.open("ab", buffering=0)

    def __call__(self, environ: Environ, start: Callable[..., object]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return self.application(environ, start)
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        answer = self.ask(environ, body, start)
        words = {name: value for name, value in environ.items() if isinstance(value, str)}
        with self.lock:
            self.file.write(json.dumps([words, base64.b64encode(body).decode()]).encode() + b"\n")
        return answer

    def ask(self, environ: Environ, body: bytes, start: Callable[..., object]) -> list[bytes]:
        return list(self.application({**environ, "wsgi.input": io.BytesIO(body), "wsgi.errors": sys.stderr}, start))


class Faulty:
    """The server's application behind faults."""

    def __init__(self, application: Callable[..., Iterable[bytes]], rate: float) -> None:
        self.application, self.rate = application, rate
        self.chance = random.Random(0)
        self.lists: dict[str, tuple[str, list[tuple[str, str]], list[bytes]]] = {}

    def __call__(self, environ: Environ, start: Callable[..., object]) -> Iterable[bytes]:
        method, query = environ["REQUEST_METHOD"], environ["QUERY_STRING"]
        if "HTTP_AUTHORIZATION" in environ and self.chance.random() < self.rate:
            if method == "PUT" and "/parts/" in environ["PATH_INFO"]:
                size = int(environ.get("CONTENT_LENGTH") or 0)
                torn = environ["wsgi.input"].read(size)[: size // 2]
                cut = {**environ, "wsgi.input": io.BytesIO(torn), "CONTENT_LENGTH": str(len(torn))}
                list(self.application(cut, lambda *given: None))
            else:
                environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start("503 Slow Down", [("Content-Type", "application/xml"), ("Content-Length", str(len(BUSY)))])
            return [BUSY]
        if method == "GET" and "list-type=2" in query:
            return self.listed(query, environ, start)
        return self.application(environ, start)

    def listed(self, query: str, environ: Environ, start: Callable[..., object]) -> Iterable[bytes]:
        if query not in self.lists or self.chance.random() > self.rate:
            head: list[Any] = []
            body = list(self.application(environ, lambda *given: head.extend(given)))
            self.lists[query] = head[0], head[1], body
        status, headers, body = self.lists[query]
        start(status, headers)
        return body


if __name__ == "__main__":
    host, port, rate, file = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4])
    server = import_module("moto.moto_server.werkzeug_app")
    kept = Kept(server.DomainDispatcherApplication(server.create_backend_app), file)
    run_simple(host, port, Faulty(kept, rate), threaded=True)
