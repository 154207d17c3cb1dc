"""`policy.type: module:Class`: found, its settings checked and filled in; every mistake is an error with its line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from remuda.config.algorithms.registry import BUILT_IN, CustomConfig
from remuda.config.declaration import Segments
from remuda.config.dump import config_json_text, formatted_total_config_text, sources, yaml_text
from remuda.config.errors import ConfigError
from remuda.config.load import LoadedConfig, load_config
from remuda.config.user_code import UserCodeError, require_arguments

MINE = """
import typing

import pydantic
import remuda

class Settings(remuda.AlgorithmConfig):
    horizon_steps: int = 32
    rate: float = 0.5
    sizes: tuple[int, ...] = (4, 4)

class Mine:
    settings = Settings

    def declaration(self, config, settings):
        rows = remuda.Segments(horizon_steps=settings.horizon_steps, discount=0.9)
        return remuda.Declaration(rows=rows, reuse="once", monitored=("loss",))

class Tuned(Mine):
    class settings(Settings):
        defaults = {"learner.learning_rate": 0.25, "learner.max_grad_norm": None, "evaluator.episodes": 7}

class Typo(Mine):
    class settings(Settings):
        defaults = {"lerner.learning_rate": 0.25}

class TooMuch(Mine):
    class settings(Settings):
        defaults = {"learner.learning_rate": -1}

class Exits(Mine):
    def declaration(self, config, settings):
        raise SystemExit(3)

class Declares(Mine):
    def declaration(self, config, settings):
        return {"reuse": "once"}

class Misdeclares(Mine):
    def declaration(self, config, settings):
        rows = remuda.Segments(horizon_steps=4, discount=0.9)
        return remuda.Declaration(rows=rows, reuse="twice", monitored=("loss",))

class Unset:
    pass

def encodes(observation, width=8):
    raise RuntimeError("is called by the learner and by collectors alone")

class Taken(Mine):
    class settings(remuda.AlgorithmConfig):
        declaration: int = 3

class Broken(Mine):
    def __init__(self):
        raise ValueError("no")

class Unknown(Mine):
    class settings(Settings):
        activation: "Module" = None  # imported for checkers of types alone

class Unwritten(Mine):
    class settings(Settings):
        activation: typing.Any = float

class Raises(Mine):
    class settings(Settings):
        @pydantic.field_validator("rate")
        def looked_up(cls, rate):
            return {}[rate]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


def loaded(folder: Path, policy: str, *, overrides: tuple[str, ...] = ()) -> LoadedConfig:
    config = folder / "horse.yaml"
    config.write_text(f"name: horse\nenv: {{id: CartPole-v1}}\npolicy:\n  {policy}\n")
    return load_config(config, overrides=overrides)


def policy_of(given: LoadedConfig) -> CustomConfig:
    assert isinstance(given.config.policy, CustomConfig)
    return given.config.policy


def test_its_settings_are_checked_and_their_defaults_filled_in(folder: Path) -> None:
    policy = policy_of(loaded(folder, "type: mine:Mine\n  rate: 1", overrides=("policy.horizon_steps=16",)))
    assert policy.settings == {"horizon_steps": 16, "rate": 1.0, "sizes": [4, 4]}
    assert policy.declaration is not None
    assert policy.declaration.rows == Segments(horizon_steps=16, discount=0.9)
    assert policy.segment_steps == 16


