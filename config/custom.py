"""Finds the classes of algorithms, sinks and callbacks named by a config, and asks algorithms for their declarations.

Imports user code, when a config is loaded and in workers; never in a coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import ParamSpec, Protocol, TypeVar, cast

from pydantic import JsonValue, ValidationError
from pydantic_core import ErrorDetails

from remuda.config.algorithms.base import AlgorithmConfig, BuiltInConfig
from remuda.config.algorithms.registry import BUILT_IN, CustomConfig
from remuda.config.declaration import Declaration
from remuda.config.defaults import SECTIONS, filled, of_each_policy, wrong_default
from remuda.config.errors import ConfigError, Loc, NoExit, dotted
from remuda.config.learning import BUILT_IN_OPTIMIZERS, LearnerConfig, own_optimizer
from remuda.config.schema import ExperimentConfig
from remuda.config.section import Section, schedules_of
from remuda.config.user_code import UserCodeError, offered, require_arguments, user_object
from remuda.config.workers import BUILT_IN_SINKS

GROUP = "remuda.algorithms"
"""Entry point group of algorithms in installed packages."""
SINK_GROUP = "remuda.sinks"
TYPE, SINKS = "policy.type", "log.sinks"
Params = ParamSpec("Params")
Answer = TypeVar("Answer")


class Declares(Protocol):
    """The part of remuda.policy.entry.AlgorithmEntry that loading a config needs."""

    settings: type[AlgorithmConfig]

    def declaration(self, config: ExperimentConfig, settings: AlgorithmConfig) -> Declaration:
        """Return the declaration of the algorithm under these settings."""
        ...


class CustomSettingsError(ValueError):
    """The settings of a custom algorithm are wrong."""

    def __init__(self, details: list[ErrorDetails], kind: type[AlgorithmConfig]) -> None:
        """`details` are pydantic's errors, located in the config; `kind` is the class of the settings."""
        super().__init__("; ".join(f"{dotted(one['loc'])}: {one['msg']}" for one in details))
        self.details = details
        self.kind = kind

    def inside(self, place: Loc) -> CustomSettingsError:
        """The same of a policy inside the section at `place`."""
        return CustomSettingsError(_inside(place, self.details), self.kind)


def find_entry(name: str, *, source_dir: str | None) -> object:
    """Instantiate the class named by `policy.type`, for built-in and custom algorithms. Raises UserCodeError."""
    reference = name
    if name in BUILT_IN:
        reference, source_dir = BUILT_IN[name].entry, None
    elif ":" not in name:
        names = offered(GROUP)
        if name not in names:
            raise UserCodeError(TYPE, _unknown(TYPE, name, [*BUILT_IN, *names]))
        reference = names[name]
    found = user_object(reference, setting=TYPE, source_dir=source_dir, kind="class")
    try:
        with NoExit():
            return cast("type[object]", found)()
    except Exception as error:  # whatever the user's class raises
        raise UserCodeError(TYPE, f"policy.type = {name!r}: {reference} cannot be made: {_raised(error)}") from error


def settings_class(name: str, *, source_dir: str | None) -> type[AlgorithmConfig]:
    """Return the settings class of the algorithm named by `policy.type`. Raises UserCodeError."""
    return BUILT_IN[name].settings if name in BUILT_IN else _class_of(find_entry(name, source_dir=source_dir), name)


def settings_of(config: ExperimentConfig) -> AlgorithmConfig:
    """Return the settings of a config's algorithm, validated by class. Raises UserCodeError, CustomSettingsError."""
    policy = config.policy
    if not isinstance(policy, CustomConfig):
        return policy
    return parsed(find_entry(policy.type, source_dir=config.source_dir), policy)


def ask_class(name: str, question: Callable[Params, Answer], *args: Params.args, **kwargs: Params.kwargs) -> Answer:
    """Call a method of a settings class. Raises ConfigError if the method fails."""
    try:
        with NoExit():
            return question(*args, **kwargs)
    except Exception as error:  # whatever the user's class raises
        raise ConfigError([f"{TYPE} = {name!r}: {question.__qualname__} failed: {_raised(error)}"]) from error


