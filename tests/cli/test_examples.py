"""`remuda examples`: lists, prints and copies what comes with the package; a config runs by its name."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from remuda.cli.app import app
from remuda.client.examples import examples
from remuda.config.algorithms.base import EXAMPLES
from remuda.config.load import example_or_file, load_config
from remuda.tests.cli.terminal import Terminal

ROOT = Path(__file__).resolve().parents[2]


def test_every_example_is_listed(terminal: Terminal) -> None:
    listed = terminal.remuda("examples").out
    for example in examples():
        assert re.search(rf"^{example.name} ", listed, re.M)
    assert {file.stem for file in EXAMPLES.glob("*.yaml")} <= {one.name for one in examples()}
    assert re.search(r"^hopper_sac +sac +Hopper-v5 +remuda\[mujoco\] +after 1,000,000 steps$", listed, re.M)


def test_one_is_printed_and_nothing_else(terminal: Terminal) -> None:
    text = (EXAMPLES / "cartpole_dqn.yaml").read_text("utf-8")
    assert terminal.remuda("examples", "cartpole_dqn").out == text
    as_json = json.loads(terminal.remuda("examples", "cartpole_dqn", "--json").out)
    assert (as_json["algorithm"], as_json["text"]) == ("dqn", text)


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("t_maze_ppo", {"t_maze_ppo.yaml", "t_maze.py"}),
        ("sweeps/cartpole", {"sweeps/cartpole.yaml", "cartpole_dqn.yaml"}),
        ("tic_tac_toe_match", {"tic_tac_toe_match.py", "tic_tac_toe.py"}),
    ],
)
def test_a_copy_is_whole_and_overwrites_nothing(name: str, files: set[str], tmp_path: Path, terminal: Terminal) -> None:
    assert terminal.remuda("examples", name, "--copy", tmp_path).code == 0
    copied = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert copied == files
    other = terminal.remuda("examples", name, "--copy", tmp_path / "other", "--json")
    assert {Path(path).relative_to(tmp_path / "other").as_posix() for path in json.loads(other.out)} == files
    again = terminal.remuda("examples", name, "--copy", tmp_path)
    assert (again.code, "would be overwritten" in again.err) == (2, True)


def test_a_config_works_by_its_name_in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("t_maze_ppo", "examples/t_maze_ppo.yaml"):
        loaded = load_config(name)
        assert (loaded.path, loaded.config.source_dir) == (EXAMPLES / "t_maze_ppo.yaml", str(EXAMPLES))
    assert example_or_file(Path("t_maze_ppo.yaml")) == Path("t_maze_ppo.yaml")
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "t_maze_ppo.yaml").touch()
    assert example_or_file(Path("examples/t_maze_ppo.yaml")) == Path("examples/t_maze_ppo.yaml")


def test_pages_and_helps_name_examples_that_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    texts = [path.read_text("utf-8") for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]]
    texts += [command.epilog or "" for command in app.registered_commands]
    named = {one for text in texts for one in re.findall(r"remuda [a-z ]+(examples/[\w/]+\.yaml)", text)}
    assert len(named) > 5
    for one in named:
        assert example_or_file(Path(one)).is_absolute(), one
