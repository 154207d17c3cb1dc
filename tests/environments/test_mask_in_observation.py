"""What is promised of masks in observations: they are as good as those in `info`, and no network reads them."""

# gymnasium's spaces are generic without bounds, and overridden here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from remuda.config.environment import EnvConfig
from remuda.environments.copies import make_copies
from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.make import make_single
from remuda.environments.spaces import Array, packs
from remuda.environments.wrappers import observes_mask
from remuda.tests.environments.leaving import Leaving
from remuda.tests.environments.masked import ACTIONS, Choosy

MODULE = "remuda.tests.environments.test_mask_in_observation"


class Observed(Choosy):
    """Choosy as PettingZoo would have it."""

    observation_space = spaces.Dict(  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
        {"observation": Choosy.observation_space, "action_mask": spaces.Box(0, 1, (ACTIONS,), np.int8)}
    )

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        seen, _ = super().reset(**how)
        return self._observed(seen), {"other": 1}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, reward, terminated, truncated, _ = super().step(action)
        return self._observed(seen), reward, terminated, truncated, {"other": 2}

    def _observed(self, seen: Array) -> dict[str, Any]:
        return {"observation": seen, "action_mask": self._legal.astype(np.int8)}


class WithMore(Observed):
    """With another part, besides."""

    observation_space = spaces.Dict(  # pyright: ignore[reportAssignmentType]
        {**Observed.observation_space.spaces, "level": spaces.Discrete(3)}
    )

    def _observed(self, seen: Array) -> dict[str, Any]:
        return super()._observed(seen) | {"level": 1}


class Misshapen(Observed):
    """Its mask is of something else."""

    observation_space = spaces.Dict(  # pyright: ignore[reportAssignmentType]
        {"observation": Choosy.observation_space, "action_mask": spaces.MultiBinary(ACTIONS + 1)}
    )


def built(name: str) -> Any:
    return make_single(EnvConfig(make=f"{MODULE}:{name}"), source_dir=None)


def test_the_mask_goes_into_info_and_the_only_other_part_is_the_observation() -> None:
    env, plain = built("Observed"), Choosy()
    assert env.observation_space == Choosy.observation_space
    seen, info = env.reset(seed=5)
    expected, said = plain.reset(seed=5)
    np.testing.assert_array_equal(seen, expected)
    np.testing.assert_array_equal(info["action_mask"], said["action_mask"])
    assert info["other"] == 1
    action = plain.action_space.start + info["action_mask"].argmax()
    seen, reward, terminated, truncated, info = env.step(action)
    expected, *others, said = plain.step(action)
    np.testing.assert_array_equal(seen, expected)
    assert [reward, terminated, truncated] == others
    np.testing.assert_array_equal(info["action_mask"], said.get("action_mask", np.ones(ACTIONS)))
    assert info["other"] == 2


def test_of_several_other_parts_each_is_read() -> None:
    env = built("WithMore")
    assert packs(env.observation_space)
    assert {part.name for part in env.observation_space.parts} == {"observation", "level"}
    seen, info = env.reset(seed=5)
    assert seen in env.observation_space
    assert info["action_mask"].shape == (ACTIONS,)


def test_a_mask_that_does_not_fit_the_actions_is_refused_by_name() -> None:
    with pytest.raises(EnvironmentBuildError, match="the part 'action_mask' of the observation is MultiBinary"):
        built("Misshapen")


def test_without_counted_actions_it_is_a_part_like_any_other() -> None:
    assert not observes_mask(Observed.observation_space, spaces.Box(0, 1, (ACTIONS,)))
    assert not observes_mask(Choosy.observation_space, Choosy.action_space)
    assert observes_mask(Observed.observation_space, Choosy.action_space)


class Masked(Leaving):
    """Each agent observes a mask: action 1 is illegal for a0, action 2 for a1 in every other step."""

    def __init__(self, mask: str = "fits") -> None:
        super().__init__([2, 4], late=1)
        self._actions = 3 if mask == "fits" else 4

    def observation_space(self, agent: str) -> Any:
        mask = spaces.MultiBinary(self._actions)
        return spaces.Dict({"observation": super().observation_space(agent), "action_mask": mask})

    def _seen(self, agent: str) -> Any:
        seen = super()._seen(agent)
        illegal = 1 if agent == "a0" else 2
        mask = [index != illegal or seen[1] % 2 == 1 for index in range(3)]
        return {"observation": seen, "action_mask": np.array(mask, np.int8)}


def test_each_of_several_agents_may_observe_a_mask() -> None:
    """a1 comes after the first step: until then all is legal for it, so that its policy keeps masks from the first."""
    config = EnvConfig(kind="pettingzoo", make=f"{MODULE}:Masked")
    vector = make_copies(config, {"": ["a0", "a1"]}, num_envs=1, source_dir=None, broke=print)
    (lanes,) = vector.lanes
    assert lanes.group.observation == spaces.Box(-1.0, 1e6, (3,), np.float32)

    def legal() -> Any:
        found = lanes.legal((3,))
        assert found is not None
        return found.tolist()

    vector.reset([0])
    assert legal() == [[True, False, True], [True, True, True]]
    vector.step([np.zeros(2, np.int64)])
    assert legal() == [[True, True, True], [True, True, True]]
    assert lanes.observations.tolist() == [[0, 1, 0], [1, 1, 0]]
    assert isinstance(lanes.info, list)
    assert lanes.info[0]["speed"] == 2.0, "what else it says stays"
    vector.step([np.zeros(2, np.int64)])
    assert legal()[1] == [True, True, False]
    assert lanes.over.tolist() == [True, False]
