"""How values that JSON does not know are written down."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from remuda.config.current import task_of
from remuda.config.dump import (
    changed_settings,
    config_json_text,
    formatted_total_config_text,
    recorded,
    sources_text,
    total_config_text,
    write_configs,
    write_custom_configs,
    yaml_text,
)
from remuda.config.errors import ConfigError
from remuda.config.load import load_config
from remuda.config.plain import MASK, looks_secret, masked, plain
from remuda.config.schema import ExperimentConfig


class WithAttributes:
    def __init__(self, **attributes: object) -> None:
        self.__dict__.update(attributes)

    def __str__(self) -> str:
        return "an object"


class Mute:
    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ({"a": [1, 2.5, None, True, "text", {"b": [""]}]}, {"a": [1, 2.5, None, True, "text", {"b": [""]}]}),
        ((1, [2, (3,)], {"a": (4,)}, {5}), [1, [2, [3]], {"a": [4]}, [5]]),
        ([json.dumps, WithAttributes, len, np.ndarray], ["dumps", "WithAttributes", "len", "ndarray"]),
        (
            WithAttributes(size=3, inner=WithAttributes(f=len)),
            {"an object": {"size": 3, "inner": {"an object": {"f": "len"}}}},
        ),
        ([1j, b"x", float("inf"), WithAttributes()], ["1j", "b'x'", "inf", "an object"]),
        ({1: 2, None: 3, (4,): 5}, {"1": 2, "None": 3, "(4,)": 5}),
        (2**100, 2**100),
        (-(10**5000), hex(-(10**5000))),
        ("x" * 10_000, "x" * 10_000),
        (b"x" * 10_000, f"b'{'x' * 1998}…"),
    ],
    ids=["JSON", "collections", "names", "attributes", "text", "keys", "large", "hexadecimal", "long", "cut"],
)
def test_values_become_what_json_holds(value: object, written: object) -> None:
    assert plain(value) == written


_odd = st.one_of(
    st.none(), st.integers(), st.floats(), st.text(), st.binary(), st.complex_numbers(), st.just(len), st.just(Mute())
)
_nested: st.SearchStrategy[Any] = st.recursive(
    _odd,
    lambda inner: st.one_of(
        st.lists(inner), inner.map(lambda value: (value,)), st.dictionaries(st.integers() | st.text(), inner),
        inner.map(lambda value: WithAttributes(x=value)),
    ),
)  # fmt: skip


@given(_nested)
def test_never_fails_and_is_strict_json(value: object) -> None:
    """What comes out reads back as it is: no tuple, no number that JSON lacks, no key that is not text."""
    made = plain(value)
    assert json.loads(json.dumps(made, allow_nan=False)) == made


def test_numbers_and_small_arrays_of_numpys_become_numbers() -> None:
    value = {"a": np.float32(0.5), "b": np.int64(3), "c": np.bool_(True), "d": np.arange(4).reshape(2, 2), "e": np.nan}
    assert plain(value) == {"a": 0.5, "b": 3, "c": True, "d": [[0, 1], [2, 3]], "e": "nan"}
    assert plain(np.zeros((84, 84, 4), np.uint8)) == "uint8 array of shape (84, 84, 4)"
    assert plain(torch.tensor([1.5, 2.0])) == [1.5, 2.0]
    assert plain([np.array("text"), np.array(None), np.array([{1}], object)]) == ["text", None, [[1]]]


def test_what_is_met_twice_is_written_twice_but_not_inside_itself() -> None:
    shared = [1]
    assert plain([shared, shared]) == [[1], [1]]
    loop: dict[str, object] = {"a": shared}
    loop["loop"] = [loop]
    assert plain(loop) == {"a": [1], "loop": ["<dict>"]}


def test_something_that_would_never_end_is_cut_off() -> None:
    """Each level holds the next one twice: 2 ** 100 values."""
    value: object = 0
    for _ in range(100):
        value = [value, WithAttributes(inner=value)]
    assert len(json.dumps(plain(value))) < 4_000_000


class Endless(dict[str, object]):
    def items(self) -> Any:
        raise ValueError("not now")


def config(**kwargs: object) -> ExperimentConfig:
    values = {"name": "a", "env": {"id": "E-v1", "kwargs": {"size": 3, **kwargs}}}
    return ExperimentConfig.model_validate(values)


SECRET = config(api_key="hunter2", nested={"tokens": [1], "auth": {"user": "me", "pin": 4711}})


@pytest.mark.parametrize("key", ["db_password", "apiKey", "API_KEY", "aws-secret-access-key", "key"])
def test_names_of_secrets(key: str) -> None:
    assert looks_secret(key)


@pytest.mark.parametrize("key", ["tokenizer", "max_tokens", "keys", "author", ""])
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


def test_a_masked_copy_is_not_run_but_may_be_completed(tmp_path: Path) -> None:
    path = tmp_path / "formatted_total_config.py"
    path.write_text(formatted_total_config_text(config(api_key="hunter2")))
    with pytest.raises(ConfigError, match=r"env\.kwargs\.api_key: is masked in this copy: take config\.json"):
        load_config(path)
    assert load_config(path, overrides=["env.kwargs.api_key=other"]).config.env.kwargs["api_key"] == "other"


def test_changes_between_incarnations_are_told_without_secrets(tmp_path: Path) -> None:
    write_configs(tmp_path, SECRET, {})
    other = SECRET.model_copy(update={"seed": 7, "env": config(api_key="hunter3").env})
    changed = changed_settings(tmp_path, other)
    assert "seed is 7 and was 0" in changed
    assert f'env.kwargs.api_key is "{MASK}" and was "{MASK}"' in changed
    assert not any("hunter" in line for line in changed)
    warning = write_configs(tmp_path, other, {})
    assert warning is not None
    assert warning.startswith("continues with changed settings: ")
    assert warning.endswith("(the former ones are in config_1.json)")
    assert json.loads((tmp_path / "config_1.json").read_text())["seed"] == 0
    assert stat.S_IMODE((tmp_path / "config_1.json").stat().st_mode) == 0o600
    assert write_configs(tmp_path, other, {}) is None
    assert write_configs(tmp_path, config(), {}) is not None
    names = sorted(path.name for path in tmp_path.glob("config*.json"))
    assert names == ["config.json", "config_1.json", "config_2.json"]


@pytest.mark.parametrize("content", [None, b"[]", b"\xff"])
def test_a_config_that_cannot_be_read_holds_nothing_up(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    assert changed_settings(tmp_path, SECRET) == []


def test_another_secret_is_the_same_task_and_another_size_is_not() -> None:
    def task(**kwargs: object) -> str:
        env = {"make": "game:make", "kwargs": kwargs}
        return task_of(ExperimentConfig.model_validate({"name": "x", "env": env}))

    assert task(size=8, api_key="one") == task(size=8, api_key="two") != task(size=9, api_key="one")


def test_settings_of_any_kind_are_treated_alike(tmp_path: Path) -> None:
    write_custom_configs(tmp_path, {"name": "a", "token": "hunter2"})
    assert "hunter2" not in (tmp_path / "total_config.py").read_text()
    assert "hunter2" not in (tmp_path / "formatted_total_config.py").read_text()
    assert stat.S_IMODE((tmp_path / "config.json").stat().st_mode) == 0o600


def test_an_object_that_resists_is_its_text() -> None:
    assert plain([Endless()]) == ["{}"]
