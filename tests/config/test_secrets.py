"""Secrets are told by their names, and stand in no copy that is made for people."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from pydantic import JsonValue

from remuda.config.changes import changed_settings, told
from remuda.config.dump import (
    config_json_text,
    formatted_total_config_text,
    total_config_text,
    write_configs,
    write_custom_configs,
    yaml_text,
)
from remuda.config.errors import ConfigError
from remuda.config.load import load_config
from remuda.config.schema import ExperimentConfig
from remuda.config.secrets import MASK, looks_secret, masked
from remuda.config.sources import recorded, sources_text
from remuda.config.tasks import task_of


def config(**kwargs: object) -> ExperimentConfig:
    values = {"name": "a", "env": {"id": "E-v1", "kwargs": {"size": 3, **kwargs}}}
    return ExperimentConfig.model_validate(values)


SECRET = config(api_key="hunter2", nested={"tokens": [1], "auth": {"user": "me", "pin": 4711}})


@pytest.mark.parametrize(
    "key",
    ["token", "db_password", "apiKey", "API_KEY", "secret", "hf_token", "aws-secret-access-key", "authToken", "key"],
)
def test_names_of_secrets(key: str) -> None:
    assert looks_secret(key)


@pytest.mark.parametrize(
    "key", ["tokenizer", "max_tokens", "keys", "keyboard", "monkey", "author", "size", "passes", ""]
)
def test_other_names(key: str) -> None:
    assert not looks_secret(key)


def test_all_values_under_such_a_name_are_masked_and_nothing_else() -> None:
    given: JsonValue = {
        "token": "t",
        "on_token": True,
        "password": None,
        "auth": {"user": "u", "pins": [1, "2"]},
        "n": 3,
    }
    assert masked(given) == {
        "token": MASK,
        "on_token": True,
        "password": None,
        "auth": {"user": MASK, "pins": [MASK, MASK]},
        "n": 3,
    }


def test_texts_for_people_have_none() -> None:
    texts = (total_config_text(SECRET), formatted_total_config_text(SECRET), yaml_text(SECRET))
    for text in (*texts, config_json_text(SECRET, for_people=True)):
        assert "hunter2" not in text
        assert "4711" not in text
        assert MASK in text


def test_a_runs_config_json_has_them_for_its_owner_alone(tmp_path: Path) -> None:
    assert write_configs(tmp_path, SECRET, {}) is None
    assert load_config(tmp_path / "config.json").config.env.kwargs == SECRET.env.kwargs
    assert stat.S_IMODE((tmp_path / "config.json").stat().st_mode) == 0o600
    for name in ("total_config.py", "formatted_total_config.py"):
        assert "hunter2" not in (tmp_path / name).read_text()
    assert "hunter2" not in sources_text(recorded(tmp_path))


def test_settings_of_any_kind_are_treated_alike(tmp_path: Path) -> None:
    write_custom_configs(tmp_path, {"name": "a", "token": "hunter2"})
    assert "hunter2" not in (tmp_path / "total_config.py").read_text()
    assert "hunter2" not in (tmp_path / "formatted_total_config.py").read_text()
    assert stat.S_IMODE((tmp_path / "config.json").stat().st_mode) == 0o600


def test_a_masked_copy_is_not_run_but_may_be_completed(tmp_path: Path) -> None:
    path = tmp_path / "formatted_total_config.py"
    path.write_text(formatted_total_config_text(config(api_key="hunter2")))
    with pytest.raises(ConfigError, match=r"env\.kwargs\.api_key: is masked in this copy: take config\.json"):
        load_config(path)
    assert load_config(path, overrides=["env.kwargs.api_key=other"]).config.env.kwargs["api_key"] == "other"


def test_changes_between_two_incarnations_are_told_without_secrets_and_the_former_config_is_kept(
    tmp_path: Path,
) -> None:
    write_configs(tmp_path, SECRET, {})
    other = SECRET.model_copy(update={"seed": 7, "env": config(api_key="hunter3").env})
    changed = changed_settings(tmp_path, other)
    assert "seed is 7 and was 0" in changed
    assert f'env.kwargs.api_key is "{MASK}" and was "{MASK}"' in changed
    assert not any("hunter" in line for line in changed)
    warning = write_configs(tmp_path, other, {})
    assert warning is not None
    assert warning.startswith("goes on with other settings than before: ")
    assert warning.endswith("(the former ones are in config_1.json)")
    assert json.loads((tmp_path / "config_1.json").read_text())["seed"] == 0
    assert stat.S_IMODE((tmp_path / "config_1.json").stat().st_mode) == 0o600
    assert write_configs(tmp_path, other, {}) is None
    assert write_configs(tmp_path, config(), {}) is not None
    names = sorted(path.name for path in tmp_path.glob("config*.json"))
    assert names == ["config.json", "config_1.json", "config_2.json"]


@pytest.mark.parametrize("content", [None, b"no json", b"[]", b"\xff"])
def test_a_config_that_cannot_be_read_holds_nothing_up(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    assert changed_settings(tmp_path, SECRET) == []


def test_many_changes_are_told_shortly() -> None:
    assert told([f"k{number} is 1 and was 2" for number in range(12)]).endswith("k9 is 1 and was 2; and 2 more")


def test_another_secret_is_the_same_task_and_another_size_is_not() -> None:
    def task(**kwargs: object) -> str:
        env = {"make": "game:make", "kwargs": kwargs}
        return task_of(ExperimentConfig.model_validate({"name": "x", "env": env}))

    assert task(size=8, api_key="one") == task(size=8, api_key="two") != task(size=9, api_key="one")
