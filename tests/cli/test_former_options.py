"""Whoever types an option of the program they come from hears what it is called here."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from remuda.cli import evaluate_options
from remuda.cli.__main__ import foreign_option_error
from remuda.tests.cli.terminal import Terminal


@pytest.mark.parametrize(
    ("arguments", "instead"),
    [
        (("evaluate", "run", "--len", "100"), "remuda evaluate -l"),
        (("evaluate", "run", "--len=100"), "remuda evaluate -l"),
        (("evaluate", "run", "--norender"), "remuda evaluate -nr"),
        (("evaluate", "run", "--itr", "3"), "remuda evaluate -i"),
        (("train", "config.yaml", "--episodes", "5"), "remuda evaluate -n"),
        (("train", "config.yaml", "--deterministic"), "remuda evaluate -d"),
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


def test_what_is_named_instead_exists(tmp_path: Path) -> None:
    options = set(re.findall(r'"(-[-\w]+)"', inspect.getsource(evaluate_options)))
    for option in ("--len", "--norender", "--itr"):
        named = re.findall(r"(?<!\w)(--?[a-z][a-z-]*)", foreign_option_error(["evaluate", option]) or "")
        assert set(named) - {option} <= options, option
