"""`env.vectorization: envpool`: a pool is a vector like the others, and refuses what it cannot do when it is built."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from remuda.config.environment import EnvConfig
from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.lanes import Copies
from remuda.environments.vectors import auto_takes_pool
from remuda.tests.environments.stepping import begun, copies_of, spaces_of, stepped


def config(**settings: Any) -> EnvConfig:
    return EnvConfig.model_validate({"id": "CartPole-v1", "vectorization": "envpool"} | settings)


def built(env: EnvConfig, num_envs: int = 4) -> Copies:
    return copies_of(env, num_envs=num_envs, source_dir=None)


@pytest.fixture
def pool() -> Iterator[Copies]:
    pytest.importorskip("envpool", reason="pip install 'remuda[envpool]'")
    vector = built(config())
    yield vector
    vector.close()


def test_an_episode_is_followed_by_its_reset(pool: Copies) -> None:
    """Who always pushes to the right falls after some ten steps; the next step resets, and brings nothing."""
    begun(pool, [3, 4, 5, 6])
    over, length = np.zeros(4, np.bool_), np.zeros(4, np.int64)
    for _ in range(60):
        observations, reward, terminated, truncated, _ = stepped(pool, np.ones(4, np.int64))
        np.testing.assert_array_equal(reward, np.where(over, 0.0, 1.0))
        assert np.abs(observations[over]).max(initial=0.0) <= 0.05, "the first observation of an episode"
        assert not truncated.any()
        length = np.where(over, 0, length + 1)
        over = terminated
        assert (length[over] < 15).all()
    assert pool.vectorization == "envpool"
    assert spaces_of(pool)[0].dtype == np.float32


def test_the_same_seed_gives_the_same_numbers(pool: Copies) -> None:
    first, again = begun(pool, [3, 4, 5, 6]).copy(), begun(pool, [3, 4, 5, 6]).copy()
    np.testing.assert_array_equal(first, again)
    assert len(np.unique(first[:, 0])) == 4, "each environment has a beginning of its own"
    assert not np.array_equal(first, begun(pool, [9, 4, 5, 6]))
    assert not np.array_equal(first, begun(pool, None))


def test_the_limit_of_steps_truncates() -> None:
    pytest.importorskip("envpool")
    vector = built(config(max_episode_steps=5))
    begun(vector, [1, 2, 3, 4])
    outcomes = [stepped(vector, np.zeros(4, np.int64))[3].all() for _ in range(5)]
    vector.close()
    assert outcomes == [False, False, False, False, True]


class Stub:
    """Stands for the package: it knows one id, and its environments have three actions."""

    def list_all_envs(self) -> list[str]:
        return ["CartPole-v1", "CartPole-v0"]

    def make(self, id: str, **settings: Any) -> Any:
        import gymnasium

        if "wings" in settings:
            raise TypeError("no wings")
        env: Any = gymnasium.make("CartPole-v1")
        env.action_space = gymnasium.spaces.Discrete(3)
        return env


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"id": "CartPole-v1"}, "has actions Discrete(3), and gymnasium's, which evaluations play, Discrete(2)"),
        ({"id": "Acrobot-v1"}, "envpool does not know Acrobot-v1"),
        ({"id": None, "make": "remuda.tests.environments.masked:make"}, "env.make returns single environments"),
    ],
)
def test_what_a_pool_lacks_is_said_early(settings: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", Stub())
    with pytest.raises(EnvironmentBuildError) as caught:
        built(config(**settings))
    assert said in str(caught.value)


class Same(Stub):
    """It has Acrobot as gymnasium has it."""

    def list_all_envs(self) -> list[str]:
        return ["Acrobot-v1"]

    def make(self, id: str, **settings: Any) -> Any:
        import gymnasium

        return gymnasium.make(id)


def auto(num_envs: int, **settings: Any) -> tuple[str, list[str]]:
    said: list[str] = []
    env = config(id="Acrobot-v1", vectorization="auto", **settings)
    vector = copies_of(env, num_envs=num_envs, source_dir=None, sharers=10_000, chosen=said.append)
    way = vector.vectorization
    vector.close()
    return way, said


def test_auto_takes_a_pool_where_it_is_installed_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", Same())
    assert auto(4) == ("envpool", ["environments: envpool, 1 thread, which is installed and knows Acrobot-v1"])
    assert auto(3)[0] == "sync", "too few to gain by it"
    assert auto(4, kwargs={"render_mode": None})[0] == "sync", "its settings may mean something else"
    assert auto(4, episode_info=["height"])[0] == "sync", "it may not tell that"


@pytest.mark.parametrize("package", [None, Stub()], ids=["not installed", "does not know it"])
def test_auto_does_without(package: Stub | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", package)
    assert auto(4) == ("sync", ["environments: sync, objects in one process"])


def test_auto_keeps_to_what_gymnasium_has_and_to_native_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert auto_takes_pool(config(id="Pendulum-v1"), 8)
    assert not auto_takes_pool(config(id="FrozenLake-v1"), 8), "of toy texts info may have masks"
    assert not auto_takes_pool(config(id=None, make="remuda.tests.environments.masked:make"), 8)
    monkeypatch.setitem(sys.modules, "envpool", Stub())
    vector = built(config(vectorization="auto"))
    vector.close()
    assert vector.vectorization == "native", "of CartPole, which it would know"


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(EnvironmentBuildError, match=r"pip install 'remuda\[envpool\]'"):
        built(config())
