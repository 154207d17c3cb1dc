"""`remuda doctor` looks at what Remuda will use, and leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remuda.cli import doctor
from remuda.cli.doctor import Finding
from remuda.tests.cli.terminal import Terminal


def test_it_finds_this_machine_fit_and_leaves_nothing(terminal: Terminal, tmp_path: Path) -> None:
    said = terminal.remuda("doctor", "--runs-dir", str(tmp_path / "not" / "there" / "yet"))
    assert said.code == 0, said.err
    for what in ("python", "torch", "cores", "runs folder", "locks", "journal"):
        assert any(line.startswith("ok") and f"  {what}" in line for line in said.out.splitlines()), what
    assert list(tmp_path.iterdir()) == []


def test_as_json(terminal: Terminal, tmp_path: Path) -> None:
    findings = json.loads(terminal.remuda("doctor", "--json", "--runs-dir", str(tmp_path)).out)
    assert {"what", "verdict", "said"} == set(findings[0])
    assert {finding["verdict"] for finding in findings} <= {"ok", "note"}


def test_what_will_not_work_ends_with_1(terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "NEEDED", ("numpy", "no-such-package"))
    said = terminal.remuda("doctor", "--runs-dir", str(tmp_path))
    assert said.code == 1
    assert "wrong  no-such-package" in said.out
    assert "will not work: no-such-package" in said.err


def test_a_file_system_without_locks_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object, **__: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("remuda.storage.lock.FileLock.acquire", no_locks)
    found = doctor._attempt("locks", lambda: doctor._locks(tmp_path))
    assert found == Finding("locks", "wrong", "OSError: [Errno 95] Operation not supported")
