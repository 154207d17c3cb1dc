"""What is written of a config: complete, loadable, equal to what was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings

from remuda.config.dump import config_json_text, formatted_total_config_text, total_config_text, yaml_text
from remuda.config.errors import ConfigError
from remuda.config.explain import all_keys
from remuda.config.load import load_config
from remuda.config.schema import ExperimentConfig
from remuda.config.section import descriptions
from remuda.tests.config.files import SMALL, configs, write

TEXTS = {
    "config.json": config_json_text,
    "total_config.py": total_config_text,
    "formatted_total_config.py": formatted_total_config_text,
    "shown.yaml": yaml_text,
}


@settings(deadline=None)  # the disk decides how long it takes
@given(config=configs)
def test_every_config_loads_again_as_it_was(tmp_path_factory: pytest.TempPathFactory, config: ExperimentConfig) -> None:
    folder = tmp_path_factory.mktemp("dump")
    stored = config.model_copy(update={"source_dir": config.source_dir or str(folder.resolve())})
    for name, text in TEXTS.items():
        assert load_config(write(folder, text(config), name)).config == stored, name


def test_config_json_is_sorted_and_complete(tmp_path: Path) -> None:
    text = config_json_text(load_config(write(tmp_path, SMALL)).config)
    settings = json.loads(text)
    assert list(settings) == sorted(settings)
    assert settings.pop("exp_name") == settings["name"]
    known = all_keys(settings["policy"]["type"])
    assert set(settings) == {loc[0] for loc in known.values()}
    for section, values in settings.items():
        if isinstance(values, dict) and section not in known:
            assert set(cast("dict[str, object]", values)) == {loc[1] for loc in known.values() if loc[0] == section}


def test_formatted_config_explains_and_says_where_from(tmp_path: Path) -> None:
    loaded = load_config(write(tmp_path, SMALL), overrides=["env.num_envs=4"])
    text = formatted_total_config_text(loaded.config, loaded.provenance)
    above, line, _ = text.partition("    'name': 'small',  # file\n")
    assert above.splitlines()[:2] == [
        "# Every setting of this run. Edit it and run it again: remuda train formatted_total_config.py",
        "exp_config = {",
    ]
    assert line
    assert above.splitlines()[-1] == f"    # {descriptions(ExperimentConfig)['name']}"
    assert "\n        'num_envs': 4,  # command line\n" in text
    assert "\n    'seed': 0,\n" in text
    assert max(map(len, text.splitlines())) <= 120


def test_shown_yaml(tmp_path: Path) -> None:
    loaded = load_config(write(tmp_path, SMALL), seed=3)
    assert yaml_text(loaded.config, loaded.provenance).startswith("""\
name: "small"  # file
seed: 3  # command line
env:
  id: "CartPole-v1"  # file
  make: null
  kwargs: {}
  num_envs: 8
""")


def test_exp_name_is_no_setting_elsewhere(tmp_path: Path) -> None:
    """Only a run folder's config.json says the name twice, for tools of others."""
    with pytest.raises(ConfigError, match="exp_name"):
        load_config(write(tmp_path, SMALL + "exp_name: small\n"))
    with pytest.raises(ConfigError, match="exp_name"):
        load_config(write(tmp_path, '{"exp_name": "a", "env": {"id": "E"}}', "config.json"))
