"""Another user of the machine: sees that there is a coordinator, and gets nothing from it. Only as root, who may become
another user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from remuda.tests.cli.terminal import Terminal
from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import Herd
from remuda.tests.patience import HANG_S, until
from remuda.tests.security.other_user import NOBODY
from remuda.wire.connection_file import read

pytestmark = [pytest.mark.processes, pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")]


def as_nobody(*arguments: object) -> Any:
    """What another user gets, as the program in other_user.py says."""
    command = [sys.executable, "-P", "-m", "remuda.tests.security.other_user", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, timeout=HANG_S)
    assert not done.returncode, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.fixture
def herd(herds: Herds) -> Generator[Herd]:
    """A coordinator in a folder whose parents everybody may enter, as /tmp and /home are."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        made = herds(root=Path(folder))
        os.chmod(made.root, 0o755)
        made.coordinator()
        yield made
        made.shut_down()


def test_it_reads_no_key_and_gets_no_answer(herd: Herd) -> None:
    keys = herd.runs / ".keys"
    secrets = [keys / name for name in ("coordinator", "operator", "worker", "authorized")]
    places = [herd.connection_file, keys, *secrets]
    assert all(place.exists() for place in places)
    entered, *others = as_nobody("look", herd.root, herd.runs, *places)
    assert entered.startswith("read "), "up to here everybody may look"
    assert set(others) == {"refused"}
    herd.runs.chmod(0o755)  # somebody wants to show the runs
    entered, *others = as_nobody("look", herd.runs, *places)
    assert entered.startswith("read ")
    assert set(others) == {"refused"}
    it_cannot_speak_to_the_coordinator(herd)


def it_cannot_speak_to_the_coordinator(herd: Herd) -> None:
    """Even if it has found out the address and the public key, which are no secrets."""
    connection = read(herd.connection_file)

    def counted(counter: str, *shown: str) -> bool:
        """On a busy machine it may be gone before its connection is looked at, and it tries again."""
        assert as_nobody("speak", connection.address, *shown) == "silence"
        return bool(getattr(herd.status().coordinator.refusals, counter))

    until(lambda: counted("no_key"), "it is counted without a key")
    until(lambda: counted("unknown_key", connection.server_key), "it is counted with a key of its own")
    assert herd.members() == []


def test_it_cannot_give_its_own_connection_file_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "connection.json"
    path.write_text("{}")
    path.chmod(0o600)
    os.chown(path, NOBODY, NOBODY)
    ended = Terminal(monkeypatch, capsys).remuda("status", "--connection-file", path)
    assert ended.code
    assert f"belongs to another user (user id {NOBODY}" in ended.err.replace("\n", " ")
