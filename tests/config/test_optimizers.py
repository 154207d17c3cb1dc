"""What `learner.optimizer` and `learner.optimizer_settings` refuse, and where they say it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.config.errors import ConfigError
from remuda.config.load import load_config

TEXT = "name: a\nenv: {id: CartPole-v1}\npolicy: {type: ppo}\nlearner:\n  "
MINE = "def descend(parameters, lr, *, power=1):\n    raise RuntimeError('is called by the learner alone')\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


@pytest.mark.parametrize(
    ("learner", "said"),
    [
        ("optimizer: sgd", ':5: learner.optimizer: should be one of adam, adamw, rmsprop, or module:Class, not "sgd"'),
        ("optimizer: mine:Nothing", ":5: learner.optimizer = 'mine:Nothing'"),
        (
            "optimizer_settings: {momentum: 1}",
            ":5: learner.optimizer_settings: momentum: adam has no such setting; it has betas, eps, weight_decay",
        ),
        (
            "optimizer_settings: {weight_decai: 1, eps: -1}",
            "weight_decai: adam has no such setting; did you mean weight_decay?",
        ),
        ("optimizer_settings: {betas: [0.9, 1]}", ":5: learner.optimizer_settings: betas[1]: should be less than 1"),
        (
            "optimizer: rmsprop\n  optimizer_settings: {betas: [0.9, 0.9]}",
            ":6: learner.optimizer_settings: betas: rmsprop has no such setting; it has alpha, eps, eps_inside_root, "
            "centered, momentum, weight_decay",
        ),
        (
            "optimizer: mine:descend\n  optimizer_settings: {eps: 1}",
            ":6: learner.optimizer_settings: mine:descend has no argument eps; it has parameters, lr, power",
        ),
        (
            "optimizer: mine:descend\n  optimizer_settings: {lr: 1}",
            ":6: learner.optimizer_settings: leave lr out: learner.learning_rate is given as that",
        ),
    ],
)
def test_what_the_optimizer_does_not_take_is_named(folder: Path, learner: str, said: str) -> None:
    path = folder / "a.yaml"
    path.write_text(TEXT + learner)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert said in str(caught.value)


def test_a_class_that_takes_the_settings_is_not_called(folder: Path) -> None:
    path = folder / "a.yaml"
    path.write_text(TEXT + "optimizer: mine:descend\n  optimizer_settings: {power: 2}")
    learner = load_config(path, overrides=["learner.optimizer_settings.power=3"]).config.learner
    assert (learner.optimizer, learner.optimizer_settings) == ("mine:descend", {"power": 3})


def test_each_of_several_policies_names_its_own(folder: Path) -> None:
    env = "env: {kind: pettingzoo, id: pettingzoo.butterfly.cooperative_pong_v6}"
    own = "policies: {fox: {agents: ['*'], learner: {optimizer: mine:descend, optimizer_settings: {speed: 1}}}}"
    path = folder / "a.yaml"
    path.write_text(f"name: a\n{env}\n{own}\n")
    with pytest.raises(
        ConfigError, match=r"policies\.fox\.learner\.optimizer_settings: mine:descend has no argument speed"
    ):
        load_config(path)
