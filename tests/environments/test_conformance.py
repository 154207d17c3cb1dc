"""The conformance tests of gymnasium and PettingZoo, of our wrappers and examples."""

# gymnasium's spaces are generic without bounds, and overridden here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from importlib import import_module
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from remuda.config.environment import EnvConfig
from remuda.environments.make import make_single
from remuda.environments.wrappers import MasksToInfos
from remuda.examples.speaker_listener import SpeakerListener

HERE = "remuda.tests.environments.test_conformance"
TREE = "remuda.examples"


class Everything(gymnasium.Env[Any, Any]):
    """Observes parts and a mask, and takes actions of parts: each is the business of another wrapper."""

    observation_space = spaces.Dict(
        {
            "place": spaces.Box(-1.0, 1.0, (2,), np.float32),
            "level": spaces.Discrete(3),
            "action_mask": spaces.MultiBinary(5),
        }
    )
    action_space = spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3)))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self._steps += 1
        return self._seen(), float(sum(action)), self._steps >= 5, False, {}

    def _seen(self) -> dict[str, Any]:
        place = self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        return {"place": place, "level": self.np_random.integers(3), "action_mask": np.ones(5, np.int8)}


@pytest.mark.filterwarnings("ignore:.*different from the unwrapped version")
@pytest.mark.parametrize(
    "env",
    [
        EnvConfig(make=f"{HERE}:Everything"),
        EnvConfig(id="ALE/Pong-v5"),
        EnvConfig(make=f"{TREE}.corridor:Corridor"),
        EnvConfig(make=f"{TREE}.t_maze:TMaze"),
    ],
    ids=lambda env: env.id or env.make,
)
def test_gymnasiums_checker_finds_nothing(env: EnvConfig) -> None:
    check_env(make_single(env, source_dir=None), skip_render_check=True)


class Hiding(SpeakerListener):
    """Observes a mask, too."""

    def __init__(self) -> None:
        super().__init__()
        seen = spaces.Dict({"observation": self._seen_by["speaker"], "action_mask": spaces.MultiBinary(3)})
        self._all_seen = dict.fromkeys(self.possible_agents, seen)

    def observation_space(self, agent: str) -> Any:
        return self._all_seen[agent]

    def _seen(self) -> dict[str, Any]:
        return {agent: {"observation": one, "action_mask": np.ones(3)} for agent, one in super()._seen().items()}


def hiding() -> Any:
    game: Any = Hiding()
    return MasksToInfos(game)


@pytest.mark.parametrize("build", [SpeakerListener, hiding], ids=["an example", "masks in infos"])
def test_pettingzoos_tests_of_interface_and_seeds_pass(
    build: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tests = pytest.importorskip("pettingzoo.test", reason="needs pip install 'remuda[pettingzoo]'")
    monkeypatch.setattr(SpeakerListener, "unwrapped", None, raising=False)  # of the package's own base class
    tests.parallel_api_test(build(), num_cycles=100)
    assert "Passed Parallel API test" in capsys.readouterr().out
    import_module("pettingzoo.test.seed_test").parallel_seed_test(build, num_cycles=20)
