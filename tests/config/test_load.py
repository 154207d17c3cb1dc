"""What loading promises: the file's values, the command line above them, and where each came from."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from remuda.config.algorithms.base import EXAMPLES
from remuda.config.algorithms.registry import BUILT_IN
from remuda.config.environment import EnvConfig
from remuda.config.errors import ConfigError
from remuda.config.load import load_config
from remuda.tests.config.files import SMALL, write


def test_the_three_formats_say_the_same(tmp_path: Path) -> None:
    as_yaml = load_config(write(tmp_path, SMALL))
    as_json = load_config(write(tmp_path, '{"name": "small", "env": {"id": "CartPole-v1"}}', "c.json"))
    as_python = load_config(write(tmp_path, "exp_config = {'name': 'small', 'env': {'id': 'CartPole-v1'}}", "c.py"))
    assert as_yaml.config == as_json.config == as_python.config
    assert as_yaml.provenance == as_json.provenance == as_python.provenance


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, "\ufeff" + SMALL)).config.name == "small"


class TestSourceDir:
    def test_is_the_absolute_folder_of_the_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(tmp_path, SMALL)
        monkeypatch.chdir(tmp_path)
        loaded = load_config("c.yaml")
        assert loaded.config.source_dir == str(tmp_path.resolve())
        assert loaded.path == tmp_path.resolve() / "c.yaml"

    def test_stays_what_a_run_folder_stored(self, tmp_path: Path) -> None:
        path = write(tmp_path, SMALL + "source_dir: /somewhere/else\n")
        assert load_config(path).config.source_dir == "/somewhere/else"


class TestOverrides:
    def test_beat_the_file_and_the_last_wins(self, tmp_path: Path) -> None:
        path = write(tmp_path, SMALL + "learner: {batch_size: 32, learning_rate: 1}\n")
        loaded = load_config(path, overrides=["learner.batch_size=128", "learner.batch_size=256"])
        assert loaded.config.learner.batch_size == 256
        assert loaded.config.learner.learning_rate == 1.0, "its neighbours stay"

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("learner.learning_rate=1e-3", 1e-3),
            ("learner.max_grad_norm=null", None),
            ("learner.device=cuda:1", "cuda:1"),
            ("stop.max_env_steps=1e6", 1_000_000),
            ("env.kwargs={render_mode: null, gravity: 9.8}", {"render_mode": None, "gravity": 9.8}),
            ("env.kwargs.deep.er=a=b", {"deep": {"er": "a=b"}}),
            ("env.id=", None),
        ],
    )
    def test_values_are_yaml(self, tmp_path: Path, text: str, expected: object) -> None:
        path = write(tmp_path, SMALL)
        also = ["env.make=m:f"] if text == "env.id=" else []
        config: object = load_config(path, overrides=[text, *also]).config
        for part in text.partition("=")[0].split(".")[:2]:
            config = getattr(config, part)
        assert config == expected

    def test_seed_beats_file_and_overrides(self, tmp_path: Path) -> None:
        path = write(tmp_path, SMALL + "seed: 1\n")
        assert load_config(path, overrides=["seed=2"], seed=3).config.seed == 3

    @pytest.mark.parametrize("text", ["seed", "=3", ".seed=3", "a..b=3", "  =1"])
    def test_without_key_or_value_are_refused(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(ConfigError, match="write it as key=value"):
            load_config(write(tmp_path, SMALL), overrides=[text])

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("lerner.batch_size=3", "--set lerner.batch_size=3: lerner: no such setting; did you mean learner?"),
            ("learner.batch_size=x", 'learner.batch_size: should be a valid integer, not "x"'),
            ("policy.hidden=[1, 2", "--set policy.hidden=[1, 2: not valid YAML: "),
            ("seed.deep=1", '--set seed.deep=1: seed: should be a valid integer, not {"deep": 1}'),
        ],
    )
    def test_wrong_ones_are_named(self, tmp_path: Path, text: str, message: str) -> None:
        with pytest.raises(ConfigError) as caught:
            load_config(write(tmp_path, SMALL), overrides=[text])
        assert message in str(caught.value)

    def test_a_section_that_an_override_spoils_names_both(self, tmp_path: Path) -> None:
        path = write(tmp_path, SMALL)
        with pytest.raises(ConfigError) as caught:
            load_config(path, overrides=["env.make=my_envs:make"])
        assert str(caught.value) == (
            f"{path}:2: env: give exactly one of env.id (a gymnasium id) and env.make (module:function) "
            "(with --set env.make=my_envs:make)"
        )


class TestProvenance:
    def test_knows_every_setting(self, tmp_path: Path) -> None:
        loaded = load_config(
            write(tmp_path, SMALL + "learner: {batch_size: 32, learning_rate: 1}\n"),
            overrides=["learner.learning_rate=2", "env.kwargs.gravity=9.8"],
            seed=7,
        )
        origins = {key: origin for key, origin in loaded.provenance.items() if origin != "default"}
        assert origins == {
            "name": "file",
            "seed": "command line",
            "env.id": "file",
            "env.kwargs": "command line",
            "learner.batch_size": "file",
            "learner.learning_rate": "command line",
            "source_dir": "file",
        }
        assert _leaves(loaded.config.model_dump(mode="json")) == set(loaded.provenance)


FREE_FORM = {"kwargs", "encoder_kwargs", "network_kwargs", "optimizer_settings", "custom", "node_selector", "policies"}
"""Settings whose value is a mapping."""


def _leaves(section: dict[str, object], prefix: str = "") -> set[str]:
    leaves: set[str] = set()
    for name, value in section.items():
        is_section = isinstance(value, dict) and name not in FREE_FORM
        leaves |= _leaves(json.loads(json.dumps(value)), f"{prefix}{name}.") if is_section else {prefix + name}
    return leaves


class TestNumbersAndWords:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("1e-3", 1e-3),
            (".5", 0.5),
            ("-.5e+1", -5.0),
            ("010", 10),
            ("0o17", 15),
            ("-3", -3),
            ("1:30", "1:30"),
            ("1_000", "1_000"),
            ("no", "no"),
            ("True", True),
            ("", None),
            ('"true"', "true"),
            ("2024-01-01", "2024-01-01"),
            (".", "."),
            ("<<", "<<"),
        ],
    )
    def test_are_those_of_yaml_1_2(self, tmp_path: Path, text: str, expected: object) -> None:
        path = write(tmp_path, f"name: small\nenv:\n  id: E\n  kwargs:\n    x: {text}\n")
        value = load_config(path).config.env.kwargs["x"]
        assert value == expected
        assert type(value) is type(expected)

    def test_exact_floats_are_integers_and_others_are_not(self, tmp_path: Path) -> None:
        path = write(tmp_path, SMALL)
        assert load_config(path, overrides=["stop.max_env_steps=2e6"]).config.stop.max_env_steps == 2_000_000
        with pytest.raises(ConfigError, match=r"should be a valid integer, not 2\.5"):
            load_config(path, overrides=["stop.max_env_steps=2.5"])

    def test_json_pairs_of_surrogates_are_one_character(self, tmp_path: Path) -> None:
        path = write(tmp_path, 'name: small\nenv: {id: "\\ud83d\\ude00"}\n')
        assert load_config(path).config.env.id == "😀"


def test_kwargs_may_be_written_as_people_write_python(tmp_path: Path) -> None:
    kwargs: dict[str, Any] = {"size": (3, [4, (5,)]), "speed": np.float32(0.5), "map": {"cells": np.eye(2)}}
    kwargs["n"] = np.int64(7)
    env = EnvConfig(id="E", kwargs=kwargs)
    assert env.kwargs == {"size": [3, [4, [5]]], "speed": 0.5, "map": {"cells": [[1.0, 0.0], [0.0, 1.0]]}, "n": 7}
    text = "exp_config = {'name': 'a', 'env': {'id': 'E', 'kwargs': {'size': (3, 4)}}}"
    assert load_config(write(tmp_path, text, "total_config.py")).config.env.kwargs == {"size": [3, 4]}


_LOOP: list[object] = []
_LOOP.append(_LOOP)


@pytest.mark.parametrize("value", [_LOOP, len, object(), np.nan, np.array([1.0, np.inf]), np.array([1j])])
def test_kwargs_that_a_worker_elsewhere_could_not_be_given_are_refused(value: Any) -> None:
    with pytest.raises(ValidationError, match=r"kwargs"):
        EnvConfig(id="E", kwargs={"x": value})


def test_weights_are_meant_from_where_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, elsewhere = tmp_path / "configs", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    path = write(folder, SMALL + "learner: {initialize_from: ../old/ckpt/best}\n")
    assert load_config(path).config.learner.initialize_from == str(tmp_path / "old" / "ckpt" / "best")
    typed = load_config(path, overrides=["learner.initialize_from=mine"]).config.learner
    assert typed.initialize_from == str(elsewhere / "mine")
    section = load_config(path, overrides=["learner={initialize_from: mine}"]).config.learner
    assert section.initialize_from == str(elsewhere / "mine")
    assert load_config(path, overrides=["learner={batch_size: 3}"]).config.learner.initialize_from is None
    assert load_config(write(folder, SMALL)).config.learner.initialize_from is None


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("policy.hidden=[16384, 16384]", "policy.hidden: has 268435456 weights between its layers, and the most is"),
        ("policy.convolution=[[4096, 8, 4], [4096, 4, 2]]", "policy.convolution: has 268697600 weights between"),
    ],
)
def test_a_network_that_would_take_the_machine_s_memory_is_refused(tmp_path: Path, override: str, message: str) -> None:
    """The kernel killed the process, and nobody was told why."""
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_config(write(tmp_path, SMALL), overrides=[override])


def test_convolutions_without_a_layer_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"policy\.convolution: has no layer: null takes the usual layers"):
        load_config(write(tmp_path, SMALL), overrides=["policy.convolution=[]"])


STORED = [
    (name, env_id, path) for name, one in BUILT_IN.items() for env_id, path in one.settings.stored_configs.items()
]


@pytest.mark.parametrize(("algorithm", "env_id", "path"), STORED, ids=[path.stem for _, _, path in STORED])
def test_each_file_is_for_its_algorithm_and_its_environment(algorithm: str, env_id: str, path: Path) -> None:
    config = load_config(path).config
    assert (config.policy.type, config.env.id, config.name) == (algorithm, env_id, path.stem)


def test_they_come_with_the_package() -> None:
    data = tomllib.loads((EXAMPLES.parent / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    assert data["package-data"]["remuda"] == ["examples/*.yaml", "examples/*.py", "examples/sweeps/*.yaml"]
