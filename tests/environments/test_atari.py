"""Atari games by ale-py's vector: the emulator's word against what collectors and evaluators are told."""

from __future__ import annotations

import gc
from typing import Any, cast

import ale_py
import numpy as np
import psutil
import pytest
from ale_py import roms

from remuda.config.environment import EnvConfig
from remuda.environments.atari import LIFE_LOST, AtariVector
from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.lanes import Copies
from remuda.environments.make import make_single
from remuda.environments.spaces import Array
from remuda.environments.vectors import VectorCopies
from remuda.tests.environments.stepping import begun, copies_of, spaces_of, stepped
from remuda.tests.environments.timers import quick

PONG = EnvConfig(id="ALE/Pong-v5")


def breakout(**kwargs: Any) -> EnvConfig:
    return EnvConfig(id="ALE/Breakout-v5", kwargs={"repeat_action_probability": 0.0, **kwargs})


def vector_of(env: EnvConfig, num_envs: int = 2) -> Copies:
    return copies_of(env, num_envs=num_envs, source_dir=None, timer=quick)


def played(env: EnvConfig, num_envs: int, steps: int) -> list[tuple[Array, Array, Array, Array, dict[str, Any]]]:
    """Random steps, the same for every vector of that size."""
    vector, rng = vector_of(env, num_envs), np.random.default_rng(0)
    begun(vector, list(range(num_envs)))
    return [stepped(vector, rng.integers(4, size=num_envs)) for _ in range(steps)]


def test_a_game_is_stepped_by_the_emulators_own_vector() -> None:
    vector = vector_of(PONG)
    assert isinstance(vector, VectorCopies)
    assert isinstance(vector.vector, AtariVector)
    assert vector.vectorization == "native"
    observation, action = spaces_of(vector)
    assert (observation.shape, str(observation.dtype), str(action)) == ((4, 84, 84), "uint8", "Discrete(6)")
    assert vector.clips_rewards
    assert not vector_of(EnvConfig(id="ALE/Pong-v5", kwargs={"reward_clipping": False})).clips_rewards
    assert not vector_of(EnvConfig(id="CartPole-v1")).clips_rewards


def test_settings_reach_the_emulator() -> None:
    kwargs = {"img_height": 64, "img_width": 32, "stack_num": 2, "grayscale": False, "full_action_space": True}
    config = EnvConfig.model_validate({"id": "ALE/Pong-v5", "kwargs": kwargs})
    observation, action = spaces_of(vector_of(config))
    assert (observation.shape, str(action)) == ((2, 64, 32, 3), "Discrete(18)")
    single = make_single(config, source_dir=None)
    assert (single.observation_space, single.action_space) == (observation, action)


def test_each_environment_plays_as_its_seed_says() -> None:
    seeds, steps = [7, 8, 7], 30
    vector = vector_of(PONG, 3)
    observations = begun(vector, seeds)
    for row, seed in enumerate(seeds):
        first, _ = make_single(PONG, source_dir=None).reset(seed=seed)
        np.testing.assert_array_equal(observations[row], first)
    for _ in range(steps):
        observations = stepped(vector, np.full(3, 2))[0]
    np.testing.assert_array_equal(observations[0], observations[2])
    assert not np.array_equal(observations[0], observations[1])
    again = begun(vector, None)
    assert not np.array_equal(again, begun(vector, seeds)), "without seeds the random streams go on"


def test_a_single_game_is_the_vectors_game_and_starts_anew_at_any_time() -> None:
    game, vector = make_single(breakout(), source_dir=None), vector_of(breakout(), 1)
    for _ in range(2):
        observation, _ = game.reset(seed=5)
        np.testing.assert_array_equal(observation, begun(vector, [5])[0])
        rng = np.random.default_rng(1)
        ended = False
        while not ended:
            action = rng.integers(4)
            observation, reward, terminated, truncated, _ = game.step(action)
            seen, rewards, ends, cuts, _ = stepped(vector, np.array([action]))
            np.testing.assert_array_equal(observation, seen[0])
            assert (reward, terminated, truncated) == (rewards[0], ends[0], cuts[0])
            ended = terminated or truncated


def shares(pixels: int, into: int) -> Array:
    """float64 [into, pixels]: the share of each pixel in each of fewer pixels, by area."""
    edges = np.arange(into + 1) * (pixels / into)
    begin, end = edges[:-1, None], edges[1:, None]
    overlap = np.minimum(end, np.arange(pixels) + 1) - np.maximum(begin, np.arange(pixels))
    return np.asarray(np.clip(overlap, 0.0, None) * (into / pixels))


def test_each_pixel_is_that_of_the_bare_emulator() -> None:
    """Mnih et al. 2015: the maximum of the last two of four frames in grey, scaled by area, the newest last."""
    bare = ale_py.ALEInterface()
    bare.setFloat("repeat_action_probability", 0.0)
    bare.setInt("frame_skip", 1)
    bare.setInt("random_seed", 3)
    bare.loadROM(str(roms.get_rom_path("breakout")))
    plain: dict[str, Any] = {"repeat_action_probability": 0.0, "noop_max": 1, "use_fire_reset": False}
    game = make_single(EnvConfig(id="ALE/Breakout-v5", kwargs=plain), source_dir=None)
    stack = [*game.reset(seed=3)[0]]
    actions, rng = bare.getMinimalActionSet(), np.random.default_rng(0)
    rows, columns = shares(210, 84), shares(160, 84)
    for _ in range(60):
        action = int(rng.integers(len(actions)))
        scores, frames = zip(*((bare.act(actions[action]), bare.getScreenGrayscale()) for _ in range(4)), strict=True)
        observation, reward, terminated, _, _ = game.step(action)
        assert (reward, terminated) == (sum(scores), bare.game_over())
        np.testing.assert_array_equal(observation[:-1], stack[1:])
        exact = rows @ np.maximum(*frames[-2:]).astype(np.float64) @ columns.T
        assert np.abs(observation[-1] - exact).max() < 0.5 + 1e-6, "the nearest byte"
        stack = [*observation]


