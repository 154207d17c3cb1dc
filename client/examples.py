"""The examples in the package: a list, and copies with all required files."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from remuda.config.algorithms.base import EXAMPLES
from remuda.config.readers import read_yaml

_EXTRA = re.compile(r"remuda\[(\w+)\]")
"""Optional packages, in the comment of an example."""
_MODULE_IN_YAML = re.compile(r"\b(\w+):[A-Za-z_]")
"""`module:name`."""
_MODULE_IN_PYTHON = re.compile(r"^(?:from|import) (\w+)", re.MULTILINE)


class ExampleError(Exception):
    """The example does not exist, or its copy would overwrite a file."""


@dataclass(frozen=True)
class Example:
    """A config, a grid of a sweep, or a script."""

    name: str
    """Path in the folder of examples, without the suffix."""
    file: Path
    algorithm: str = ""
    environment: str = ""
    extra: str = ""
    """Required optional packages: remuda[extra]."""
    ends: str = ""
    """Stop condition of a run; the purpose of a script."""


def examples() -> list[Example]:
    """List every example by name: configs, then grids, then scripts."""
    configs = [_config(file) for file in sorted(EXAMPLES.glob("*.yaml"))]
    grids = [_grid(file) for file in sorted(EXAMPLES.glob("*/*.yaml"))]
    parts = {file for one in configs for file in _needed(one.file)}
    return [*configs, *grids, *(_script(file) for file in sorted(EXAMPLES.glob("*.py")) if file not in parts)]


def find(name: str) -> Example:
    """Return an example by its name, or by its path below `examples/`. Raises ExampleError with the nearest names."""
    known = {one.name: one for one in examples()}
    asked = re.sub(r"\.(yaml|py)$", "", name.removeprefix("examples/"))
    if asked in known:
        return known[asked]
    near = difflib.get_close_matches(asked, known, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "`remuda examples` lists them"
    raise ExampleError(f"unknown example {name!r}: {hint}")


def copy(example: Example, folder: Path) -> list[Path]:
    """Copy the example and all required files into `folder`; return the copies, the example's first.

    Raises ExampleError before writing if a file exists already, and OSError.
    """
    sources = [example.file, *_needed(example.file)]
    copies = [folder / source.relative_to(EXAMPLES) for source in sources]
    there = [str(target) for target in copies if target.exists()]
    if there:
        raise ExampleError(f"not copied, since a file would be overwritten: {', '.join(there)}")
    for source, target in zip(sources, copies, strict=True):
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            file.write(source.read_bytes())
    return copies


def _config(file: Path) -> Example:
    text = file.read_text(encoding="utf-8")
    settings = read_yaml(text).values
    env, policy, stop = (_section(settings, name) for name in ("env", "policy", "stop"))
    stop_value, most = stop.get("stop_value"), stop.get("max_env_steps")
    extra = _EXTRA.search(text)
    return Example(
        name=file.stem,
        file=file,
        algorithm=str(policy.get("type", "")),
        environment=str(env.get("id") or env.get("make") or ""),
        extra=extra[1] if extra else "",
        ends=f"at a return of {stop_value}" if stop_value is not None else f"after {most:,} steps",
    )


def _grid(file: Path) -> Example:
    settings = read_yaml(file.read_text(encoding="utf-8")).values
    base = _config((file.parent / str(settings["config"])).resolve())
    search = _section(settings, "search")
    kind = "a population" if "pbt" in search else "a search" if search else "a grid"
    return Example(
        name=file.relative_to(EXAMPLES).with_suffix("").as_posix(),
        file=file,
        algorithm=base.algorithm,
        environment=base.environment,
        extra="search" if kind == "a search" else base.extra,
        ends=f"{kind}, for remuda sweep",
    )


def _script(file: Path) -> Example:
    said = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return Example(name=file.stem, file=file, ends=re.split(r"[:;.]\s", said.replace("\n", " "), maxsplit=1)[0])


def _section(settings: Mapping[str, JsonValue], name: str) -> Mapping[str, JsonValue]:
    section = settings.get(name)
    return section if isinstance(section, dict) else {}


def _needed(file: Path) -> list[Path]:
    """Return further required files in EXAMPLES: modules, and a grid's config with its required files."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        named = [EXAMPLES / f"{module}.py" for module in _MODULE_IN_PYTHON.findall(text)]
    else:
        named = [EXAMPLES / f"{module}.py" for module in _MODULE_IN_YAML.findall(text)]
        config = read_yaml(text).values.get("config")
        named += [(file.parent / config).resolve()] if isinstance(config, str) else []
    direct = [one for one in dict.fromkeys(named) if one.is_file() and one != file]
    return list(dict.fromkeys(more for one in direct for more in (one, *_needed(one))))
