"""Settings that are `auto`: which may be, what stands in their place until they are measured, and who refuses them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remuda.config.current import COLLECTORS, NUM_ENVS, THREADS
from remuda.config.dump import config_json_text, sources, yaml_text
from remuda.config.errors import ConfigError
from remuda.config.load import LoadedConfig, load_config
from remuda.config.reference import json_schema_text
from remuda.tests.config.files import SMALL, write

ALL = frozenset({COLLECTORS, NUM_ENVS, THREADS})
AUTO = "name: small\nenv: {id: CartPole-v1, num_envs: auto}\ncollector: {count: auto}\nlearner: {threads: auto}\n"


def problem(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        load_config(write(tmp_path, text))
    return str(raised.value)


def sizes(loaded: LoadedConfig) -> tuple[int, int, int | None]:
    config = loaded.config
    return config.collector.count, config.env.num_envs, config.learner.threads


def test_the_defaults_stand_in_their_places(tmp_path: Path) -> None:
    loaded = load_config(write(tmp_path, AUTO))
    assert loaded.auto == ALL
    assert sizes(loaded) == sizes(load_config(write(tmp_path, SMALL))) == (2, 8, None)
    assert not load_config(write(tmp_path, SMALL)).auto


def test_numbers_of_the_file_stand_there_where_the_command_line_says_auto(tmp_path: Path) -> None:
    file = write(tmp_path, "name: small\nenv: {id: CartPole-v1, num_envs: 4}\ncollector: {count: 3, minimum: 3}\n")
    loaded = load_config(file, overrides=["env.num_envs=auto", "collector.count=auto"])
    assert loaded.auto == {COLLECTORS, NUM_ENVS}
    assert sizes(loaded) == (3, 4, None)
    assert loaded.provenance[NUM_ENVS] == "command line"
    back = load_config(write(tmp_path, AUTO), overrides=["env.num_envs=5"])
    assert back.auto == ALL - {NUM_ENVS}
    assert sizes(back) == (2, 5, None)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (SMALL + "learner: {batch_size: auto}\n", "learner.batch_size"),
        (SMALL + "collector: {count: automatic}\n", "collector.count"),
        (SMALL + "collector: auto\n", "collector"),
        ("name: a\nenv: {kind: pettingzoo, id: some.game, num_envs: auto}\n", "several agents are not measured"),
        (
            SMALL + "policy: {type: ppo}\nlearner: {threads: auto, ranks: 2}\n",
            "c.yaml: learner.threads: cannot be auto here, since learner.threads is for one rank: give a number",
        ),
    ],
)
def test_what_cannot_be_auto_is_refused(tmp_path: Path, text: str, told: str) -> None:
    assert told in problem(tmp_path, text)


def test_who_cannot_measure_says_so_for_each_setting(tmp_path: Path) -> None:
    load_config(write(tmp_path, SMALL)).require_numbers("nobody measures")
    with pytest.raises(ConfigError) as raised:
        load_config(write(tmp_path, AUTO)).require_numbers("nobody measures")
    assert raised.value.problems[0] == (
        "c.yaml: collector.count: cannot be auto here, since nobody measures: give a number"
    )
    assert len(raised.value.problems) == 3


def test_people_are_shown_auto(tmp_path: Path) -> None:
    loaded = load_config(write(tmp_path, AUTO))
    told = json.loads(config_json_text(loaded.config, for_people=True, auto=loaded.auto))
    assert (told["collector"]["count"], told["env"]["num_envs"], told["learner"]["threads"]) == ("auto",) * 3
    again = load_config(write(tmp_path, yaml_text(loaded.config, loaded.provenance, auto=loaded.auto), "again.yaml"))
    assert (again.auto, again.config.model_copy(update={"source_dir": None})) == (
        loaded.auto,
        loaded.config.model_copy(update={"source_dir": None}),
    )
    assert sources(loaded)[NUM_ENVS]["value"] == "auto"


def test_editors_take_auto_for_these() -> None:
    schema = json.loads(json_schema_text())["$defs"]
    settings = {"CollectorConfig": "count", "EnvConfig": "num_envs", "LearnerConfig": "threads"}
    for section, name in settings.items():
        assert '{"const": "auto"}' in json.dumps(schema[section]["properties"][name])


def test_no_fewer_collectors_than_their_minimum(tmp_path: Path) -> None:
    loaded = load_config(write(tmp_path, SMALL + "collector: {count: auto, minimum: 5}\n"))
    assert sizes(loaded) == (5, 8, None)
    assert "collector.minimum" in problem(tmp_path, SMALL + "collector: {count: auto, minimum: few}\n")
