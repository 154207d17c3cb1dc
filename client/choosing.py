"""From an algorithm and an environment to a config: settings that are stored for both, or sensible ones."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from pydantic import JsonValue

from remuda.config.load import LoadedConfig, load_config, load_settings
from remuda.config.override import Override, apply_overrides
from remuda.config.stored import stored_config, stored_environments

Kind = Literal["images", "Box actions", "Discrete actions"]
"""What sensible settings depend on."""

_ATARI: Mapping[str, Mapping[str, JsonValue]] = {
    "policy": {
        "horizon_steps": 128,
        "epochs": 4,
        "minibatches": 4,
        "clip": 0.1,
        "entropy_coefficient": 0.01,
        "anneal_env_steps": 10_000_000,
    },
    "learner": {"learning_rate": 2.5e-4},
    "collector": {"count": 1},
    "stop": {"max_env_steps": 10_000_000},
}
"""Of PPO; as in examples/pong_ppo.yaml."""
_NORMALISED: Mapping[str, JsonValue] = {"normalize_observations": True, "normalize_rewards": True}
SENSIBLE: Mapping[tuple[str, Kind], Mapping[str, Mapping[str, JsonValue]]] = {
    ("ppo", "images"): _ATARI,
    ("impala", "images"): {
        "env": {"num_envs": 16},
        "policy": {"anneal_env_steps": 10_000_000},
        "learner": {"segments_per_update": 8},
        "collector": {"count": 1},
        "stop": {"max_env_steps": 10_000_000},
    },
    ("ppo", "Box actions"): {
        "policy": {"horizon_steps": 256, "minibatches": 32, **_NORMALISED},
    },
    ("ppo", "Discrete actions"): {
        "policy": {"horizon_steps": 128, **_NORMALISED},
        "learner": {"learning_rate": 5e-4},
    },
    ("dqn", "images"): {
        "policy": {"epsilon_end": 0.01, "target_update_iters": 2_000},
        "learner": {"batch_size": 32, "learning_rate": 1e-4, "publish_interval_iters": 100},
        "buffer": {"min_rows": 20_000},
        "stop": {"max_env_steps": 10_000_000},
    },
}
"""Settings for environments without stored ones, by algorithm and kind of environment. All others have the algorithm's
defaults (remuda.config.defaults), which know no environment."""


_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"""`module:function`, your own environment. An id with a module ends with a version: module:Name-v0."""


@dataclass(frozen=True)
class Choice:
    """A config, and where its settings are from."""

    loaded: LoadedConfig
    said: str
    """One line for people."""


def choose(
    algorithm: str, env_id: str, *, overrides: Sequence[Override] = (), seed: int | None = None, folder: Path
) -> Choice:
    """Choose settings for `algorithm` (a `policy.type`) in the environment `env_id`, an id or the `module:function` of
    `env.make`; `overrides` and `seed` beat them.

    Relative paths are meant from `folder`. Where nothing is stored the environment is built once, since sensible
    settings depend on its spaces. Raises ConfigError, and EnvironmentBuildError or UnsupportedSpaceError.
    """
    given = list(overrides) if seed is None else [*overrides, Override(("seed",), seed, f"--seed {seed}")]
    stored = stored_config(algorithm, env_id)
    if stored is not None:
        here = Override(("source_dir",), str(folder.resolve()), "--env")
        return Choice(
            load_config(stored, overrides=[here, *given]), f"{algorithm} on {env_id}: settings of {stored.name}"
        )
    settings: dict[str, JsonValue] = {
        "name": re.sub(r"[^A-Za-z0-9._-]+", "_", f"{algorithm}_{env_id}").lstrip("._-")[:100],
        "env": {**environment_of(env_id)},
        "policy": {"type": algorithm},
    }
    kind, in_parts = _kind(load_settings(settings, overrides=given, folder=folder))
    parts = SENSIBLE.get((algorithm, kind), {})
    for section, values in parts.items():
        taken = {key: value for key, value in values.items() if not (in_parts and key == "normalize_observations")}
        more = [Override((section, key), value, "--env") for key, value in taken.items()]
        settings = apply_overrides(settings, more)
    loaded = load_settings(cast("dict[str, object]", settings), overrides=given, folder=folder)
    which = f"those for {kind}" if parts else "the defaults"
    known = f"Stored for {algorithm}: {', '.join(stored_environments(algorithm)) or 'no environment'}"
    return Choice(loaded, f"{algorithm} on {env_id}: no settings are stored, so {which} are taken. {known}")


def environment_of(which: str) -> dict[str, JsonValue]:
    """The section `env` for an id, or for the `module:function` of the user's own."""
    return {"make" if _FUNCTION.fullmatch(which) else "id": which}


def _kind(loaded: LoadedConfig) -> tuple[Kind, bool]:
    """What kind of environment it is, and whether its observations have several parts, which cannot be normalised;
    builds one and closes it."""
    from remuda.environments.check import check_environment
    from remuda.policy.spaces import ActionSpec, ObservationSpec

    observation, action = check_environment(loaded.config)
    seen = ObservationSpec.of(observation)
    if seen.is_image:
        return "images", False
    return "Box actions" if ActionSpec.of(action).is_box else "Discrete actions", bool(seen.parts)
