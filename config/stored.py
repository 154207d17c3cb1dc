"""The examples, which come with the package: by their names, and by algorithm and environment.

The comment at the top of each file says what was shown of it.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import MappingProxyType

FOLDER = Path(__file__).resolve().parents[1] / "examples"

STORED = MappingProxyType(
    {
        ("dqn", "CartPole-v1"): "cartpole_dqn.yaml",
        ("dqn", "ALE/Pong-v5"): "pong_dqn.yaml",
        ("impala", "ALE/Pong-v5"): "pong_impala.yaml",
        ("impala", "CartPole-v1"): "cartpole_impala.yaml",
        ("muzero", "CartPole-v1"): "cartpole_gumbel_muzero.yaml",
        ("muzero", "ALE/Pong-v5"): "pong_muzero.yaml",
        ("ppo", "ALE/Pong-v5"): "pong_ppo.yaml",
        ("ppo", "Acrobot-v1"): "acrobot_ppo.yaml",
        ("ppo", "CartPole-v1"): "cartpole_ppo.yaml",
        ("ppo", "HalfCheetah-v5"): "half_cheetah_ppo.yaml",
        ("ppo", "Hopper-v5"): "hopper_ppo.yaml",
        ("ppo", "LunarLander-v3"): "lunar_lander_ppo.yaml",
        ("ppo", "LunarLanderContinuous-v3"): "lunar_lander_continuous_ppo.yaml",
        ("ppo", "MountainCarContinuous-v0"): "mountain_car_continuous_ppo.yaml",
        ("ppo", "Pendulum-v1"): "pendulum_ppo.yaml",
        ("ppo", "Walker2d-v5"): "walker2d_ppo.yaml",
        ("r2d2", "CartPole-v1"): "cartpole_r2d2.yaml",
        ("rainbow", "CartPole-v1"): "cartpole_rainbow.yaml",
        ("sac", "CartPole-v1"): "cartpole_sac.yaml",
        ("sac", "HalfCheetah-v5"): "half_cheetah_sac.yaml",
        ("sac", "Hopper-v5"): "hopper_sac.yaml",
        ("sac", "Pendulum-v1"): "pendulum_sac.yaml",
        ("sac", "Walker2d-v5"): "walker2d_sac.yaml",
        ("td3", "Pendulum-v1"): "pendulum_td3.yaml",
    }
)
"""The config in FOLDER for an algorithm (`policy.type`) and an environment (`env.id`). A new example gets a line here,
unless it is a variant of one that is there."""


def example_or_file(path: Path) -> Path:
    """Return the example that `path` names, as in `cartpole_dqn` or `examples/cartpole_dqn.yaml`.

    A file at `path` comes first. Where there is neither, `path` is returned as it is.
    """
    name = path.as_posix()
    if name.startswith("examples/"):
        name = name.removeprefix("examples/").removesuffix(".yaml")
    known = {file.relative_to(FOLDER).with_suffix("").as_posix(): file for file in FOLDER.rglob("*.yaml")}
    return path if name not in known or os.path.lexists(path) else known[name]


def stored_config(algorithm: str, env_id: str) -> Path | None:
    """The file for both; None if there is none."""
    name = STORED.get((algorithm, env_id))
    return None if name is None else FOLDER / name


def stored_environments(algorithm: str) -> list[str]:
    """The environments for which there are settings of this algorithm, sorted."""
    return sorted(env_id for of, env_id in STORED if of == algorithm)
