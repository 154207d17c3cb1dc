"""Atari games by ale-py's own vector environment, emulated, scaled and stacked in threads outside Python.

The emulator returns raw scores and plays whole games, so logged returns are the game's own. This module adds the
learner's view: clipped rewards, and lost lives as ends of episodes although the game continues (Mnih et al. 2015).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv

from remuda.config.environment import EnvConfig
from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.spaces import Array

NAMESPACE = "ALE/"
LIFE_LOST = "life_lost"
"""Key of a step's info, bool [num_envs]: for the learner an episode ended, although the game continues."""

_ENTRY_POINT = "ale_py.vector_env:AtariVectorEnv"
_ENLARGED = 4
"""Factor by which a rendered picture is larger than the policy's observation."""
_OURS_TO_SET = ("autoreset_mode", "batch_size", "game", "life_loss_info", "num_envs")


@dataclass(frozen=True)
class AtariSettings:
    """Settings of a game's emulation, and of the learner's view of the game."""

    emulator: dict[str, Any]
    """Keyword arguments of AtariVectorEnv, all but num_envs."""
    clips_rewards: bool
    episodic_life: bool


def register_atari(id: str) -> None:
    """Make ids of Atari games known to gymnasium. Raises EnvironmentBuildError if ale-py is not installed."""
    try:
        import ale_py  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise EnvironmentBuildError(
            f"env.id = {id!r} needs the Atari emulator: pip install 'remuda[atari]' ({error})"
        ) from error


def is_atari(spec: EnvSpec) -> bool:
    """Return True if ale-py's vector environment steps this id."""
    return spec.vector_entry_point == _ENTRY_POINT


def atari_settings(env: EnvConfig, spec: EnvSpec) -> AtariSettings:
    """Read env.kwargs. Raises EnvironmentBuildError for settings that users cannot set."""
    if taken := sorted(env.kwargs.keys() & set(_OURS_TO_SET)):
        hint = "; episodic_life: true ends episodes with each life" if "life_loss_info" in taken else ""
        raise EnvironmentBuildError(f"env.kwargs: {', '.join(taken)} cannot be set for {env.id}{hint}")
    emulator: dict[str, Any] = {**spec.kwargs, **env.kwargs}
    clips_rewards = _flag(emulator.pop("reward_clipping", True), "reward_clipping")
    episodic_life = _flag(emulator.pop("episodic_life", False), "episodic_life")
    if env.max_episode_steps is not None:
        emulator["max_num_frames_per_episode"] = env.max_episode_steps * int(emulator["frameskip"])
    emulator |= {"reward_clipping": False, "episodic_life": False, "life_loss_info": False}
    emulator["autoreset_mode"] = AutoresetMode.NEXT_STEP
    return AtariSettings(emulator, clips_rewards, episodic_life)


class AtariVector(VectorEnv[Array, Array, Array]):
    """A vector of one game: observations uint8 [num_envs, stack, height, width] and raw scores.

    Resets in the step after the end of a game (AutoresetMode.NEXT_STEP). Seed and actions determine the whole game.
    """

    def __init__(self, settings: AtariSettings, num_envs: int) -> None:
        """Raises the errors of ale-py."""
        self._ale: Any = _emulator(settings, num_envs)
        self.num_envs = num_envs
        self.clips_rewards = settings.clips_rewards
        """True if the learner sees rewards clipped to [-1, 1]."""
        self._episodic_life = settings.episodic_life
        self._lives: Array = np.zeros(num_envs, np.int32)
        self._actions = _number_of_actions(self._ale)
        self.metadata = dict(self._ale.metadata)
        self.single_observation_space = self._ale.single_observation_space
        self.single_action_space = self._ale.single_action_space
        self.observation_space = self._ale.observation_space
        self.action_space = self._ale.action_space

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begin a new game in every environment; a list has one seed per environment."""
        observations, info = self._ale.reset(seed=np.array(seed) if isinstance(seed, list) else seed)
        self._lives = info["lives"]
        return observations, info

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Take one step in every environment. `info` has `lives`, and with episodic_life also LIFE_LOST.

        Raises ValueError for an action out of range: ale-py would wait for its result without end.
        """
        if self._actions is not None and not ((actions >= 0) & (actions < self._actions)).all():
            raise ValueError(f"the actions {actions} are not all below {self._actions}")
        observations, reward, terminated, truncated, info = self._ale.step(actions)
        if self._episodic_life:
            info[LIFE_LOST] = info["lives"] < self._lives
            self._lives = info["lives"]
        return observations, reward, terminated, truncated, info

    def close_extras(self, **kwargs: Any) -> None:
        """End the emulator's threads."""
        self._ale = None


class AtariGame(gymnasium.Env[Array, Any]):
    """One game for evaluations: the same observations as AtariVector's, whole games, raw scores.

    `render` gives the newest frame of the policy's observation, enlarged.
    """

    def __init__(self, settings: AtariSettings, *, render_mode: str | None = None) -> None:
        """`render_mode` is rgb_array or None. Raises the errors of ale-py."""
        self._settings = settings
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # 60 Hz, 4 frames per step
        self.render_mode = render_mode
        self._ale: Any = _emulator(settings, 1)
        self._seen: Array | None = None
        self.observation_space = self._ale.single_observation_space
        self.action_space = self._ale.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begin a new game."""
        super().reset(seed=seed)
        observations, info = self._ale.reset(seed=seed)
        self._seen = observations[0]
        return observations[0], _first(info)

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Take one step."""
        if not self.action_space.contains(action):
            raise ValueError(f"{action!r} is not an action of {self.action_space}")
        observations, reward, terminated, truncated, info = self._ale.step(np.array([action]))
        self._seen = observations[0]
        return observations[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), _first(info)

    def render(self) -> Array | None:
        """The picture, uint8 [height, width, 3]; None without a render_mode, or before the first reset."""
        if self.render_mode is None or self._seen is None:
            return None
        newest = self._seen[-1]  # of the stack
        picture = newest if newest.ndim == 3 else np.repeat(newest[:, :, None], 3, axis=2)
        return picture.repeat(_ENLARGED, axis=0).repeat(_ENLARGED, axis=1)

    def close(self) -> None:
        """End the emulator's thread."""
        self._ale = None

    def __reduce__(self) -> tuple[Callable[..., AtariGame], tuple[AtariSettings]]:
        """Pickle the settings only: a copy is a new environment without the state of the emulator."""
        return AtariGame, (self._settings,)


def _emulator(settings: AtariSettings, num_envs: int) -> Any:
    from ale_py.vector_env import AtariVectorEnv

    create = cast("Callable[..., Any]", AtariVectorEnv)
    return create(num_envs=num_envs, **settings.emulator)


def _number_of_actions(emulator: Any) -> int | None:
    space = emulator.single_action_space
    return int(cast(Any, space).n) if isinstance(space, gymnasium.spaces.Discrete) else None


def _first(info: dict[str, Array]) -> dict[str, Any]:
    return {name: values[0] for name, values in info.items()}


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise EnvironmentBuildError(f"env.kwargs: {name} should be true or false, not {value!r}")
    return value
