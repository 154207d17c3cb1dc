"""Completes configs: settings for an algorithm and an environment, settings of a resumed run, and measured sizes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pydantic import JsonValue

from remuda.config.algorithms.base import Spaces
from remuda.config.algorithms.registry import BUILT_IN, PolicyConfig
from remuda.config.current import COLLECTORS, NUM_ENVS, SEGMENTS
from remuda.config.custom import ask_class, settings_class
from remuda.config.defaults import SECTIONS
from remuda.config.dump import former_settings, recorded
from remuda.config.errors import ConfigError, Loc, dotted, flat, has_value, value_at
from remuda.config.explain import all_keys, keys_of
from remuda.config.launching import LOCAL
from remuda.config.load import SETTINGS, LoadedConfig, Origin, load_config, load_settings
from remuda.config.readers import Override, apply_overrides
from remuda.config.schema import ExperimentConfig
from remuda.config.user_code import UserCodeError
from remuda.storage.existing_folder import OnExists
from remuda.storage.run_folder import RunFolder

if TYPE_CHECKING:
    from remuda.deploy.sizing import Measurement, SizeRequest
    from remuda.policy.spaces import ActionSpec, ObservationSpec
    from remuda.storage.bucket.shipping import Shipping


@dataclass(frozen=True)
class ResolvedRun:
    """The run to start; nothing was written to disk yet."""

    loaded: LoadedConfig
    run_dir: Path
    """Absolute."""
    on_exists: OnExists = "error"
    bucket: Shipping | None = None
    """The run's bucket, opened."""

    def shipped(self) -> AbstractContextManager[Shipping | None]:
        """Return a context, at whose end the bucket has all of the run."""
        return nullcontext() if self.bucket is None else self.bucket


_FILLED_IN = frozenset({"source_dir", "env.agents", "policy.declaration", "policies"})
"""Settings without a default, which Remuda fills in if a config omits them."""


def keep_former_defaults(loaded: LoadedConfig, run_dir: Path) -> LoadedConfig:
    """Return the config of a resumed run: a setting that was a default when the run began, and that is not given now,
    keeps its value. Raises ConfigError if such a value contradicts a given setting."""
    former = _former(run_dir)
    if former is None or not _same_algorithm(former.policy, loaded.config.policy):
        return loaded
    before: dict[str, JsonValue] = former.model_dump(mode="json")
    now: dict[str, JsonValue] = loaded.config.model_dump(mode="json")
    origins = _origins(run_dir)
    kept: dict[Loc, JsonValue] = {}
    for loc in _not_given(loaded, former, origins):
        if has_value(before, loc) and value_at(before, loc) != value_at(now, loc):
            kept[loc] = value_at(before, loc)
    if not kept:
        return loaded
    told = (f"{dotted(loc)} {json.dumps(value)} (now {json.dumps(value_at(now, loc))})" for loc, value in kept.items())
    settings = apply_overrides(now, [Override(loc, value, "config.json") for loc, value in kept.items()])
    config = load_settings(cast("Mapping[str, object]", settings), folder=loaded.path.parent).config
    as_recorded = {dotted(loc): origins.get(dotted(loc), "default") for loc in kept if loc[0] != "policies"}
    notes = (*loaded.notes, f"keeps the defaults from the start of the run: {', '.join(told)}")
    return replace(loaded, config=config, provenance={**loaded.provenance, **as_recorded}, notes=notes)


def _former(run_dir: Path) -> ExperimentConfig | None:
    try:
        return load_config(RunFolder(run_dir).config_json, import_algorithm=False).config
    except ConfigError:  # there is none, or resuming is refused later, with the reason
        return None


def _origins(run_dir: Path) -> Mapping[str, Origin]:
    try:
        return recorded(run_dir).provenance
    except ConfigError:  # then all settings count as defaults
        return {}


def _not_given(loaded: LoadedConfig, former: ExperimentConfig, origins: Mapping[str, Origin]) -> Iterator[Loc]:
    """Yield settings that are not given now and were defaults before. Origins of several policies are not recorded."""
    given = dict(loaded.given)
    for key, loc in keys_of(loaded.config).items():
        was_default = origins.get(key, "default") in ("algorithm", "default")
        if was_default and key not in _FILLED_IN | loaded.auto and not has_value(given, loc):
            yield loc
    for name, one in loaded.config.policies.items():
        if name not in former.policies or not _same_algorithm(former.policies[name].policy, one.policy):
            continue
        for key, loc in all_keys(one.policy.type).items():
            shared = loc[0] != "policy" or _same_algorithm(one.policy, loaded.config.policy)
            if loc[0] in SECTIONS and key not in _FILLED_IN and not (shared and has_value(given, loc)):
                here = ("policies", name, *loc)
                if not has_value(given, here):
                    yield here


def _same_algorithm(first: PolicyConfig, second: PolicyConfig) -> bool:
    return first.type == second.type


def with_former_settings(loaded: LoadedConfig, run_dir: Path) -> LoadedConfig:
    """Return the config of a resumed run: omitted settings and `auto` settings keep the values in config.json. Raises
    ConfigError."""
    loaded = keep_former_defaults(loaded, run_dir)
    if not loaded.auto:
        return loaded
    former = flat(former_settings(run_dir))
    numbers = {key: former[key] for key in _measured_keys(loaded) if key in former}
    kept = ", ".join(f"{key} {json.dumps(numbers[key])}" for key in sorted(loaded.auto & numbers.keys()))
    return with_numbers(loaded, numbers, [f"auto: {kept}, as when the run began"] if kept else [])


