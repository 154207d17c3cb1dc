"""How the command begins and ends: help, version, typing errors, exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version

import pytest
import typer
from rich.console import Console
from typer.core import TyperGroup

from remuda.cli import app as app_module
from remuda.cli.__main__ import CLOSED_PIPE, foreign_option_error
from remuda.cli.app import app
from remuda.cli.errors import OF_INPUT, OF_RUNS, REFUSAL, RunFailedError
from remuda.config.errors import ConfigError
from remuda.tests.cli.terminal import Terminal
from remuda.tests.patience import HANG_S
from remuda.wire.conversation import RefusedError, UnreachableError
from remuda.wire.keys.secret_file import KeyFileError
from remuda.wire.messages import Rejected


def _verbs() -> Iterator[tuple[str, ...]]:
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    pending: list[tuple[tuple[str, ...], TyperGroup]] = [((), root)]
    while pending:
        path, group = pending.pop()
        yield path
        for name, command in group.commands.items():
            if isinstance(command, TyperGroup):
                pending.append(((*path, name), command))
            else:
                yield (*path, name)


VERBS = sorted(_verbs())


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_help_explains_each_option_and_ends_with_an_example(terminal: Terminal, verb: tuple[str, ...]) -> None:
    ended = terminal.remuda(*verb, "--help")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.rstrip().splitlines()
    *_, title, example = lines
    assert title.strip() == "Example:"
    assert f"{example.strip()} ".startswith(" ".join(["remuda", *verb, ""]))
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("  -"):
            explained = "  " in line.strip() or following.startswith("    ")
            assert explained, line


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["confg"], "Did you mean 'config'?"),
        (["config", "show", "c.yaml", "--sed", "3"], "--seed"),
        (["config", "show", "c.yaml", "--seed", "x"], "'--seed'"),
        ([], "Usage: remuda"),
    ],
)
def test_a_typing_error_is_wrong_input(terminal: Terminal, arguments: list[str], hint: str) -> None:
    ended = terminal.remuda(*arguments)
    assert ended.code == 2
    assert ended.out == ""
    assert hint in ended.err


def _app_that_raises(error: BaseException) -> typer.Typer:
    raising = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)

    @raising.command()
    def verb() -> None:  # pyright: ignore[reportUnusedFunction]  # typer calls it
        raise error

    return raising


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (RefusedError(Rejected("protocol", "it speaks protocol 2")), 3, "it speaks protocol 2\n"),
        (RefusedError(Rejected("exists", "the folder exists")), 2, "the folder exists\n"),
        (UnreachableError("no answer"), 1, "no answer\n"),
        (KeyFileError("the key is damaged"), 2, "the key is damaged\n"),
        (ConfigError(["c.yaml:1: a", "c.yaml:2: b"]), 2, "c.yaml:1: a\nc.yaml:2: b\n"),
        (RunFailedError("learner failed"), 1, "learner failed\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_a_verbs_error_becomes_one_message(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    monkeypatch.setattr(app_module, "app", _app_that_raises(error))
    ended = terminal.remuda()
    assert (ended.code, ended.out, ended.err) == (code, "", message)


def test_each_error_with_an_exit_code_exists() -> None:
    for name in {*OF_INPUT, *OF_RUNS, REFUSAL}:
        module, _, kind = name.rpartition(".")
        found = getattr(import_module(f"remuda.{module}"), kind)
        assert (found.__module__, issubclass(found, Exception)) == (f"remuda.{module}", True), name


def test_an_unforeseen_error_keeps_its_traceback(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "app", _app_that_raises(ZeroDivisionError("a fault of ours")))
    with pytest.raises(ZeroDivisionError):
        terminal.remuda()


def _prints_much(*, rich: bool) -> typer.Typer:
    printing = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)

    @printing.command()
    def verb() -> None:  # pyright: ignore[reportUnusedFunction]  # typer calls it
        say = Console().print if rich else print
        say("a line\n" * 10_000)

    return printing


@pytest.mark.parametrize("command", ["--version", "print", "rich"])
def test_it_ends_quietly_if_nobody_reads_its_output(
    command: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`remuda logs RUN | head` ended with code 0, 1, 2 or 120, depending on the command and the length of the output.
    A short output is written at the end of the command."""
    read, written = os.pipe()
    os.close(read)
    if command != "--version":
        monkeypatch.setattr(app_module, "app", _prints_much(rich=command == "rich"))
    with open(written, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        ended = terminal.remuda(*(["--version"] if command == "--version" else []))
        assert (ended.code, ended.err) == (CLOSED_PIPE, "")
        null = os.open(os.devnull, os.O_WRONLY)  # for the rest of the output
        os.dup2(null, written)
        os.close(null)


@pytest.mark.processes
def test_as_a_module_and_without_what_help_does_not_need() -> None:
    """`--help` stays fast because the expensive imports wait for the verb that needs them."""
    code = (
        "import sys; from remuda.cli.__main__ import main; sys.argv = ['remuda', '--help']\n"
        "try: main()\n"
        "except SystemExit as ended: print('code', ended.code)\n"
        "print('heavy', [name for name in ('torch', 'numpy', 'pydantic', 'yaml', 'zmq', 'rich', 'gymnasium')"
        " if name in sys.modules])\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S, check=True)
    assert "Usage: remuda" in ended.stdout
    assert ended.stdout.endswith("code 0\nheavy []\n")
    module = subprocess.run(
        [sys.executable, "-m", "remuda.cli", "--version"], capture_output=True, text=True, timeout=HANG_S, check=True
    )
    assert module.stdout == f"remuda {version('remuda')}\n"


@pytest.mark.parametrize(
    ("arguments", "instead"),
    [
        (("evaluate", "run", "--len", "100"), "remuda evaluate -l"),
        (("evaluate", "run", "--norender"), "remuda evaluate -nr"),
        (("train", "config.yaml", "--episodes", "5"), "remuda evaluate -n"),
        (("launch", "config.yaml", "--save-freq", "10"), "--set checkpoint.interval_env_steps=N"),
    ],
)
def test_the_refusal_names_what_took_its_place(terminal: Terminal, arguments: tuple[str, ...], instead: str) -> None:
    ended = terminal.remuda(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert instead in ended.err
    assert ended.err.count("\n") == 1


def test_options_that_there_are_stay_options() -> None:
    assert foreign_option_error(["evaluate", "run", "--episodes", "5", "--deterministic"]) is None
    assert foreign_option_error(["evaluate", "--", "--len"]) is None
    assert foreign_option_error(["train", "config.yaml", "--set", "learner.batch_size=8"]) is None
    assert foreign_option_error([]) is None


def test_version(terminal: Terminal) -> None:
    ended = terminal.remuda("--version")
    assert (ended.code, ended.out, ended.err) == (0, f"remuda {version('remuda')}\n", "")
