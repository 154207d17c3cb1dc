"""One thread per process, unless somebody said otherwise; and who may use more."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.tests.imports import THIS_CHECKOUT
from remuda.tests.patience import HANG_S
from remuda.worker.process import (
    EXIT_NOT_FLUSHED,
    FOLLOWS,
    ONE_THREAD,
    bound_threads,
    child_environment,
    exit_code,
    gc_frozen,
    may_choose_threads,
)

PROGRAM = """
import atexit, sys, threading, time
from remuda.worker.process import exit_now

class Freed:
    def __del__(self):
        print("freed")

kept = Freed()
atexit.register(print, "registered")
def last():
    threading.main_thread().join()  # only returns while the process ends
    print("the thread")
threading.Thread(target=last).start()
print("standard output", end="")
print("standard error", end="", file=sys.stderr)
exit_now(3)
"""


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """Without any of the variables; all are as before afterwards."""
    before = dict(os.environ)
    for name in (*ONE_THREAD, FOLLOWS):
        os.environ.pop(name, None)
    yield
    os.environ.clear()
    os.environ.update(before)


def test_threads_are_bounded_unless_somebody_said_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    bound_threads()
    assert [os.environ[name] for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")] == [
        "4",
        "1",
        "1",
    ]
    assert not may_choose_threads()
    assert "torch" not in sys.modules


def test_children_know_who_chose() -> None:
    assert child_environment({"HOME": "/"}) == {"HOME": "/", **ONE_THREAD, FOLLOWS: "1"}
    assert child_environment(child_environment({})) == child_environment({})
    assert FOLLOWS not in child_environment({"MKL_NUM_THREADS": "2"})
    assert child_environment({"MKL_NUM_THREADS": "2"})["MKL_NUM_THREADS"] == "2"


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    program = (
        "import resource; hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1];"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, min(hard, 4096)));"
        "from remuda.worker.process import open_files_limit, raise_open_files_limit;"
        "raise_open_files_limit(); print(open_files_limit())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=HANG_S)
    assert done.stdout.strip() == "4096"


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_off_meanwhile_and_then_as_it_was(enabled: bool) -> None:
    was_enabled, frozen = gc.isenabled(), gc.get_freeze_count()
    (gc.enable if enabled else gc.disable)()
    try:
        with gc_frozen():
            assert not gc.isenabled()
        assert gc.isenabled() is enabled
        assert gc.get_freeze_count() > frozen
    finally:
        if not frozen:
            gc.unfreeze()
        (gc.enable if was_enabled else gc.disable)()


def ended(program: str, *arguments: str, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={"PATH": "", **THIS_CHECKOUT},
        text=True,
        timeout=HANG_S,
        check=False,
    )


@pytest.mark.processes
def test_threads_end_what_is_registered_is_called_and_nothing_printed_is_lost() -> None:
    done = ended(PROGRAM)
    assert done.returncode == 3
    assert done.stdout == "standard outputthe thread\nregistered\n"
    assert done.stderr == "standard error"


FILES = """
import gc, io, sys
from pathlib import Path
from remuda.worker.process import exit_now

folder = Path(sys.argv[1])
text = (folder / "text").open("w")
text.write("text")
frozen = (folder / "frozen").open("w")
frozen.write("frozen")
gc.freeze()
binary = (folder / "binary").open("wb")
binary.write(b"binary")
both = (folder / "both").open("w+b")
both.write(b"both")
closed = (folder / "closed").open("w")
closed.close()
class Other(io.TextIOWrapper):
    def flush(self):
        raise RuntimeError("its own affair")
other = Other(io.BytesIO())
exit_now(0)
"""


@pytest.mark.processes
def test_what_was_written_to_files_that_nobody_has_closed_is_not_lost(tmp_path: Path) -> None:
    done = ended(FILES, str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        **{name: name for name in ("text", "frozen", "binary", "both")},
        "closed": "",
    }


@pytest.mark.processes
def test_output_that_cannot_be_written_is_a_failure() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = ended("from remuda.worker.process import exit_now; print('much'); exit_now(0)", stdout=full.fileno())
    assert done.returncode == EXIT_NOT_FLUSHED


@pytest.mark.parametrize(("code", "means"), [(None, 0), (0, 0), (2, 2), ("it failed", 1)])
def test_what_an_exception_says_of_the_exit_code(code: object, means: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(SystemExit(code)) == means
    assert capsys.readouterr().err == ("it failed\n" if code == "it failed" else "")