def completed(config: ExperimentConfig) -> ExperimentConfig:
    """Fill in the settings, declarations and defaults of custom algorithms.

    Returns all remaining configs unchanged. Raises UserCodeError, CustomSettingsError, and ValidationError if the
    declaration does not fit the config.
    """
    config = _completed(config, shared=True)
    completed_ones = {name: _completed_one(config, name) for name in config.policies}
    filled = {
        name: config.policies[name].model_copy(update={section: getattr(one, section) for section in SECTIONS})
        for name, one in completed_ones.items()
        if _is_custom(one)
    }
    if not filled:
        return config
    return ExperimentConfig.model_validate({**dict(config), "policies": {**config.policies, **filled}})


def _completed_one(config: ExperimentConfig, name: str) -> ExperimentConfig:
    """Complete the settings of one of several policies. Errors name the policy."""
    try:
        return _completed(config.of_policy(name), shared=False)
    except CustomSettingsError as error:
        raise error.inside(("policies", name)) from error
    except UserCodeError as error:
        raise error.inside(f"policies.{name}") from error
    except ValidationError as error:  # the declaration does not fit the rest
        told = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise UserCodeError(f"policies.{name}", f"policies.{name}: {told}") from error


def _is_custom(config: ExperimentConfig) -> bool:
    policy = config.policy
    return isinstance(policy, CustomConfig)


def _completed(config: ExperimentConfig, *, shared: bool) -> ExperimentConfig:
    policy = config.policy
    if not isinstance(policy, CustomConfig):
        return config
    entry = find_entry(policy.type, source_dir=config.source_dir)
    settings = parsed(entry, policy)
    config = _with_defaults(config, policy.type, type(settings), shared=shared)
    declaration = declared(cast("Declares", entry), config, settings)
    values = _as_values(settings, policy.type) | {"type": policy.type, "declaration": declaration}
    return ExperimentConfig.model_validate({**dict(config), "policy": CustomConfig.model_validate(values)})


_TYPES = "settings are numbers, text, booleans, and lists and dicts of these: name anything else by a text"


def _as_values(settings: AlgorithmConfig, name: str) -> dict[str, object]:
    try:
        return settings.model_dump(mode="json")
    except Exception as error:  # pydantic, of a value that JSON does not have, and whatever the user's class raises
        what = f"policy.type = {name!r}: {type(settings).__name__} cannot be written to config.json ({_TYPES})"
        raise UserCodeError(TYPE, f"{what}: {_raised(error)}") from error


def _with_defaults(
    config: ExperimentConfig, name: str, kind: type[AlgorithmConfig], *, shared: bool
) -> ExperimentConfig:
    """Return the config with the defaults of a class for omitted settings; for sections of all policies only if
    `shared`."""
    sections = {section: type(inside) for section, inside in config if isinstance(inside, Section)}
    del sections["policy"]
    if wrong := wrong_default(kind, sections):
        raise UserCodeError(TYPE, f"policy.type = {name!r}: {kind.__name__}.defaults: {wrong}")
    defaults = kind.defaults if shared else of_each_policy(kind.defaults)
    given: dict[str, object] = {}
    for section in {key.partition(".")[0] for key in defaults}:
        inside = cast("Section", getattr(config, section))
        planned = schedules_of(inside)
        given[section] = {name: planned.get(name, getattr(inside, name)) for name in inside.model_fields_set}
    return ExperimentConfig.model_validate({**dict(config), **filled(given, defaults)}) if given else config


def sink_reference(name: str) -> str:
    """Return the `module:Class` of a sink that is not built in. Raises UserCodeError."""
    if ":" in name:
        return name
    names = offered(SINK_GROUP)
    if name not in names:
        raise UserCodeError(SINKS, _unknown(SINKS, name, [*BUILT_IN_SINKS, *names]))
    return names[name]


def require_code(config: ExperimentConfig) -> None:
    """Import the user code named by algorithms and learners, and the classes of callbacks and custom sinks, as a check.
    Raises UserCodeError."""
    require_own_optimizer(config.learner, source_dir=config.source_dir)
    for name, each in config.policies.items():
        try:
            require_own_optimizer(each.learner, source_dir=config.source_dir)
        except UserCodeError as error:
            raise error.inside(f"policies.{name}") from error
    for setting, reference in config.user_code.items():
        found = user_object(reference, setting=setting, source_dir=config.source_dir)
        require_arguments(found, _arguments(config, setting), setting=f"{setting}_kwargs", reference=reference)
    for name in config.log.sinks:
        if name not in BUILT_IN_SINKS:
            user_object(sink_reference(name), setting=SINKS, source_dir=config.source_dir, kind="class")
    for one in config.callbacks:
        found = user_object(one.make, setting="callbacks", source_dir=config.source_dir, kind="class")
        require_arguments(found, one.kwargs, setting="callbacks", reference=one.make)


