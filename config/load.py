"""Loads a config from a file and the command line, or reports errors with lines."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, cast

from pydantic import JsonValue, ValidationError
from pydantic_core import ErrorDetails

from remuda.config.algorithms.base import EXAMPLES
from remuda.config.current import obstacle_to_auto, without_auto
from remuda.config.custom import CustomSettingsError, completed, require_code
from remuda.config.defaults import without_repeated
from remuda.config.errors import (
    MAX_BYTES,
    ConfigError,
    Document,
    Loc,
    UnreadableError,
    has_value,
    value_at,
    with_value,
    without_value,
)
from remuda.config.explain import ConfigSource, as_written, explain, keys_of
from remuda.config.plain import masks_in
from remuda.config.readers import Override, apply_overrides, parse_override, read_json, read_python, read_yaml
from remuda.config.schema import ExperimentConfig
from remuda.config.section import Section
from remuda.config.user_code import UserCodeError

__all__ = ["ConfigError", "LoadedConfig", "Origin", "load_config", "load_settings", "load_text"]

Origin = Literal["file", "command line", "measured", "algorithm", "default"]
"""Origin of a setting. `algorithm`: the default of `policy.type`, see remuda.config.defaults. `default`: the default of
the schema."""

EXP_NAME = "exp_name"
"""Key of a run folder's config.json besides the settings: the name of `name` in Spinning Up's tools."""

SETTINGS = "config"
"""Name of settings without a file, in messages."""

OTHER_WAYS = (
    "`remuda examples` lists the configs that come with Remuda; without a config name an algorithm and an environment, "
    "as in: remuda train ppo --env CartPole-v1"
)
"""Hint for a missing config."""

_SETTING = re.compile(rf"\b(?:{'|'.join(ExperimentConfig.model_fields)})\.\w+")
"""A setting in a message."""

_READERS: dict[str, Callable[[str], Document]] = {
    ".yaml": read_yaml,
    ".yml": read_yaml,
    ".json": read_json,
    ".py": read_python,
}


@dataclass(frozen=True)
class LoadedConfig:
    """A valid config, the absolute path of its file, and the origins of settings by dotted key."""

    config: ExperimentConfig
    path: Path
    """Without a file: SETTINGS in the folder where relative paths begin."""
    provenance: Mapping[str, Origin]
    auto: frozenset[str] = frozenset()
    """Settings (dotted keys) to be measured, for which `config` has temporary numbers. See remuda.config.current."""
    notes: tuple[str, ...] = ()
    """Lines for the log of the run, about measurements and about settings kept by a resumed run."""
    given: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    """Settings from a file, a program or the command line, without defaults."""

    def require_numbers(self, why: str) -> None:
        """Raise ConfigError if a setting is to be measured; `why` is the obstacle."""
        if self.auto:
            raise ConfigError(_refused(self.auto, self.path.name, why))


def _refused(auto: Collection[str], place: str, why: str) -> list[str]:
    return [f"{place}: {key}: cannot be auto here, since {why}: give a number" for key in sorted(auto)]


def load_config(
    path: str | Path,
    *,
    overrides: Sequence[str | Override] = (),
    seed: int | None = None,
    masks: bool = False,
    import_algorithm: bool = True,
) -> LoadedConfig:
    """Load a .yaml, .yml or .json file, an example by its name, or a config in a run folder.

    `overrides` are `a.b=value` with the value in YAML, or parsed; `seed` is a further override. Overrides replace
    settings of the file. `source_dir` becomes the absolute folder of the file, unless set in the file. A copy with
    masked secrets cannot run, and is refused unless `masks` is true. Imports the class of a custom algorithm for its
    declaration; with `import_algorithm` false, for untrusted code, takes the declaration in the file. Raises
    ConfigError with every problem of the file.
    """
    shown = example_or_file(Path(path))
    document = read_document(shown)
    given, problems = _parsed_overrides(overrides)
    if seed is not None:
        given.append(Override(("seed",), seed, f"--seed {seed}"))
    path = shown.parent.resolve() / shown.name
    try:
        loaded = _validated(document, given, path=path, shown=shown, masks=masks, import_algorithm=import_algorithm)
    except ConfigError as error:
        raise ConfigError([*error.problems, *problems]) from error.__cause__
    if problems:
        raise ConfigError(problems)
    return loaded


def _parsed_overrides(overrides: Sequence[str | Override]) -> tuple[list[Override], list[str]]:
    given: list[Override] = []
    problems: list[str] = []
    for one in overrides:
        try:
            given.append(one if isinstance(one, Override) else parse_override(one))
        except ConfigError as error:
            problems += error.problems
    return given, problems


def example_or_file(path: Path) -> Path:
    """Return the example named by `path`, as in `cartpole_dqn` or `examples/cartpole_dqn.yaml`.

    An existing file at `path` comes first. Returns `path` unchanged if no such example exists.
    """
    name = path.as_posix()
    if name.startswith("examples/"):
        name = name.removeprefix("examples/").removesuffix(".yaml")
    known = {file.relative_to(EXAMPLES).with_suffix("").as_posix(): file for file in EXAMPLES.rglob("*.yaml")}
    return path if name not in known or os.path.lexists(path) else known[name]


def load_settings(
    settings: ExperimentConfig | Mapping[str, object], *, overrides: Sequence[Override] = (), folder: Path
) -> LoadedConfig:
    """Validate settings of a program: a config, or a mapping.

    `overrides` replace settings. Relative paths begin at `folder`, which is also `source_dir` unless set. Raises
    ConfigError with every problem.
    """
    if isinstance(settings, ExperimentConfig):
        values: dict[str, object] = {**without_repeated(settings.model_dump(mode="json"))}
    else:
        values = {str(key): value for key, value in settings.items()}
    if "name" in values:
        values.pop(EXP_NAME, None)
    document = Document(cast("dict[str, JsonValue]", values), {})  # the schema checks the values
    loaded = _validated(document, overrides, path=folder.resolve() / SETTINGS, shown=Path(SETTINGS))
    program: list[Override] = []
    if not isinstance(settings, ExperimentConfig):  # an ExperimentConfig does not tell set values from defaults
        program = [Override((key,), value, SETTINGS) for key, value in document.values.items()]
    origins = _provenance(loaded.config, document, [*program, *overrides])
    no_file: Origin = "command line" if values.get("source_dir") else "default"
    return replace(loaded, provenance={**origins, "source_dir": no_file})


def _validated(
    document: Document,
    given: Sequence[Override],
    *,
    path: Path,
    shown: Path,
    masks: bool = False,
    import_algorithm: bool = True,
) -> LoadedConfig:
    """Validate a document with its overrides. `path` is absolute, `shown` is for messages."""
    values, auto = without_auto(apply_overrides(document.values, given), document.values)
    if not masks and (hidden := masks_in(values)):
        advice = "is masked in this copy: take config.json, or give it by --set"
        raise ConfigError([f"{shown}: {key}: {advice}" for key in hidden])
    if isinstance(stored := values.get("source_dir") or "", str):
        values = values | {"source_dir": str(path.parent / stored)}
    values = _with_absolute_paths(values, path.parent, given)
    config = _config(values, ConfigSource(shown, document, given), import_algorithm=import_algorithm)
    if auto and (obstacle := obstacle_to_auto(config, auto)):
        raise ConfigError(_refused(auto, str(shown), obstacle))
    return LoadedConfig(config, path, _provenance(config, document, given), auto, given=values)


def _config(values: dict[str, JsonValue], where: ConfigSource, *, import_algorithm: bool) -> ExperimentConfig:
    try:
        config = ExperimentConfig.model_validate(values)
        if import_algorithm:
            config = completed(config)
            require_code(config)
        return config
    except ValidationError as error:
        errors = _told_once(error.errors(include_url=False), values)
        wrong = [as_written(details["loc"])[0] for details in errors]
        problems = explain(errors, where)
        problems += _further(problems, wrong, values, where, import_algorithm=import_algorithm)
        raise ConfigError(problems) from None
    except CustomSettingsError as error:
        kind = error.kind
        raise ConfigError(explain(error.details, where, section_of=lambda loc: kind)) from None
    except UserCodeError as error:
        place = where.of(tuple(error.setting.split(".")))
        raise ConfigError([f"{place}: {error}"]) from error


def _told_once(errors: Sequence[ErrorDetails], values: dict[str, JsonValue]) -> list[ErrorDetails]:
    """Return the errors without those that `policies` have taken from a section of the whole config."""
    places = [as_written(details["loc"])[0] for details in errors]
    taken = [loc[:1] == ("policies",) and loc[2:] in places and without_value(values, loc) == values for loc in places]
    return [details for details, is_taken in zip(errors, taken, strict=True) if not is_taken]


def _further(
    problems: Sequence[str],
    wrong: Sequence[Loc],
    values: dict[str, JsonValue],
    where: ConfigSource,
    *,
    import_algorithm: bool,
) -> list[str]:
    """Return the problems that appear without the wrong settings, except problems with settings named already."""
    if any(len(loc) < 2 or loc[-1] == "type" for loc in wrong):
        return []  # without a whole section, or its type, correct settings look wrong
    former = values
    for loc in wrong:
        values = without_value(values, loc)
    if values == former:
        return []
    where = replace(where, overrides=[override for override in where.overrides if override.loc not in wrong])
    try:
        _config(values, where, import_algorithm=import_algorithm)
    except ConfigError as error:
        named = set(_SETTING.findall("\n".join(problems)))
        return [problem for problem in error.problems if not named & set(_SETTING.findall(problem))]
    return []


def _with_absolute_paths(
    values: dict[str, JsonValue], folder: Path, overrides: Sequence[Override]
) -> dict[str, JsonValue]:
    """Make paths of other files absolute, also of several policies: relative to the file's folder, or to the working
    directory for overrides. Workers may open the files elsewhere."""
    named = values.get("policies")
    names = named if isinstance(named, dict) else ()
    learners = [("learner",), *(("policies", name, "learner") for name in names)]
    files = [(*one, f"initialize_from{of}") for one in learners for of in ("", "_demonstrations")]
    buffers = ((*one[:-1], "buffer", "demonstrations") for one in learners)
    for loc in (("collector", "dataset"), *files, *buffers):
        given = value_at(values, loc)
        if isinstance(given, str):
            typed = any(_sets(override, loc) for override in overrides if override.loc == loc[: len(override.loc)])
            values = with_value(values, loc, os.path.abspath(given if typed else folder / given))
    return values


def load_text(
    text: str, *, folder: Path, overrides: Sequence[str] = (), name: str = "config.yaml", import_algorithm: bool = True
) -> LoadedConfig:
    """Validate a config as YAML text without a file; relative paths begin at `folder`.

    Messages use `name`. `import_algorithm` as for `load_config`. Raises ConfigError with every problem.
    """
    shown = Path(name)
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise ConfigError([f"{shown}: larger than {MAX_BYTES // 1024} KiB: too large for a config"])
    document = _parsed(read_yaml, text, shown)
    given = [parse_override(one) for one in overrides]
    path = folder.resolve() / name
    return _validated(document, given, path=path, shown=shown, import_algorithm=import_algorithm)


def read_document(path: Path) -> Document:
    """Parse a file without validating its settings. Raises ConfigError if the file does not have the format of its
    suffix."""
    reader = _READERS.get(path.suffix.lower())
    if reader is None and not path.is_dir():
        hint = "" if path.suffix else f"; {OTHER_WAYS}"
        raise ConfigError([f"{path}: not a config; expected a .yaml, .json or .py file{hint}"])
    text = _text(path)
    assert reader is not None  # a folder has been refused by now
    document = _parsed(reader, text, path)
    if path.suffix.lower() == ".json" and "name" in document.values:
        document.values.pop(EXP_NAME, None)
    return document


def _parsed(reader: Callable[[str], Document], text: str, shown: Path) -> Document:
    try:
        return reader(text)
    except UnreadableError as problem:
        where = f"{shown}:{problem.line}" if problem.line is not None else str(shown)
        raise ConfigError([f"{where}: {problem.text}"]) from None


def _text(path: Path) -> str:
    """Return the text of a file. Raises ConfigError for a missing, too large, irregular or binary file."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ConfigError([f"{path}: is a folder; name the config file in it{_config_inside(path)}"])
        if not stat.S_ISREG(mode):
            raise ConfigError([f"{path}: not a regular file"])
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        hint = f"; {OTHER_WAYS}" if isinstance(error, FileNotFoundError) else ""
        raise ConfigError([f"{path}: cannot be read: {reason or error}{hint}"]) from None
    if len(data) > MAX_BYTES:
        raise ConfigError([f"{path}: larger than {MAX_BYTES // 1024} KiB: too large for a config"])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{path}:{line}: not UTF-8 text (byte 0x{data[error.start]:02x})"]) from None


