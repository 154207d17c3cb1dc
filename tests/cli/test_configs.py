"""The verbs of `remuda config`."""

from __future__ import annotations

import json
from pathlib import Path

from remuda.config.dump import write_configs
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


def test_check_tells_settings_that_have_no_effect(tmp_path: Path, terminal: Terminal) -> None:
    path = write(tmp_path, "name: a\nenv: {id: CartPole-v1}\npolicy: {type: ppo}\nlearner: {batch_size: 256}\n")
    ended = terminal.remuda("config", "check", path)
    assert (ended.code, ended.err) == (0, "")
    valid, warning = ended.out.splitlines()
    assert valid == f"{path}: valid"
    assert warning.startswith(f"{path}: warning: learner.batch_size is 256 and has no effect: ppo has no replay, ")


def test_check_reports_every_file(tmp_path: Path, terminal: Terminal) -> None:
    good, bad = write(tmp_path, SMALL), write(tmp_path, "", "bad.json")
    ended = terminal.remuda("config", "check", bad, good, tmp_path / "none.yaml")
    assert (ended.code, ended.out) == (2, "")
    first, second = ended.err.splitlines()
    assert first.startswith(f"{bad}: the file is empty")
    assert second.startswith(
        f"{tmp_path / 'none.yaml'}: cannot be read: No such file or directory; `remuda examples` lists"
    )


def test_schema(terminal: Terminal) -> None:
    assert terminal.remuda("config", "schema").out == json_schema_text()
    assert terminal.remuda("config", "schema", "--markdown").out == markdown_text()


def test_a_run_folder_has_recorded_where_its_settings_came_from(tmp_path: Path, terminal: Terminal) -> None:
    loaded = load_config(write(tmp_path, SMALL), overrides=["learner.batch_size=128"], seed=7)
    run = tmp_path / "run"
    run.mkdir()
    write_configs(run, loaded.config, loaded.provenance)
    shown = terminal.remuda("config", "show", run, "--sources")
    again = terminal.remuda(
        "config", "show", tmp_path / "c.yaml", "--sources", "--set", "learner.batch_size=128", "--seed", 7
    )
    assert (shown.code, shown.out) == (0, again.out)
    sources = json.loads(terminal.remuda("config", "show", run, "--sources", "--json").out)
    assert sources["seed"] == {"value": 7, "source": "command line"}
    assert sources["env.id"] == {"value": "CartPole-v1", "source": "file"}
    assert sources["buffer.capacity"] == {"value": 100_000, "source": "default"}


def test_recorded_settings_cannot_be_changed(tmp_path: Path, terminal: Terminal) -> None:
    ended = terminal.remuda("config", "show", tmp_path, "--sources", "--seed", 7)
    assert (ended.code, ended.out) == (2, "")
    assert "its settings cannot be changed: leave out --set and --seed" in ended.err
