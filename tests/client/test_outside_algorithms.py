"""A user's own algorithm answers what others ask of one as a built-in algorithm does: nothing asks for its name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from remuda.client.beginning import choose
from remuda.config.errors import ConfigError
from remuda.config.explain import unused_settings
from remuda.config.load import load_settings
from remuda.config.schema import ExperimentConfig
from remuda.policy.row_plan import row_plan

MINE = """
from pathlib import Path
import remuda
from remuda.config.algorithms.actor_critic import PpoConfig

class Settings(remuda.AlgorithmConfig):
    defaults = {"learner.batch_size": 32, "buffer.max_policy_lag": 3}
    stored_configs = {"CartPole-v1": Path(__file__).parent / "stored.yaml"}
    horizon_steps: int = 16
    clip: float | None = None
    clip_steps: int = 100

    @classmethod
    def settings_for(cls, spaces, *, in_parts):
        return {"policy.clip": 0.5, "learner.learning_rate": 0.25} if spaces == "Box actions" else {}

    def unused_settings(self):
        return {} if self.clip else {"policy.clip is null": ("policy.clip_steps", "learner.max_grad_norm")}

class Once:
    settings = Settings

    def declaration(self, config, settings):
        rows = remuda.Segments(horizon_steps=settings.horizon_steps, discount=0.9)
        return remuda.Declaration(rows=rows, reuse="once", monitored=("loss",), lowers_products=True)

class Replayed(Once):
    def declaration(self, config, settings):
        return remuda.Declaration(rows=remuda.Steps(n_step=1, discount=0.9), reuse="replay", monitored=("loss",))

class Variant(Once):
    class settings(PpoConfig):
        bonus: float = 0.1

class Typo(Once):
    class settings(Settings):
        def unused_settings(self):
            return {"nobody reads it": ("learner.batchsize",)}

class Raises(Once):
    class settings(Settings):
        def unused_settings(self):
            raise SystemExit(3)

        @classmethod
        def settings_for(cls, spaces, *, in_parts):
            return {"policy.clip": 1 / 0}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "outside.py").write_text(MINE)
    stored = "name: kept\nenv: {id: CartPole-v1}\npolicy: {type: 'outside:Once', clip_steps: 7}\n"
    (tmp_path / "stored.yaml").write_text(stored)
    return tmp_path


def config(folder: Path, name: str, *, policy: dict[str, Any] | None = None, **sections: Any) -> ExperimentConfig:
    settings = {"name": "x", "env": {"id": "CartPole-v1"}, "policy": {"type": f"outside:{name}", **(policy or {})}}
    return load_settings({**settings, **sections}, folder=folder).config


def unused(folder: Path, name: str, **given: Any) -> list[str]:
    return [line.partition(" is ")[0] for line in unused_settings(config(folder, name, **given))]


def test_which_settings_it_does_not_read(folder: Path) -> None:
    """Its own, those of others, and those that no algorithm of its kind reads; its own defaults are nobody's wish."""
    assert unused(folder, "Once") == []
    given: dict[str, dict[str, float]] = {
        "policy": {"clip_steps": 9},
        "learner": {"batch_size": 64, "max_grad_norm": 2.0},
    }
    assert unused(folder, "Once", **given) == ["learner.batch_size", "policy.clip_steps", "learner.max_grad_norm"]
    given["policy"]["clip"] = 0.5
    assert unused(folder, "Once", **given) == ["learner.batch_size"]
    assert unused(folder, "Replayed", buffer={"max_policy_lag": 5}) == ["buffer.max_policy_lag"]
    assert unused(folder, "Variant", policy={"recurrent_units": 9}) == ["policy.recurrent_units"]


def test_how_old_the_policies_may_be_that_it_learns_from(folder: Path) -> None:
    assert config(folder, "Once").buffer.max_policy_lag == 3
    assert row_plan(config(folder, "Once")).capacity > row_plan(config(folder, "Variant")).capacity


def test_what_is_stored_for_it(folder: Path) -> None:
    choice = choose("outside:Once", "CartPole-v1", folder=folder)
    assert choice.summary == "outside:Once on CartPole-v1: settings of stored.yaml"
    assert choice.loaded.config.name == "kept"
    variant = choose("outside:Variant", "CartPole-v1", folder=folder).loaded.config
    ppo = choose("ppo", "CartPole-v1", folder=folder).loaded.config
    assert variant.policy.type == "outside:Variant"
    assert variant.learner == ppo.learner, "the class that it is derived from answers, too"


def test_what_it_takes_for_which_spaces(folder: Path) -> None:
    numbers = choose("outside:Once", "Pendulum-v1", folder=folder)
    assert numbers.summary == (
        "outside:Once on Pendulum-v1: no settings are stored, so those for Box actions are taken. "
        "Stored for outside:Once: CartPole-v1"
    )
    assert numbers.loaded.config.policy.model_dump()["clip"] == 0.5
    assert numbers.loaded.config.learner.learning_rate == 0.25
    assert "so the defaults are taken" in choose("outside:Once", "Acrobot-v1", folder=folder).summary


def test_answers_that_cannot_be_used_are_errors_that_name_the_class(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"'outside:Typo': settings.unused_settings: learner.batchsize: no such"):
        unused(folder, "Typo")
    with pytest.raises(ConfigError, match=r"'outside:Raises': .*unused_settings failed: UserExitError: System"):
        unused(folder, "Raises")
    with pytest.raises(ConfigError, match=r"'outside:Raises': .*settings_for failed: ZeroDivisionError"):
        choose("outside:Raises", "Pendulum-v1", folder=folder)
