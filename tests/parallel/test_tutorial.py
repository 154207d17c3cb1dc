"""Types the commands of docs/tutorial.md, in their order, and compares the output with the page."""

from __future__ import annotations

import re
import shlex
import signal
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from remuda.tests.parallel.command import Command
from remuda.tests.parallel.conftest import Launcher
from remuda.tests.patience import until

pytestmark = pytest.mark.processes
SOONER = ("--set", "stop.stop_value=60")
"""A return after some thousand steps."""
PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"


@dataclass
class Typed:
    """A command of the page, and the lines that the page shows below it."""

    arguments: list[str]
    in_background: bool
    output: list[str] = field(default_factory=list)

    @property
    def is_interrupted(self) -> bool:
        return "^C" in self.output


def commands() -> list[Typed]:
    found: list[Typed] = []
    for block in re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                name, *arguments = shlex.split(line.removeprefix("$ ").removesuffix("&"))
                assert name == "remuda"
                found.append(Typed(arguments, line.endswith("&")))
            else:
                found[-1].output.append(line)
    return found


def shapes(line: str, folder: Path) -> list[str]:
    """Returns the pieces of a line between `…`, without numbers, names of hosts and widths of columns."""
    line = line.replace(str(folder), "¶").replace("…/", "¶/")
    line = re.sub(r"\bon \S+:", "on H:", re.sub(r"\d[\d.:]*", "#", line))
    return [" ".join(piece.split()) for piece in line.split("…")]


def compare(typed: Typed, printed: str, folder: Path) -> None:
    lines = ["".join(shapes(line, folder)) for line in printed.splitlines()]
    for shown in typed.output:
        pieces = shapes(shown, folder)
        if shown != "^C":
            found = any(all(piece in line for piece in pieces) for line in lines)
            assert found, f"{shown!r} of {typed.arguments} is not in:\n{printed}"


def interrupt(command: Command) -> None:
    until(lambda: " running | " in command.said(), "the first line of progress")
    command.process.send_signal(signal.SIGINT)


def test_every_command_of_the_tutorial_does_what_the_page_shows(tmp_path: Path, launched: Launcher) -> None:
    background: list[Command] = []
    typed = commands()
    assert {each.arguments[0] for each in typed} >= {"train", "status", "evaluate", "launch", "submit", "shutdown"}
    for each in typed:
        command = launched(tmp_path, *each.arguments, *(SOONER if "cartpole_ppo" in each.arguments else ()))
        if each.in_background:
            background.append(command)
            continue
        if each.is_interrupted:
            interrupt(command)
        ended = command.ended()
        assert ended.code == 0, (each.arguments, ended)
        compare(each, ended.out + ended.err, tmp_path)
    assert [command.ended().code for command in background] == [0] * len(background)