def size_request(loaded: LoadedConfig, *, serial: bool) -> SizeRequest | None:
    """Return the sizes to be measured for this config; None for a config with numbers only.

    Raises ConfigError if the processes of the run will not be on this machine.
    """
    if not loaded.auto:
        return None
    if not serial and loaded.config.launch.on != LOCAL:
        loaded.require_numbers(f"numbers are measured on this machine, and launch.on is {loaded.config.launch.on}")
    from remuda.deploy.sizes import SizingTask
    from remuda.deploy.sizing import SizeRequest
    from remuda.policy.row_plan import row_plan

    config, auto, plan = loaded.config, loaded.auto, row_plan(loaded.config)
    asked = SizingTask(
        collectors=None if COLLECTORS in auto else config.collector.count,
        num_envs=None if NUM_ENVS in auto else config.env.num_envs,
        least_collectors=config.collector.minimum,
        segments=plan.rows_per_update if plan.on_policy else None,
        serial=serial,
        takes_turns=plan.on_policy and config.buffer.max_policy_lag == 0,
        coupled=not config.learner.inference and (plan.on_policy or config.buffer.samples_per_insert is not None),
        in_processes=config.env.vectorization in ("auto", "async"),
    )
    return SizeRequest(config, asked, auto)


def with_measured_sizes(loaded: LoadedConfig, request: SizeRequest, answer: Measurement) -> LoadedConfig:
    """Return the config with the measured numbers, with lines for the run's log in `notes`.

    Raises ConfigError if the numbers contradict settings.
    """
    numbers: dict[str, JsonValue] = {**answer.numbers(request)}
    if numbers and SEGMENTS in _measured_keys(loaded):
        numbers[SEGMENTS] = request.asked.segments
    return with_numbers(loaded, numbers, answer.lines(request))


def with_numbers(loaded: LoadedConfig, numbers: Mapping[str, JsonValue], notes: Sequence[str]) -> LoadedConfig:
    """Return the config with these settings (dotted keys), and nothing left to measure. Raises ConfigError."""
    config = loaded.config
    for key, number in numbers.items():
        section, name = key.split(".")
        changed = getattr(config, section).model_copy(update={name: number})
        config = config.model_copy(update={section: changed})
    config = load_settings(config, folder=loaded.path.parent).config
    origin: Origin = "measured"
    provenance = {**loaded.provenance, **{key: origin for key in numbers if numbers[key] is not None}}
    return replace(loaded, config=config, provenance=provenance, auto=frozenset(), notes=(*loaded.notes, *notes))


def _measured_keys(loaded: LoadedConfig) -> frozenset[str]:
    """Return the settings to be measured: `auto` settings, and the segments per update if they depend on the former."""
    follows = loaded.config.learner.segments_per_update is None and {COLLECTORS, NUM_ENVS} & loaded.auto
    return loaded.auto | {SEGMENTS} if follows else loaded.auto


AUTO = "auto"
"""Stands for the algorithm that Remuda recommends for the spaces of an environment."""
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
    """Choose settings for an algorithm in an environment.

    Without a stored config the environment is built once, because sensible settings depend on its spaces.

    Args:
        algorithm: a `policy.type`, or AUTO.
        env_id: an id, or the `module:function` of `env.make`.
        overrides: replace chosen settings.
        seed: replaces the chosen seed.
        folder: beginning of relative paths.

    Raises ConfigError, and EnvironmentBuildError or UnsupportedSpaceError.
    """
    given = list(overrides) if seed is None else [*overrides, Override(("seed",), seed, f"--seed {seed}")]
    here = str(folder.resolve())
    if algorithm == AUTO:
        algorithm, why = _recommended(env_id, given, folder)
        choice = choose(algorithm, env_id, overrides=given, folder=folder)
        return replace(choice, summary=f"{why}. {choice.summary}")
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


def _recommended(env_id: str, given: Sequence[Override], folder: Path) -> tuple[str, str]:
    """Return the algorithm that Remuda recommends for the spaces of an environment, and the reason. Builds the
    environment once. Raises ConfigError and EnvironmentBuildError."""
    from remuda.environments.make import check_environment
    from remuda.policy.spaces import ActionSpec, ObservationSpec

    of_env = [override for override in given if override.loc[0] == "env"]
    settings = {"name": AUTO, "env": {**environment_of(env_id)}}
    observation, action = check_environment(load_settings(settings, overrides=of_env, folder=folder).config)
    actions = ActionSpec.of(action)
    kind = _kind(ObservationSpec.of(observation), actions)
    spaces = "Box actions without bounds" if kind == "Box actions" and not actions.is_bounded else kind
    algorithm = next(name for name, one in BUILT_IN.items() if spaces in one.settings.recommended_for)
    return algorithm, f"auto: {algorithm}, as recommended for {spaces}"


def environment_of(which: str) -> dict[str, JsonValue]:
    """The section `env` for an id, or for the `module:function` of the user's own."""
    return {"make" if _FUNCTION.fullmatch(which) else "id": which}


def _spaces(loaded: LoadedConfig) -> tuple[Spaces, bool]:
    """Build the environment once, and return the kind of its spaces, and True for observations of several parts."""
    from remuda.environments.make import check_environment
    from remuda.policy.spaces import ActionSpec, ObservationSpec

    observation, action = check_environment(loaded.config)
    seen = ObservationSpec.of(observation)
    return _kind(seen, ActionSpec.of(action)), bool(seen.parts)


def _kind(observation: ObservationSpec, action: ActionSpec) -> Spaces:
    if observation.is_image:
        return "images"
    return "Box actions" if action.is_box else "Discrete actions"
