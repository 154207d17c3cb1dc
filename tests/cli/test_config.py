"""The verbs of `remuda config`."""

from __future__ import annotations

import json
from pathlib import Path

from remuda.config.load import load_config
from remuda.config.reference import json_schema_text, markdown_text
from remuda.tests.cli.terminal import Terminal
from remuda.tests.config.files import SMALL, write


def test_show_prints_a_config_that_loads_to_the_same(tmp_path: Path, terminal: Terminal) -> None:
    path = write(tmp_path, SMALL)
    ended = terminal.remuda("config", "show", path, "--set", "learner.batch_size=128", "--seed", 7)
    assert (ended.code, ended.err) == (0, "")
    shown = load_config(write(tmp_path, ended.out, "shown.yaml")).config
    assert shown == load_config(path, overrides=["learner.batch_size=128"], seed=7).config
    assert "  batch_size: 128  # command line\n" in ended.out
    assert '  id: "CartPole-v1"  # file\n' in ended.out


def test_show_json_is_nothing_but_json(tmp_path: Path, terminal: Terminal) -> None:
    ended = terminal.remuda("config", "show", write(tmp_path, SMALL), "--json")
    assert ended.code == 0
    assert json.loads(ended.out)["env"]["id"] == "CartPole-v1"


def test_show_says_what_is_wrong_on_standard_error(tmp_path: Path, terminal: Terminal) -> None:
    path = write(tmp_path, SMALL + "sed: 3\nstop: {max_env_steps: -1}\n")
    ended = terminal.remuda("config", "show", path)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        f"{path}:3: sed: no such setting; did you mean seed?\n"
        f"{path}:4: stop.max_env_steps: should be greater than 0, not -1\n"
    )


def test_check_says_so_for_each(tmp_path: Path, terminal: Terminal) -> None:
    paths = [write(tmp_path, SMALL, name) for name in ("a.yaml", "b.yml")]
    ended = terminal.remuda("config", "check", *paths)
    assert (ended.code, ended.out, ended.err) == (0, f"{paths[0]}: valid\n{paths[1]}: valid\n", "")


def test_check_reports_every_file(tmp_path: Path, terminal: Terminal) -> None:
    good, bad = write(tmp_path, SMALL), write(tmp_path, "", "bad.json")
    ended = terminal.remuda("config", "check", bad, good, tmp_path / "none.yaml")
    assert (ended.code, ended.out) == (2, "")
    first, second = ended.err.splitlines()
    assert first.startswith(f"{bad}: the file is empty")
    assert second == f"{tmp_path / 'none.yaml'}: cannot be read: No such file or directory"


def test_check_looks_at_overrides(tmp_path: Path, terminal: Terminal) -> None:
    ended = terminal.remuda("config", "check", write(tmp_path, SMALL), "--set", "bufer.capacity=3")
    assert ended.code == 2
    assert ended.err == "--set bufer.capacity=3: bufer: no such setting; did you mean buffer?\n"


def test_schema(terminal: Terminal) -> None:
    assert terminal.remuda("config", "schema").out == json_schema_text()
    assert terminal.remuda("config", "schema", "--markdown").out == markdown_text()
