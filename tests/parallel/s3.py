"""An S3 server for a test, and what a command needs to find it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from remuda.tests.patience import until

pytest.importorskip("s3fs", reason="pip install 'remuda[bucket]'")
pytest.importorskip("moto", reason="pip install 'remuda[s3-server]'")
pytest.importorskip("flask_cors", reason="pip install 'remuda[s3-server]'")

RUNS = "s3://herd/runs"


def environment_of(host: str, port: int, cache: Path) -> dict[str, str]:
    """The variables by which a command finds the server, and keeps its runs in `cache`."""
    return {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "XDG_CACHE_HOME": str(cache),
    }


@contextmanager
def s3_server(
    host: str,
    port: int,
    log: Path,
    *,
    rate: float,
    on_host: Callable[..., Sequence[str]] = lambda *command: list(map(str, command)),
) -> Generator[None]:
    """A server with an empty bucket; `on_host` makes a command of a host."""
    server = [sys.executable, "-m", "remuda.tests.parallel.faulty_s3", host, port, rate]
    make = "import sys, urllib.request as r; r.urlopen(r.Request(sys.argv[1], method='PUT'), timeout=5)"
    with log.open("wb") as out:
        process = subprocess.Popen(on_host(*server), stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    try:
        made = on_host(sys.executable, "-c", make, f"http://{host}:{port}/herd")
        until(
            lambda: process.poll() is not None or not subprocess.run(made, capture_output=True, check=False).returncode,
            "the S3 server",
        )
        assert process.poll() is None, log.read_text()
        yield
    finally:
        process.kill()
        process.wait()


def run_in(cache: Path, name: str) -> Path:
    """The folder that stands for a run of RUNS on the machine with this cache."""
    return cache / "remuda" / "s3" / "herd" / "runs" / name


def with_environment(command: Sequence[str], environment: dict[str, str]) -> list[str]:
    """The command, with these variables as well."""
    return ["env", *(f"{name}={value}" for name, value in environment.items()), *command]
