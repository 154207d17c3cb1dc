"""The docstring under a setting is found where it stands, and only there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from remuda.config.current import Changes, changeable, config_at, schedules, values_at
from remuda.config.custom import settings_of
from remuda.config.dump import config_json_text
from remuda.config.errors import ConfigError
from remuda.config.load import load_config, load_settings
from remuda.config.schema import ExperimentConfig
from remuda.config.section import Section, descriptions, schedules_of


class Horse(Section):
    """A section."""

    legs: int = 4
    """How many it stands on; a foal, too."""
    name: Annotated[str, Field(max_length=20)] = "Rosinante"
    """Of
    two lines."""
    colour: str = "brown"

    @property
    def age(self) -> int:
        """Not a setting."""
        return 3


class Foal(Horse):
    """Derived."""

    legs: int = 5
    """Rare."""
    mother: str = ""
    """The horse."""


def test_of_a_section_and_of_what_it_is_derived_from() -> None:
    assert descriptions(Horse) == {"legs": "How many it stands on; a foal, too.", "name": "Of\ntwo lines."}
    assert descriptions(Foal) == {"legs": "Rare.", "name": "Of\ntwo lines.", "mother": "The horse."}


PPO = """\
name: bay
env: {id: CartPole-v1}
learner:
  learning_rate: [[0, 0.001], [1000, 0]]
policy:
  type: ppo
  clip: [[100, 0.2], [300, 0.1]]
  epochs: [[0, 10], [100, 1]]
"""
RATE, CLIP, EPOCHS = "learner.learning_rate", "policy.clip", "policy.epochs"


def write(folder: Path, text: str, name: str = "bay.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def config(**sections: object) -> ExperimentConfig:
    return ExperimentConfig.model_validate({"name": "bay", "env": {"id": "CartPole-v1"}, **sections})


def test_a_setting_is_the_first_value_of_its_schedule_which_is_kept_beside_it(tmp_path: Path) -> None:
    loaded = load_config(write(tmp_path, PPO)).config
    assert loaded.learner.learning_rate == 0.001
    assert schedules(loaded) == {
        CLIP: ((100, 0.2), (300, 0.1)),
        EPOCHS: ((0, 10), (100, 1)),
        RATE: ((0, 0.001), (1000, 0.0)),
    }


def test_values_go_in_straight_lines_and_whole_numbers_are_rounded(tmp_path: Path) -> None:
    loaded = load_config(write(tmp_path, PPO)).config
    at = {step: values_at(loaded, step, {}) for step in (0, 50, 200, 5_000)}
    assert at[0] == {RATE: 0.001, CLIP: 0.2, EPOCHS: 10}
    assert at[50] == {RATE: pytest.approx(0.00095), CLIP: 0.2, EPOCHS: 6}
    assert isinstance(at[50][EPOCHS], int)
    assert at[200] == {RATE: pytest.approx(0.0008), CLIP: pytest.approx(0.15), EPOCHS: 1}
    assert at[5_000] == {RATE: 0.0, CLIP: 0.1, EPOCHS: 1}
    changed = config_at(loaded, 200, {})
    assert changed.learner.learning_rate == at[200][RATE]
    assert schedules(changed) == {}
    assert schedules(loaded), "the config itself stays as it is"


@given(st.lists(st.tuples(st.integers(0, 100), st.floats(1e-6, 1)), max_size=5), st.integers(0, 120), st.booleans())
def test_a_change_holds_until_the_next_one(points: list[tuple[int, float]], env_step: int, scheduled: bool) -> None:
    points.sort(key=lambda point: point[0])
    given: Changes = {RATE: points}
    base = config(learner={"learning_rate": [[0, 0.5], [100, 0.25]] if scheduled else 0.5})
    expected = config_at(base, env_step, {}).learner.learning_rate
    for step, value in points:
        expected = value if step <= env_step else expected
    assert config_at(base, env_step, given).learner.learning_rate == expected


def test_a_config_of_a_message_or_of_a_program_is_the_same_too(tmp_path: Path) -> None:
    loaded = load_config(write(tmp_path, PPO)).config
    assert ExperimentConfig.model_validate_json(loaded.model_dump_json()) == loaded
    assert load_settings(loaded, folder=tmp_path).config == loaded
    assert loaded != load_config(write(tmp_path, PPO.replace("0.001], [1000, 0]", "0.001], [1000, 0.1]"))).config


def test_the_command_line_takes_a_schedule_and_beats_that_of_the_file(tmp_path: Path) -> None:
    loaded = load_config(write(tmp_path, PPO), overrides=[f"{RATE}=[[0,3e-4],[1e6,0]]", f"{CLIP}=0.1"])
    assert schedules(loaded.config)[RATE] == ((0, 3e-4), (1_000_000, 0.0))
    assert CLIP not in schedules(loaded.config)
    assert loaded.provenance[RATE] == "command line"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("learner:\n  learning_rate: [[0, 0.1], [9, -1]]", ":4: learner.learning_rate[1][1]: should be greater than"),
        ("learner:\n  learning_rate: [[0, fast]]", ':4: learner.learning_rate[0][1]: should be a valid number, not "f'),
        ("learner:\n  learning_rate: [[9, 1], [9, 2]]", ":4: learner.learning_rate: should name environment steps in"),
        ("learner:\n  learning_rate: []", ":4: learner.learning_rate: should have 1 to 1000 points [env_step, value]"),
        ("learner:\n  learning_rate: [1, 2]", ":4: learner.learning_rate[0]: should be a list, not 1"),
        ("learner:\n  learning_rate: 0", ":4: learner.learning_rate: should be greater than 0, not 0"),
        ("learner:\n  max_grad_norm: [[0, null]]", ":4: learner.max_grad_norm: should have numbers at all its points"),
        (
            "learner:\n  batch_size: [[0, 64]]",
            ":4: learner.batch_size: should be a number: it cannot change during a run (of those beside it, "
            "learner.learning_rate, ",
        ),
        ("policy:\n  n_step: [[0, 1]]", "(of those beside it, policy.target_update_iters may)"),
        ("buffer:\n  capacity: [[0, 64]]", ":4: buffer.capacity: should be a number: it cannot change during a run"),
    ],
)
def test_a_wrong_schedule_is_named_by_file_line_and_setting(tmp_path: Path, given: str, problem: str) -> None:
    path = write(tmp_path, f"name: bay\nenv: {{id: CartPole-v1}}\n{given}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value).startswith(str(path))
    assert problem in str(caught.value)


def test_each_of_several_policies_has_its_own_schedules_or_those_above() -> None:
    several = config(
        env={"id": "mpe", "kind": "pettingzoo"},
        learner={"learning_rate": [[0, 0.5], [10, 0.25]]},
        policies={"one": {"agents": ["a"]}, "two": {"agents": ["b"], "learner": {"learning_rate": 0.125}}},
    )
    assert schedules(several.of_policy("one")) == {RATE: ((0, 0.5), (10, 0.25))}
    assert schedules(several.of_policy("two")) == {}
    assert ExperimentConfig.model_validate_json(several.model_dump_json()) == several
    written = json.loads(config_json_text(several))["policies"]
    assert "learner" not in written["one"]
    assert written["two"]["learner"] == {"learning_rate": 0.125}


MINE = """
from typing import Annotated
import remuda

