"""Chooses a config for an algorithm and an environment: a stored config, or sensible settings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from remuda.config.algorithms.base import Spaces
from remuda.config.custom import ask_class, settings_class
from remuda.config.errors import ConfigError
from remuda.config.load import SETTINGS, LoadedConfig, load_config, load_settings
from remuda.config.readers import Override, apply_overrides
from remuda.config.user_code import UserCodeError

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"""`module:function`, your own environment. An id with a module ends with a version: module:Name-v0."""


@dataclass(frozen=True)
class Choice:
    """A config with the origin of its settings."""

    loaded: LoadedConfig
    summary: str
    """A line for people about the origin."""


def choose(
    algorithm: str, env_id: str, *, overrides: Sequence[Override] = (), seed: int | None = None, folder: Path
) -> Choice:
    """Choose settings for `algorithm` (a `policy.type`) in the environment `env_id`, an id or the `module:function` of
    `env.make`; `overrides` and `seed` replace chosen settings.

    Relative paths begin at `folder`. Without a stored config the environment is built once, because sensible settings
    depend on its spaces. Raises ConfigError, and EnvironmentBuildError or UnsupportedSpaceError.
    """
    given = list(overrides) if seed is None else [*overrides, Override(("seed",), seed, f"--seed {seed}")]
    here = str(folder.resolve())
    try:
        kind = settings_class(algorithm, source_dir=here)
    except UserCodeError as error:
        raise ConfigError([f"{SETTINGS}: {error}"]) from error
    stored = kind.stored_configs.get(env_id)
    if stored is not None:
        its = [Override(("source_dir",), here, "--env"), Override(("policy", "type"), algorithm, "--env")]
        return Choice(
            load_config(stored, overrides=[*its, *given]), f"{algorithm} on {env_id}: settings of {Path(stored).name}"
        )
    settings: dict[str, JsonValue] = {
        "name": re.sub(r"[^A-Za-z0-9._-]+", "_", f"{algorithm}_{env_id}").lstrip("._-")[:100],
        "env": {**environment_of(env_id)},
        "policy": {"type": algorithm},
    }
    spaces, in_parts = _spaces(load_settings(settings, overrides=given, folder=folder))
    sensible = ask_class(algorithm, kind.settings_for, spaces, in_parts=in_parts)
    more = [Override(tuple(key.split(".")), value, "--env") for key, value in sensible.items()]
    settings = apply_overrides(settings, more)
    loaded = load_settings(cast("dict[str, object]", settings), overrides=given, folder=folder)
    which = f"those for {spaces}" if sensible else "the defaults"
    known = f"Stored for {algorithm}: {', '.join(sorted(kind.stored_configs)) or 'no environment'}"
    return Choice(loaded, f"{algorithm} on {env_id}: no settings are stored, so {which} are taken. {known}")


def environment_of(which: str) -> dict[str, JsonValue]:
    """The section `env` for an id, or for the `module:function` of the user's own."""
    return {"make" if _FUNCTION.fullmatch(which) else "id": which}


def _spaces(loaded: LoadedConfig) -> tuple[Spaces, bool]:
    """Build the environment once, and return the kind of its spaces, and True for observations of several parts."""
    from remuda.environments.check import check_environment
    from remuda.policy.spaces import ActionSpec, ObservationSpec

    observation, action = check_environment(loaded.config)
    seen = ObservationSpec.of(observation)
    if seen.is_image:
        return "images", False
    return "Box actions" if ActionSpec.of(action).is_box else "Discrete actions", bool(seen.parts)
