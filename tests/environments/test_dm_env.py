"""Functions may return environments of dm_env, the interface of bsuite's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from remuda.config.environment import EnvConfig
from remuda.environments.dm_env import DmEnv
from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.make import make_plain, make_single
from remuda.environments.spaces import PackedSpace, unpacked

HERE = "remuda.tests.environments.test_dm_env"


def spec(shape: tuple[int, ...], dtype: type, **bounds: Any) -> SimpleNamespace:
    return SimpleNamespace(shape=shape, dtype=np.dtype(dtype), **bounds)


class Dice:
    """Three throws, drawn as in bsuite from a stream within a wrapper; the end is terminal unless told otherwise."""

    def __init__(self, discount: float, seen: object, acts: object) -> None:
        self._inner = SimpleNamespace(rng=np.random.RandomState(), generator=np.random.default_rng())
        self._discount, self._seen, self._acts = discount, seen, acts
        self.throws = 0

    def observation_spec(self) -> object:
        return self._seen

    def action_spec(self) -> object:
        return self._acts

    def reset(self) -> SimpleNamespace:
        self.throws = 0
        return self._timestep(None)

    def step(self, action: Any) -> SimpleNamespace:
        self.throws += 1
        return self._timestep(float(np.sum(action)))

    def _timestep(self, reward: float | None) -> SimpleNamespace:
        last = self.throws == 3
        throw = {
            "dice": np.float32(self._inner.rng.rand()),
            "more": [self._inner.generator.random(2), self.throws == 0],
        }
        discount = self._discount if last else 1.0
        return SimpleNamespace(reward=reward, discount=discount, observation=throw, last=lambda: last)


def dice(discount: float = 0.0) -> Dice:
    seen = {"dice": spec((), np.float32), "more": [spec((2,), np.float64, minimum=0, maximum=1), spec((), np.bool_)]}
    return Dice(discount, seen, spec((), np.int32, num_values=6))


def written() -> Dice:
    return Dice(0.0, spec((), np.str_), spec((2,), np.float32, minimum=-1, maximum=[1, 2]))


def test_specs_become_spaces_and_discounts_ends() -> None:
    for discount, end in ((0.0, (True, False)), (0.9, (False, True))):
        env = make_plain(EnvConfig(make=f"{HERE}:dice", kwargs={"discount": discount}), source_dir=None)
        flag: spaces.Space[Any] = spaces.Box(0, 1, (1,), cast("Any", np.bool_))
        parts = {
            "dice": spaces.Box(-np.inf, np.inf, (1,), np.float32),
            "more": spaces.Tuple((spaces.Box(0, 1, (2,), np.float64), flag)),
        }
        assert env.observation_space == spaces.Dict(parts)
        assert env.action_space == spaces.Discrete(6)
        assert env.observation_space.contains(env.reset(seed=0)[0])
        steps = [env.step(action)[1:4] for action in (5, 0, 1)]
        assert steps == [(5.0, False, False), (0.0, False, False), (1.0, *end)]
    assert DmEnv(Dice(0.0, {}, written().action_spec())).action_space == spaces.Box(
        np.float32(-1), np.array([1, 2], np.float32), (2,)
    )


@pytest.mark.filterwarnings("ignore:.*infinity")  # numbers without bounds, as most of bsuite's
def test_seeds_reach_every_stream_of_the_environment() -> None:
    check_env(make_plain(EnvConfig(make=f"{HERE}:dice"), source_dir=None), skip_render_check=True)
    env = make_single(EnvConfig(make=f"{HERE}:dice"), source_dir=None)
    assert isinstance(env.observation_space, PackedSpace)
    one, other, again = (env.reset(seed=seed)[0] for seed in (1, 2, 1))
    np.testing.assert_array_equal(one, again)
    first, second = (unpacked(env.observation_space, row[None]) for row in (one, other))
    assert all(not np.array_equal(first[name], second[name]) for name in ("dice", "more.0"))


def test_texts_are_refused_by_name() -> None:
    with pytest.raises(EnvironmentBuildError, match=r"networks read numbers"):
        make_single(EnvConfig(make=f"{HERE}:written"), source_dir=None)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", ["bandit_noise", "cartpole_swingup", "catch", "deep_sea", "memory_len"])
def test_bsuites_environments_pass_gymnasiums_checker(family: str) -> None:
    pytest.importorskip("bsuite", reason="needs pip install 'remuda[suites]'")
    config = EnvConfig(make="bsuite:load_from_id", kwargs={"bsuite_id": f"{family}/0"})
    check_env(make_single(config, source_dir=None), skip_render_check=True)
