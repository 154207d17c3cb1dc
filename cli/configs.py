"""The commands about configs and environments: `remuda config`, `remuda env` and `remuda examples`."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from remuda.cli.errors import InputError
from remuda.cli.options import AsJson, ConfigPath, Seed, Sets, epilog, load, new_group

if TYPE_CHECKING:
    from remuda.client.examples import Example

WithSources = Annotated[
    bool, typer.Option("--sources", help="One line per setting, with its source. Also for run folders.")
]

config_group = new_group("Show, check and describe configs.", example="remuda config check examples/cartpole_dqn.yaml")


@config_group.command(epilog=epilog("remuda config show examples/cartpole_dqn.yaml --set learner.batch_size=128"))
def show(
    config: ConfigPath, sets: Sets = None, seed: Seed = None, with_sources: WithSources = False, as_json: AsJson = False
) -> None:
    """Print every setting of a run, with its origin unless the setting has its default.

    The command line overrides the file, and the file overrides the default: the default of the algorithm (policy.type),
    or else the general default. CONFIG may be a run folder with --sources.
    """
    from remuda.config.dump import config_json_text, yaml_text

    if with_sources:
        print(_sources(config, sets, seed, as_json=as_json), end="")
        return
    loaded = load(config, sets=sets, seed=seed)
    if as_json:
        print(config_json_text(loaded.config, for_people=True, auto=loaded.auto), end="")
    else:
        print(yaml_text(loaded.config, loaded.provenance, auto=loaded.auto), end="")


def _sources(config: Path, sets: list[str] | None, seed: int | None, *, as_json: bool) -> str:
    from remuda.config.dump import recorded, sources, sources_text

    if not config.is_dir():
        loaded = load(config, sets=sets, seed=seed)
    elif sets or seed is not None:
        raise InputError(f"{config} is a run folder, and its settings cannot be changed: leave out --set and --seed")
    else:
        loaded = recorded(config)
    return json.dumps(sources(loaded), indent=2) + "\n" if as_json else sources_text(loaded)


@config_group.command("check", epilog=epilog("remuda config check examples/cartpole_dqn.yaml"))
def check_config(
    configs: Annotated[list[Path], typer.Argument(metavar="CONFIG", help="One or more config files.")],
    sets: Sets = None,
) -> None:
    """Check configs; print every problem of every file, with its line, and settings without effect."""
    from remuda.config.errors import ConfigError
    from remuda.config.explain import unused_settings

    problems: list[str] = []
    said: list[str] = []
    for path in configs:
        try:
            unused = unused_settings(load(path, sets=sets, seed=None).config)
            said += [f"{path}: valid", *(f"{path}: warning: {line}" for line in unused)]
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    print("\n".join(said))


@config_group.command(epilog=epilog("remuda config schema > remuda.schema.json"))
def schema(
    markdown: Annotated[bool, typer.Option("--markdown", help="Print docs/configuration.md instead.")] = False,
) -> None:
    """Print the JSON Schema of a config, for editors that complete and check settings."""
    from remuda.config.reference import json_schema_text, markdown_text

    print(markdown_text() if markdown else json_schema_text(), end="")


env_group = new_group("Look at environments.", example="remuda env check my_module:make_env")

WhichEnv = Annotated[str, typer.Argument(metavar="ID_OR_FUNCTION", help="An id, or your own module:function.")]
Arguments = Annotated[
    str | None, typer.Option("--kwargs", metavar="JSON", help='Arguments for it, as env.kwargs: {"size": 8}.')
]
Steps = Annotated[int, typer.Option("--steps", metavar="N", min=1, help="How many steps are looked at.")]


@env_group.command("check", epilog=epilog("remuda env check my_module:make_env --steps 5000"))
def check_env(which: WhichEnv, kwargs: Arguments = None, steps: Steps = 1_000, as_json: AsJson = False) -> None:
    """Step an environment with random actions and print problems: shapes, types and bounds of observations, rewards,
    masks of actions, seeds, time limits, speed, and the report of gymnasium's own checker. Exit code 1 after a problem.
    """
    from remuda.cli.output import reserved_stdout
    from remuda.client.beginning import environment_of
    from remuda.config.load import load_settings
    from remuda.environments.probe import probe

    env = {**environment_of(which), "kwargs": _given(kwargs)}
    config = load_settings({"name": "check", "env": env}, folder=Path(os.getcwd())).config
    with reserved_stdout():  # what the environment prints goes to standard error
        found = probe(config.env, source_dir=config.source_dir, steps=steps)
    if as_json:
        print(json.dumps({"env": which, "findings": [asdict(one) for one in found]}, indent=2))
    else:
        print("\n".join(f"{one.level:8}{one.text}" for one in found))
    if any(one.level == "wrong" for one in found):
        raise typer.Exit(1)


def _given(kwargs: str | None) -> dict[str, object]:
    try:
        given: object = {} if kwargs is None else json.loads(kwargs)
    except ValueError as error:
        raise InputError(f"--kwargs: {error}: write JSON, such as '{{\"size\": 8}}'") from error
    if not isinstance(given, dict):
        raise InputError(f"--kwargs: {kwargs} should be a JSON object, such as '{{\"size\": 8}}'")
    return cast("dict[str, object]", given)


EXAMPLES_EXAMPLE = "remuda examples cartpole_dqn --copy ."
COLUMNS = ("name", "algorithm", "environment", "needs", "ends")

ExampleName = Annotated[
    str | None, typer.Argument(metavar="NAME", help="Print this one, and nothing else (default: list all).")
]
CopyTo = Annotated[
    Path | None,
    typer.Option(
        "--copy", metavar="DIR", help="Copy it, and the files that it needs, into DIR; nothing is overwritten."
    ),
]


def examples(name: ExampleName = None, copy_to: CopyTo = None, as_json: AsJson = False) -> None:
    """List the configs and scripts of Remuda, print one, or copy one to change it.

    The name of a config works in place of a file: remuda train cartpole_dqn. An existing file of this name comes first.
    """
    from remuda.client import examples as stored

    if name is None:
        if copy_to is not None:
            raise InputError("--copy: name the example to copy: remuda examples NAME --copy DIR")
        _list(stored.examples(), as_json=as_json)
        return
    try:
        found = stored.find(name)
        if copy_to is None:
            text = found.file.read_text(encoding="utf-8")
            shown = json.dumps({**_described(found), "text": text}, indent=2) + "\n" if as_json else text
        else:
            copies = [str(path) for path in stored.copy(found, copy_to)]
            shown = (json.dumps(copies, indent=2) if as_json else "\n".join(copies)) + "\n"
    except OSError as error:
        raise InputError(f"--copy: {error}") from error
    print(shown, end="")


def _described(one: Example) -> dict[str, str]:
    needs = f"remuda[{one.extra}]" if one.extra else ""
    return dict(zip(COLUMNS, (one.name, one.algorithm, one.environment, needs, one.ends), strict=True))


def _list(found: list[Example], *, as_json: bool) -> None:
    described = [_described(one) for one in found]
    if as_json:
        print(json.dumps(described, indent=2))
        return
    rows = [tuple(one.values()) for one in described]
    widths = [max(len(row[column]) for row in (COLUMNS, *rows)) for column in range(len(COLUMNS) - 1)]
    for row in (COLUMNS, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        print("  ".join([*cells, row[-1]]).rstrip())