def test_what_is_written_down_loads_to_the_same_config(folder: Path) -> None:
    given = loaded(folder, "type: mine:Mine\n  rate: 0.25")
    texts = {
        "again.json": config_json_text(given.config),
        "again.py": formatted_total_config_text(given.config, given.provenance),
        "again.yaml": yaml_text(given.config, given.provenance),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
        assert load_config(folder / name).config == given.config, name
    assert "'rate': 0.25,  # file" in texts["again.py"]
    assert sources(given)["policy.rate"] == {"value": 0.25, "source": "file"}
    assert sources(given)["policy.horizon_steps"] == {"value": 32, "source": "default"}


def test_a_written_declaration_is_taken_at_its_word_where_nothing_may_be_imported(folder: Path) -> None:
    given = loaded(folder, "type: mine:Mine")
    (folder / "config.json").write_text(config_json_text(given.config))
    (folder / "mine.py").write_text("raise AssertionError('imported')\n")
    assert load_config(folder / "config.json", import_algorithm=False).config == given.config
    with pytest.raises(ConfigError, match="AssertionError: imported"):
        load_config(folder / "config.json")


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ("type: mine:Mine\n  rat: 1", ":5: policy.rat: no such setting; did you mean policy.rate?"),
        ("type: mine:Mine\n  rate: fast", ':5: policy.rate: should be a valid number, not "fast"'),
        ("type: mine:Mine\n  rate: .nan", "policy: rate should contain finite numbers only, not nan"),
        ("type: mine:Mine\n  speed: 1", ":5: policy.speed: no such setting; valid here: horizon_steps, rate, sizes"),
        ("type: mine:Unset", "Unset.settings should be a class derived from remuda.AlgorithmConfig"),
        ("type: mine:Yours", ":4: policy.type = 'mine:Yours'"),
        ("type: mine:Exits", "SystemExit(3) was raised in"),
        ("type: mine:Declares", "Declares.declaration should return a remuda.Declaration, not {'reuse': 'once'}"),
        ("type: mine:Misdeclares", "declaration failed: Declaration: reuse: should be 'replay' or 'once'"),
        ("type: mine:Taken", "rename the setting declaration"),
        ("type: mine:Broken", "mine:Broken cannot be made: ValueError: no"),
        ("type: mine:Unknown", "'mine:Unknown': settings cannot be read (settings are numbers, text,"),
        ("type: mine:Unwritten", "by a text): PydanticSerializationError: Unable to serialize unknown type"),
        ("type: mine:Raises", "by a text): KeyError: 0.5"),
        ("type: mine:Typo", "settings.defaults: lerner.learning_rate: no such setting outside policy; write section."),
        ("type: mine:TooMuch", "settings.defaults: learner.learning_rate: Input should be greater than 0"),
        ("type: ppp", f'should be one of {", ".join(BUILT_IN)}, or module:Class, not "ppp"; did you mean ppo?'),
    ],
)
def test_every_mistake_names_its_place(folder: Path, policy: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, policy)
    assert problem in str(caught.value)
    assert str(caught.value).startswith(f"{folder / 'horse.yaml'}:")


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ("type: mine:Mine, rat: 1", "policies.fox.policy.rat: no such setting; did you mean policies.fox.policy.rate?"),
        ("type: mine:Mine, rate: fast", 'policies.fox.policy.rate: should be a valid number, not "fast"'),
        ("type: mine:Broken", "policies.fox.policy.type = 'mine:Broken': mine:Broken cannot be made"),
        ("type: mine:Mine, horizon_steps: 100000", "policies.fox: 1601600000 steps would have to be kept at once"),
    ],
)
def test_a_mistake_in_one_of_several_policies_names_it_and_its_line(folder: Path, policy: str, problem: str) -> None:
    config = folder / "game.yaml"
    config.write_text(
        "name: game\nenv: {kind: pettingzoo, make: 'game:make', num_envs: 8}\npolicies:\n  hare: {agents: [hare]}\n"
        f"  fox:\n    agents: [fox]\n    policy: {{{policy}}}\nbuffer: {{max_policy_lag: 1000}}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_config(config)
    (told,) = caught.value.problems
    place, _, what = told.partition(": ")
    assert what.startswith(problem), told
    assert place == f"{config}:{5 if problem.startswith('policies.fox:') else 7}"


def test_its_defaults_of_other_sections_fill_in_what_is_left_out(folder: Path) -> None:
    found = loaded(folder, "type: mine:Tuned\nlearner: {max_grad_norm: 3}")
    learner = found.config.learner
    assert (learner.learning_rate, learner.max_grad_norm, found.config.evaluator.episodes) == (0.25, 3.0, 7)
    origins = [found.provenance[f"learner.{name}"] for name in ("learning_rate", "max_grad_norm", "device")]
    assert origins == ["algorithm", "file", "default"]
    assert sources(found)["learner.learning_rate"] == {"value": 0.25, "source": "algorithm"}


def test_one_of_several_policies_has_its_defaults_where_it_has_sections_of_its_own(folder: Path) -> None:
    config = folder / "game.yaml"
    config.write_text(
        "name: game\nenv: {kind: pettingzoo, make: 'game:make'}\npolicy: {type: ppo}\nlearner: {max_grad_norm: 3}\n"
        "policies:\n  hare: {agents: [hare]}\n  fox: {agents: [fox], policy: {type: 'mine:Tuned', horizon_steps: 64}}\n"
    )
    both = load_config(config).config
    assert {name: one.learner.learning_rate for name, one in both.policies.items()} == {"hare": 3e-4, "fox": 0.25}
    assert both.policies["fox"].learner.max_grad_norm == 3.0, "given for all"
    assert both.evaluator.episodes == 5, "shared"


def test_an_installed_package_offers_one_by_a_name_of_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = folder / "site" / "mine_package-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: mine-package\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[remuda.algorithms]\nmy-algorithm = mine:Mine\n")
    monkeypatch.syspath_prepend(str(folder / "site"))
    assert policy_of(loaded(folder, "type: my-algorithm\n  rate: 3")).settings["rate"] == 3.0
    with pytest.raises(ConfigError, match=f"{', '.join(BUILT_IN)}, my-algorithm, or module:Class"):
        loaded(folder, "type: my-algorithmm")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            "policy: {type: ppo, encoder: 'mine:encodes', encoder_kwargs: {widht: 4}}",
            "policy.encoder_kwargs: mine:encodes has no argument widht; did you mean width?",
        ),
        (
            "callbacks: [{make: 'remuda.tests.callbacks:Notes', kwargs: {evaluation: 3}}]",
            "callbacks: remuda.tests.callbacks:Notes has no argument evaluation; did you mean evaluations?",
        ),
    ],
)
def test_an_argument_that_the_users_function_lacks_is_named_with_the_nearest(
    folder: Path, given: str, said: str
) -> None:
    (folder / "a.yaml").write_text(f"name: a\nenv: {{id: CartPole-v1}}\n{given}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(folder / "a.yaml")
    assert str(caught.value).endswith(f"a.yaml:3: {said}")


def test_an_argument_that_cannot_be_given_by_name_is_refused() -> None:
    def encoder(observation: object, /, width: int = 3, *more: object) -> None: ...

    require_arguments(encoder, {"width": 4}, setting="policy.encoder_kwargs", reference="mine:encoder")
    for name in ("observation", "more"):
        with pytest.raises(UserCodeError, match=f"mine:encoder has no argument {name}; it has width"):
            require_arguments(encoder, {name: 1}, setting="policy.encoder_kwargs", reference="mine:encoder")
