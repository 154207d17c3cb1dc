"""An evaluation's episodes depend on the checkpoint and their numbers alone."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remuda.config.environment import EnvConfig
from remuda.config.workers import EvaluatorConfig, LogConfig
from remuda.environments import copies
from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.make import SingleEnv, make_single
from remuda.environments.spaces import Array, UnusableActionsError
from remuda.evaluator.evaluate import Episode
from remuda.evaluator.player import EpisodePlayer
from remuda.evaluator.service import cut_warning
from remuda.learner import checkpoint
from remuda.learner.checkpoint import Progress
from remuda.policy.files.playable import load_checkpoint_policy
from remuda.tests.policy.algorithms.untaught import Still
from remuda.tests.policy.cases import config, dqn
from remuda.wire.messages import Counters, PolicyRef


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "iteration_0.pth.tar"
    checkpoint.save(path, dqn(seed=4), Progress(Counters(), PolicyRef(), {"epsilon": 1.0}), config=config())
    return path


@contextmanager
def player(num_envs: int) -> Generator[EpisodePlayer]:
    with closing(EpisodePlayer(config(), {"": config()}, num_envs=num_envs)) as opened:
        yield opened


def play(player: EpisodePlayer, saved: Path, numbers: range, **options: Any) -> list[Episode]:
    return list(player.evaluate([load_checkpoint_policy(saved).policy], 0, numbers, **options).episodes)


def test_whoever_plays_an_episode_its_seed_and_return_are_the_same(saved: Path) -> None:
    with player(1) as alone, player(4) as together:
        all_of_them = play(alone, saved, range(6))
        assert play(together, saved, range(6))[0].seed == all_of_them[0].seed
        shares = play(together, saved, range(2)) + play(together, saved, range(2, 6))
    assert [(episode.seed, episode.return_) for episode in shares] == [
        (episode.seed, episode.return_) for episode in all_of_them
    ]


def test_episodes_are_cut_where_the_config_says(saved: Path) -> None:
    short = config().model_copy(update={"evaluator": EvaluatorConfig(max_episode_steps=3)})
    with closing(EpisodePlayer(short, {"": short}, num_envs=2)) as one, player(2) as other:
        cut, whole = (play(each, saved, range(3)) for each in (one, other))
    assert [(episode.length, episode.cut) for episode in cut] == [(3, True)] * 3
    assert not any(episode.cut for episode in whole)
    for episode in whole:  # CartPole pays 1 per step
        assert episode.info["discounted_return"] == pytest.approx((1 - 0.99**episode.length) / (1 - 0.99))
    assert cut_warning(whole) is None
    assert str(cut_warning([*cut, *whole])).startswith("3 of 6 evaluation episodes had not ended after 3 steps")


@pytest.mark.parametrize(("deterministic", "exploration"), [(True, {}), (False, {"epsilon": 0.05})])
def test_evaluations_act_best_unless_told_to_explore(deterministic: bool, exploration: dict[str, float]) -> None:
    class Asked(Still):
        def act(self, observations: Array, exploration: Mapping[str, float], *rest: Any, **more: Any) -> Array:
            asked.append((more["deterministic"], dict(exploration)))
            return super().act(observations, exploration, *rest, **more)

    asked: list[tuple[bool, dict[str, float]]] = []
    chosen = config().model_copy(update={"evaluator": EvaluatorConfig(deterministic=deterministic)})
    with closing(EpisodePlayer(chosen, {"": chosen}, num_envs=2)) as player:
        player.evaluate([Asked()], 0, range(2))
    assert asked
    assert all(one == (deterministic, exploration) for one in asked)


@pytest.mark.parametrize("actions", [np.zeros((2, 1), np.int64), np.zeros(2), None])
def test_actions_that_are_not_of_the_space_are_the_policys_fault(actions: Any) -> None:
    """The first evaluation comes before any training, and its environments would be called broken."""

    class Answering(Still):
        def act(self, *given: Any, **more: Any) -> Array:
            answer: Array = actions
            return answer

    with player(2) as opened, pytest.raises(UnusableActionsError, match=r"Answering gave actions of shape"):
        opened.evaluate([Answering()], 0, range(2))


def test_a_player_that_cannot_be_made_leaves_no_environment_open(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[SingleEnv] = []
    closed: list[SingleEnv] = []

    def make(env: EnvConfig, *, source_dir: str | None) -> SingleEnv:
        if len(made) == 2:
            raise EnvironmentBuildError("no third one")
        one = make_single(env, source_dir=source_dir)
        made.append(one)
        monkeypatch.setattr(one, "close", lambda: closed.append(one))
        return one

    monkeypatch.setattr(copies, "make_single", make)
    with pytest.raises(EnvironmentBuildError, match="no third one"):
        EpisodePlayer(config(), {"": config()}, num_envs=3)
    assert closed == made


def test_actions_are_counted_unless_that_is_switched_off(saved: Path) -> None:
    policy = load_checkpoint_policy(saved).policy
    off = config().model_copy(update={"log": LogConfig(histograms=False)})
    with player(2) as one, closing(EpisodePlayer(off, {"": off}, num_envs=1)) as other:
        played = one.evaluate([policy], 0, range(3))
        assert not other.evaluate([policy], 0, range(3)).actions
    assert sum(played.actions["action"].counts) == sum(episode.length for episode in played.episodes)