def test_the_step_after_the_end_is_the_reset_and_nothing_else() -> None:
    """NEXT_STEP, by the emulator's own frame counter: no frame is played in the reset but the no-ops before a game."""
    steps = played(breakout(noop_max=1), 2, 300)
    ended = np.array([terminated | truncated for _, _, terminated, truncated, _ in steps])
    frames = np.array([info["episode_frame_number"] for *_, info in steps])
    lives = np.array([info["lives"] for *_, info in steps])
    assert ended.sum() >= 2
    after = np.roll(ended, 1, axis=0)
    after[0] = False
    assert (np.diff(frames, axis=0)[~after[1:] & ~ended[1:]] == 4).all(), "four frames a step"
    assert (frames[after] <= 1).all(), "a reset begins a game"
    assert (lives[ended] == 0).all()
    assert (lives[after] == 5).all()
    assert not ended[after].any()
    assert not np.array([reward for _, reward, *_ in steps])[after].any()


def test_lives_can_be_episodes_for_the_learner_while_the_game_goes_on() -> None:
    with_lives, whole = played(breakout(episodic_life=True), 2, 150), played(breakout(), 2, 150)
    lives = np.array([info["lives"] for *_, info in with_lives])
    lost = np.array([info[LIFE_LOST] for *_, info in with_lives])
    fewer = np.diff(np.vstack([np.full(2, 5), lives]), axis=0) < 0
    np.testing.assert_array_equal(lost, fewer)
    assert lost.sum() > 3
    assert LIFE_LOST not in whole[0][4]
    for one, other in zip(with_lives, whole, strict=True):
        for got, expected in zip(one[:4], other[:4], strict=True):
            np.testing.assert_array_equal(got, expected, err_msg="the game itself is the same")


def test_the_emulator_pays_raw_scores_whatever_the_learner_sees() -> None:
    freeway = {"repeat_action_probability": 0.0}
    for clipping in (True, False):
        config = EnvConfig.model_validate(
            {"id": "ALE/SpaceInvaders-v5", "kwargs": {**freeway, "reward_clipping": clipping}}
        )
        rewards = np.array([reward for _, reward, *_ in played(config, 2, 150)])
        assert set(np.unique(rewards)) > {0, 5}, "an invader of the lowest row is worth 5"


def test_an_action_that_does_not_exist_is_an_error_and_not_a_wait_forever() -> None:
    vector = vector_of(PONG)
    begun(vector, [0, 1])
    for actions in ([0, 6], [-1, 0]):
        with pytest.raises(ValueError, match="not all below 6"):
            stepped(vector, np.array(actions))
    game = make_single(PONG, source_dir=None)
    game.reset(seed=0)
    with pytest.raises(ValueError, match="6 is not an action"):
        game.step(6)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"life_loss_info": True}, r"life_loss_info cannot be set for ALE/Pong-v5; episodic_life: true"),
        ({"batch_size": 2, "autoreset_mode": "SameStep"}, "autoreset_mode, batch_size cannot be set"),
        ({"reward_clipping": 1}, "reward_clipping should be true or false, not 1"),
        ({"frameskip": 0}, "Invalid frameskip"),
        ({"frame_skip": 4}, "frame_skip"),
    ],
)
def test_settings_that_cannot_be_are_named(kwargs: dict[str, Any], message: str) -> None:
    config = EnvConfig(id="ALE/Pong-v5", kwargs=kwargs)
    for build in (lambda: vector_of(config), lambda: make_single(config, source_dir=None)):
        with pytest.raises(EnvironmentBuildError, match=message):
            build()


def test_what_the_vector_does_not_know_is_gymnasiums_plain_game_in_both_places() -> None:
    config = EnvConfig(id="ALE/Pong-v5", kwargs={"obs_type": "ram"})
    vector, single = vector_of(config), make_single(config, source_dir=None)
    assert vector.vectorization == "sync"
    assert spaces_of(vector)[0] == single.observation_space
    plain = EnvConfig(id="ALE/Pong-v5", vectorization="sync")
    assert make_single(plain, source_dir=None).observation_space.shape == (210, 160, 3)


def test_a_rendered_picture_is_the_newest_that_the_policy_sees_enlarged() -> None:
    game = make_single(PONG, source_dir=None, render_mode="rgb_array")
    observation, _ = game.reset(seed=3)
    for action in (2, 3, 2):
        observation, *_ = game.step(action)
        picture = cast("np.ndarray", game.render())
        assert picture.shape == (4 * 84, 4 * 84, 3)
        assert picture.dtype == np.uint8
        for colour in range(3):
            np.testing.assert_array_equal(picture[::4, 3::4, colour], observation[-1])
    game.close()


def test_closing_ends_the_emulators_threads_and_twice_does_no_harm() -> None:
    gc.collect()  # so that no emulator of an earlier test ends meanwhile
    other = vector_of(PONG)
    before = psutil.Process().num_threads()
    vector, game = vector_of(PONG), make_single(PONG, source_dir=None)
    assert psutil.Process().num_threads() > before
    for each in (vector, vector, game, game):
        each.close()
    assert psutil.Process().num_threads() == before
    assert begun(other, [1, 2]).shape == (2, 4, 84, 84), "another's threads go on"
