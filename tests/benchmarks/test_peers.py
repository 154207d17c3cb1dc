"""Peers: processes of their own that print a number, fail, hang or are not there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest

from remuda.benchmarks import process
from remuda.benchmarks.figure import ReferenceFailedError, compare
from remuda.benchmarks.peers import peer, versions
from remuda.tests.patience import HANG_S, until


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with a peer `dummy` whose environment is our own interpreter."""
    (tmp_path / "benchmarks" / "peers" / "dummy").mkdir(parents=True)
    bin_dir = tmp_path / ".venv-peers" / "dummy" / "bin"
    bin_dir.mkdir(parents=True)
    (bin_dir / "python").symlink_to(sys.executable)
    return tmp_path


def write(root: Path, code: str) -> None:
    (root / "benchmarks" / "peers" / "dummy" / "speed.py").write_text(code, encoding="utf-8")


def test_the_value_of_the_last_json_line_counts(root: Path) -> None:
    write(
        root, "import sys\nprint('{\"value\": 1}')\nprint('{\"value\": %s, \"more\": []}' % sys.argv[1])\nprint('bye')"
    )
    assert peer("dummy", "speed", "2.5", root=root)() == 2.5


def test_nothing_of_ours_is_on_a_peers_path(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(root))
    write(root, "import os\nprint('{\"value\": %d}' % ('PYTHONPATH' in os.environ))")
    assert peer("dummy", "speed", root=root)() == 0


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise RuntimeError('no such game')", "ended with status 1: RuntimeError: no such game"),
        ("import os; os._exit(3)", "ended with status 3: it said nothing"),
        ("print('fast')", "printed no line like"),
        ("print('{\"speed\": 1}')", "missing required field `value`"),
        ("print('{broken')", "printed '{broken'"),
        ('print(\'{"value": "fast"}\')', "Expected `float`"),
        ("", "printed no line like"),
    ],
)
def test_a_peer_that_fails_says_why(root: Path, code: str, message: str) -> None:
    write(root, code)
    with pytest.raises(ReferenceFailedError, match=r".+") as caught:
        peer("dummy", "speed", root=root)()
    assert message in str(caught.value)


def test_a_peer_that_is_not_installed_says_how_to(root: Path) -> None:
    with pytest.raises(ReferenceFailedError, match="make bench-peers"):
        peer("elsewhere", "speed", root=root)()


def test_a_peer_that_hangs_is_stopped_with_all_it_started(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its deadline, which here is over once it has started somebody, however long that takes."""
    child = "import time; time.sleep(600)"
    write(
        root,
        "import pathlib, subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)\n"
        "pathlib.Path(sys.argv[1]).write_text(str(child.pid))\n"
        "child.wait()\n",
    )
    pid_file = root / "pid"

    def overdue(peer: object, within_s: float) -> bool:
        assert within_s == 5.0
        until(lambda: pid_file.exists() and pid_file.read_text(), "the process that it starts")
        return False

    monkeypatch.setattr(process, "ended", overdue)
    with pytest.raises(ReferenceFailedError, match="not done after 5 s"):
        peer("dummy", "speed", str(pid_file), deadline_s=5.0, root=root)()
    assert not _runs(int(pid_file.read_text()))


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_what_a_peer_leaves_behind_does_not_hold_us_up(root: Path) -> None:
    """A daemon that inherited stdout keeps a pipe open; our output goes to files."""
    child = "import time; time.sleep(600)"
    write(
        root,
        "import pathlib, subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)\n"
        "pathlib.Path(sys.argv[1]).write_text(str(child.pid))\n"
        "print('{\"value\": 7}')\n",
    )
    pid_file = root / "pid"
    assert peer("dummy", "speed", str(pid_file), root=root)() == 7
    daemon = psutil.Process(int(pid_file.read_text()))
    assert daemon.is_running()
    daemon.kill()


def test_a_peer_that_fails_does_not_sink_the_rest(root: Path) -> None:
    write(root, "raise SystemExit('out of order')")
    bad, good = compare(
        "x",
        unit="s",
        goal=">= 1",
        ours=lambda: 1.0,
        references={"dummy": peer("dummy", "speed", root=root), "raw": lambda: 1.0},
    )
    assert bad.failure == "benchmarks/peers/dummy/speed.py ended with status 1: out of order"
    assert good.met


def test_versions_of_what_the_requirements_pin(root: Path) -> None:
    folder = root / "benchmarks" / "peers" / "dummy"
    (folder / "requirements.txt").write_text(
        "# why x==1\nFast_Thing[gpu]==1.2\nloose>=3\nnot-there==1\n", encoding="utf-8"
    )
    (folder / "no-deps.txt").write_text("other==3.0\n", encoding="utf-8")
    packages = root / ".venv-peers" / "dummy" / "lib" / "python3.11" / "site-packages"
    for name, version in (("fast.thing", "1.2.1"), ("other", "3.0"), ("loose", "3"), ("unasked", "9")):
        info = packages / f"{name.replace('.', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    uninstalled = root / "benchmarks" / "peers" / "elsewhere"
    uninstalled.mkdir()
    (uninstalled / "requirements.txt").write_text("x==1\n", encoding="utf-8")
    assert versions(root) == {"dummy": {"fast-thing": "1.2.1", "other": "3.0"}}


def test_a_process_that_ends_leaves_status_and_output() -> None:
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(4)"
    done = process.run([sys.executable, "-c", code], deadline_s=HANG_S)
    assert (done.status, done.output, done.errors) == (4, "out\n", "err\n")


def test_a_process_gets_the_environment_it_is_given() -> None:
    code = "import os; print(os.environ['ANSWER'])"
    done = process.run([sys.executable, "-c", code], deadline_s=HANG_S, environment={**os.environ, "ANSWER": "42"})
    assert done.output == "42\n"