def _arguments(config: ExperimentConfig, setting: str) -> Mapping[str, JsonValue]:
    """The arguments that a config gives to the function named by `setting`: those of policy.encoder are in
    policy.encoder_kwargs."""
    *section, name = setting.split(".")
    policy = config.policies[section[1]].policy if section[0] == "policies" else config.policy
    given = policy.settings if isinstance(policy, CustomConfig) else vars(policy)
    found = given.get(f"{name}_kwargs")
    return cast("Mapping[str, JsonValue]", found) if isinstance(found, Mapping) else {}


def require_own_optimizer(learner: LearnerConfig, *, source_dir: str | None) -> None:
    """Check the settings of a custom optimizer with the optimizer's class. Raises UserCodeError."""
    if learner.optimizer not in BUILT_IN_OPTIMIZERS:
        own_optimizer(learner.optimizer, learner.optimizer_settings, source_dir=source_dir)


def parsed(entry: object, policy: CustomConfig) -> AlgorithmConfig:
    """Validate the settings of an algorithm and fill in defaults. Raises UserCodeError, CustomSettingsError."""
    kind = _class_of(entry, policy.type)
    try:
        with NoExit():
            return kind.model_validate(policy.settings)
    except ValidationError as error:
        details = _inside(("policy",), error.errors(include_url=False))
        raise CustomSettingsError(details, kind) from error
    except Exception as error:  # pydantic, of a type that it does not know, and whatever the user's validators raise
        what = f"policy.type = {policy.type!r}: {kind.__name__} cannot be read ({_TYPES})"
        raise UserCodeError(TYPE, f"{what}: {_raised(error)}") from error


def _class_of(entry: object, name: str) -> type[AlgorithmConfig]:
    kind: object = getattr(entry, "settings", None)
    if not isinstance(kind, type) or not issubclass(kind, AlgorithmConfig):
        raise UserCodeError(
            TYPE,
            f"policy.type = {name!r}: {type(entry).__name__}.settings should be a class derived from "
            "remuda.AlgorithmConfig; derive the class from remuda.AlgorithmEntry",
        )
    derived = issubclass(kind, BuiltInConfig)  # then `type` is the one that is meant
    if taken := {"declaration", *(() if derived else ("type",))} & kind.model_fields.keys():
        problem = f"rename the setting {taken.pop()}: this name is reserved"
        raise UserCodeError(TYPE, f"policy.type = {name!r}: {problem}")
    return kind


def declared(entry: Declares, config: ExperimentConfig, settings: AlgorithmConfig) -> Declaration:
    """Return the declaration of the class. Raises UserCodeError."""
    where = f"policy.type = {config.policy.type!r}: {type(entry).__name__}.declaration"
    try:
        with NoExit():
            declare = cast("Callable[..., object]", entry.declaration)  # of a user's class: it may return anything
            found = declare(config, settings)
    except Exception as error:  # whatever the user's class raises
        raise UserCodeError(TYPE, f"{where} failed: {_raised(error)}") from error
    if not isinstance(found, Declaration):
        raise UserCodeError(TYPE, f"{where} should return a remuda.Declaration, not {found!r}")
    return found


def _inside(place: Loc, details: list[ErrorDetails]) -> list[ErrorDetails]:
    """Move errors into the section at `place`."""
    return [cast("ErrorDetails", {**one, "loc": (*place, *one["loc"])}) for one in details]


def _unknown(setting: str, name: str, names: list[str]) -> str:
    near = get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f'{setting}: should be one of {", ".join(names)}, or module:Class, not "{name}"{hint}'


def _raised(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return f"{type(error).__name__}: {error}"
    problems = (": ".join(filter(None, (dotted(one["loc"]), one["msg"]))) for one in error.errors(include_url=False))
    return f"{error.title}: {'; '.join(problems)}".replace("Value error, ", "").replace("Input should", "should")
