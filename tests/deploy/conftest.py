"""Programs in shell, in the place of commands of an engine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

Program = Callable[[str, str], Path]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Makes a program of this name in shell; its arguments are noted beside it."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def make(name: str, body: str) -> Path:
        noted = folder / f"{name}.arguments"
        (folder / name).write_text(f'#!/bin/sh\necho "$@" >> {noted}\n{body}\n')
        (folder / name).chmod(0o755)
        return noted

    return make