def _config_inside(folder: Path) -> str:
    candidate = folder / "config.json"
    return f", as in {candidate}" if candidate.is_file() else ""


def _provenance(config: ExperimentConfig, document: Document, overrides: Sequence[Override]) -> dict[str, Origin]:
    origins: dict[str, Origin] = {key: _origin(loc, document, overrides) for key, loc in keys_of(config).items()}
    for section, inside in config:
        if section != "policy" and isinstance(inside, Section):
            given = document.values.get(section)
            for name in inside.model_fields_set - (given.keys() if isinstance(given, dict) else set()):
                if origins.get(key := f"{section}.{name}") == "default":
                    origins[key] = "algorithm"  # only the algorithm fills in further values
    return origins


def _origin(loc: Loc, document: Document, overrides: Sequence[Override]) -> Origin:
    """Return the origin of a leaf of the schema; of env.kwargs, for example, an override may set a part."""
    for override in reversed(overrides):
        shared = min(len(override.loc), len(loc))
        if override.loc[:shared] == loc[:shared]:
            return "command line" if _sets(override, loc) else "default"
    return "file" if loc in document.lines or loc == ("source_dir",) else "default"


def _sets(override: Override, loc: Loc) -> bool:
    """True if an override at `loc` or at an enclosing section has a value for `loc`."""
    inside = loc[len(override.loc) :]
    return not inside or has_value(override.value, inside)
