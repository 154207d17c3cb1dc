"""Running the command line inside the test's process."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from remuda.cli.__main__ import main


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


class Terminal:
    """Types commands and reads what they print."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # typer sets its own; put Python's back afterwards

    def remuda(self, *arguments: object) -> Ended:
        self._capsys.readouterr()
        self._monkeypatch.setattr(sys, "argv", ["remuda", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = self._capsys.readouterr()
        code = ended.value.code
        assert code is None or isinstance(code, int)
        return Ended(code or 0, printed.out, printed.err)
