"""Films are of an evaluation's first episode, bounded, and cost an evaluation nothing when they fail."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Generator
from contextlib import closing, contextmanager

import pytest

from remuda.config.environment import EnvConfig
from remuda.config.schema import ExperimentConfig
from remuda.config.workers import EvaluatorConfig, LogConfig
from remuda.environments import films as pictures
from remuda.environments.seeding import episode_seed
from remuda.evaluator import films as evaluator_films
from remuda.evaluator.films import Films
from remuda.evaluator.player import EpisodePlayer
from remuda.tests.environments.gifs import delays_s, pictures_of
from remuda.tests.environments.painter import HEIGHT, LENGTH, WIDTH
from remuda.tests.policy.algorithms.untaught import Still
from remuda.wire.messages import Film

HERE = "remuda.tests.environments"


def config(
    make: str = f"{HERE}.painter:WidePainter", *, interval: int | None = 100, most_steps: int = 30_000
) -> ExperimentConfig:
    return ExperimentConfig(
        name="filmed",
        seed=5,
        env=EnvConfig(make=make),
        evaluator=EvaluatorConfig(episodes=2, max_episode_steps=most_steps),
        log=LogConfig(film_interval_env_steps=interval),
    )


@contextmanager
def opened(config: ExperimentConfig) -> Generator[Films]:
    with closing(Films(config)) as films:
        yield films


def white_columns(film: Film | None) -> list[int]:
    assert film is not None
    seen = pictures_of(film.gif, height=film.height, width=film.width)
    return [int((picture.mean(axis=(0, 2)) > 128).sum()) for picture in seen]


def test_a_film_shows_the_whole_episode() -> None:
    with opened(config()) as films:
        film = films.film([Still()], env_step=0)
        assert films.take_warnings() == []
    assert white_columns(film) == [5 * step for step in range(LENGTH + 1)]
    assert film is not None
    assert (film.height, film.width) == (HEIGHT, WIDTH)
    assert delays_s(film.gif)[0] == 0.1
    with opened(config(most_steps=4)) as films:
        assert white_columns(films.film([Still()], env_step=0)) == [0, 5, 10, 15, 20], "cut like an evaluation"


def test_long_episodes_are_seen_in_part_and_every_nth_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator_films, "MOST_STEPS", 9)
    monkeypatch.setattr(pictures, "MOST_PICTURES", 6)
    with opened(config()) as films:
        assert white_columns(films.film([Still()], env_step=0)) == [0, 10, 20, 30, 40]
        monkeypatch.setattr(pictures, "MOST_SIDE_PIXELS", 25)
        small = films.film([Still()], env_step=0)
        assert small is not None
        assert (small.height, small.width) == (HEIGHT // 2, WIDTH // 2), "large pictures are made smaller"


def test_a_slow_environment_is_seen_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second passes between two looks at the clock: one before the first step, then one after the action of each."""
    monkeypatch.setattr(evaluator_films, "MOST_PLAYING_S", 4.0)
    seconds = itertools.count()
    with closing(Films(config(), clock=lambda: float(next(seconds)))) as films:
        film = films.film([Still()], env_step=0)
    assert white_columns(film) == [5 * step for step in range(4)]


def test_films_are_due_at_the_first_evaluation_that_has_reached_a_multiple() -> None:
    with opened(config(interval=100)) as films:
        due: list[int] = []
        for env_step in (0, 40, 99, 104, 180, 350, 390, 401):
            if films.due(env_step):
                due.append(env_step)
                films.film([Still()], env_step=env_step)
        assert due == [0, 104, 350, 401]


def test_a_film_that_is_given_up_is_none_and_is_tried_again() -> None:
    steps: list[int] = []

    def go_on(env_steps: int) -> bool:
        steps.append(env_steps)
        return len(steps) < 3

    with opened(config()) as films:
        assert films.film([Still()], env_step=0, go_on=go_on) is None
        assert steps == [1, 1, 1]
        assert films.take_warnings() == []
        assert films.due(0)
        assert films.film([Still()], env_step=0) is not None


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("Leaving", "UserExitError: SystemExit.*no renderer here"),
        ("unseen", "EnvironmentBuildError: .*has no parameter render_mode"),
    ],
)
def test_what_cannot_be_filmed_is_told_of_once_before_anything_is_played(env: str, said: str) -> None:
    with opened(config(f"{HERE}.unfilmable:{env}")) as films:
        (warning,) = films.take_warnings()
        assert films.take_warnings() == []
        assert not films.due(0)
    assert warning.startswith("evaluations are not filmed: ")
    assert re.search(said, warning)


@pytest.mark.parametrize(
    ("env", "said"), [("BlindLater", "the renderer is gone"), ("Growing", "the pictures change their size")]
)
def test_what_fails_in_the_middle_is_told_of_once_and_ends_the_films(env: str, said: str) -> None:
    with opened(config(f"{HERE}.unfilmable:{env}")) as films:
        assert films.film([Still()], env_step=0) is None
        (warning,) = films.take_warnings()
        assert said in warning
        assert not films.due(10_000)
        assert films.film([Still()], env_step=10_000) is None
        assert films.take_warnings() == []


def test_the_process_may_open_windows_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER", "PYGAME_HIDE_SUPPORT_PROMPT"):
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    with opened(config(f"{HERE}.unfilmable:Blind", interval=None)) as films:
        assert not films.due(0), "without the setting nothing is built"
        assert films.film([Still()], env_step=0) is None
        assert films.take_warnings() == []
    with opened(config()) as films:
        films.film([Still()], env_step=0)
        assert dict(os.environ) == before


def test_the_episode_is_the_evaluations_own() -> None:
    """How soon a pole falls that nobody holds depends on the seed."""
    cartpole = ExperimentConfig(
        name="filmed", seed=5, env=EnvConfig(id="CartPole-v1"), log=LogConfig(film_interval_env_steps=1)
    )
    with closing(EpisodePlayer(cartpole, {"": cartpole}, num_envs=1)) as player:
        (episode, *_) = player.evaluate([Still()], 0, range(3)).episodes
        film = player.films.film([Still()], env_step=0)
    assert episode.seed == episode_seed(5, 0)
    assert film is not None
    assert max(film.height, film.width) <= pictures.MOST_SIDE_PIXELS
    seen = pictures_of(film.gif, height=film.height, width=film.width)
    assert len(seen) == episode.length + 1


def test_a_film_of_several_agents_shows_their_game_to_its_end() -> None:
    """One leaves after 2 steps, the last one after 5."""
    env = EnvConfig(kind="pettingzoo", make=f"{HERE}.painter:PaintedGame", kwargs={"lengths": [2, 5]})
    game = config().model_copy(update={"env": env})
    with closing(Films(game, [["a0"], ["a1"]])) as films:
        film = films.film([Still(), Still()], env_step=0)
        assert films.take_warnings() == []
    assert white_columns(film) == [5 * step for step in range(6)]
