"""An S3 server for a test, and what a command needs to find it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from remuda.tests.patience import until

for _package, _extra in (("s3fs", "bucket"), ("moto", "s3-server"), ("flask_cors", "s3-server")):
    if find_spec(_package) is None:  # only other processes import the packages, which takes long
        pytest.skip(f"pip install 'remuda[{_extra}]'", allow_module_level=True)

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


class Server:
    """An S3 server in a process of its own."""

    def __init__(self, command: Sequence[str], make: Sequence[str], log: Path) -> None:
        """`make` is a command that makes the bucket."""
        self.command, self.make, self.log = command, make, log
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as out:
            process = subprocess.Popen(self.command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)

        def answers() -> bool:
            asked = subprocess.run(self.make, capture_output=True, check=False)
            return process.poll() is not None or asked.returncode == 0

        until(answers, "the S3 server")
        assert process.poll() is None, self.log.read_text()
        return process

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def start_again(self) -> None:
        """Kill the server, and start one with the same content."""
        self.kill()
        self.process = self.start()


@contextmanager
def s3_server(
    host: str,
    port: int,
    log: Path,
    *,
    rate: float,
    on_host: Callable[..., Sequence[str]] = lambda *command: list(map(str, command)),
) -> Generator[Server]:
    """A server with an empty bucket; `on_host` makes a command of a host."""
    command = [sys.executable, "-m", "remuda.tests.parallel.faulty_s3", host, port, rate, log.with_suffix(".jsonl")]
    make = (
        "import sys, urllib.error as e, urllib.request as r\n"
        "try: r.urlopen(r.Request(sys.argv[1], method='PUT'), timeout=5)\n"
        "except e.HTTPError as error: sys.exit(error.code != 409)"  # 409: it is there
    )
    server = Server(on_host(*command), on_host(sys.executable, "-c", make, f"http://{host}:{port}/herd"), log)
    try:
        yield server
    finally:
        server.kill()


def run_in(cache: Path, name: str) -> Path:
    """The folder that stands for a run of RUNS on the machine with this cache."""
    return folder_in(cache, f"{RUNS}/{name}")


def folder_in(cache: Path, address: str) -> Path:
    """The folder that stands for an address on the machine with this cache."""
    return cache / "remuda" / address.replace("://", "/")


def with_environment(command: Sequence[str], environment: dict[str, str]) -> list[str]:
    """The command, with these variables as well."""
    return ["env", *(f"{name}={value}" for name, value in environment.items()), *command]