class Settings(remuda.AlgorithmConfig):
    defaults = {"learner.max_grad_norm": None}
    rate: Annotated[float, remuda.MayChange()] = 0.5
    size: int = 4

class Mine:
    settings = Settings

    def declaration(self, config, settings):
        rows = remuda.Segments(horizon_steps=8, discount=0.9)
        return remuda.Declaration(rows=rows, reuse="once", monitored=("loss",))
"""


def test_an_algorithm_of_ones_own_marks_its_settings_alike(tmp_path: Path) -> None:
    (tmp_path / "mine_changing.py").write_text(MINE)
    text = f"name: bay\nenv: {{id: CartPole-v1}}\nlearner: {{learning_rate: [[0, 1], [9, 2]]}}\npolicy:\n  {'{}'}\n"
    whole = text.replace("{}", "type: mine_changing:Mine\n  rate: [[0, 0.5], [10, 0.25]]")
    loaded = load_config(write(tmp_path, whole)).config
    assert schedules(loaded) == {RATE: ((0, 1.0), (9, 2.0))}, "kept where the class has defaults for the section"
    settings = settings_of(loaded)
    assert schedules_of(settings) == {"rate": ((0, 0.5), (10, 0.25))}
    assert load_config(write(tmp_path, config_json_text(loaded), "again.json")).config == loaded
    own = loaded.model_copy(update={"policy": settings})
    assert {"policy.rate", "learner.learning_rate"} <= set(changeable(own))
    assert "policy.size" not in changeable(own)
    assert config_at(own, 5, {}).policy.model_dump()["rate"] == 0.375
    with pytest.raises(ConfigError, match=r":5: policy\.size: should be a number: .* policy\.rate may"):
        load_config(write(tmp_path, text.replace("{}", "{type: mine_changing:Mine, size: [[0, 1]]}")))
