"""The commands of `remuda config`: show, check, schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from remuda.cli.errors import InputError
from remuda.cli.options import AsJson, ConfigPath, Seed, Sets, epilog, load, new_group

WithSources = Annotated[
    bool, typer.Option("--sources", help="One line per setting, with its source. Also for run folders.")
]

group = new_group("Show, check and describe configs.", example="remuda config check examples/cartpole_dqn.yaml")


@group.command(epilog=epilog("remuda config show examples/cartpole_dqn.yaml --set learner.batch_size=128"))
def show(
    config: ConfigPath, sets: Sets = None, seed: Seed = None, with_sources: WithSources = False, as_json: AsJson = False
) -> None:
    """Print every setting as a run would use it, and where it comes from if it is not the default.

    The command line overrides the file, and the file overrides the default: that of the algorithm (policy.type), or
    else the general one. With --sources CONFIG may also be a run folder."""
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
    from remuda.config.sources import recorded, sources, sources_text

    if not config.is_dir():
        loaded = load(config, sets=sets, seed=seed)
    elif sets or seed is not None:
        raise InputError(f"{config} is a run folder, and its settings cannot be changed: leave out --set and --seed")
    else:
        loaded = recorded(config)
    return json.dumps(sources(loaded), indent=2) + "\n" if as_json else sources_text(loaded)


@group.command(epilog=epilog("remuda config check examples/cartpole_dqn.yaml"))
def check(
    configs: Annotated[list[Path], typer.Argument(metavar="CONFIG", help="One or more config files.")],
    sets: Sets = None,
) -> None:
    """Check configs; print every problem of every file, with its line, and settings that have no effect."""
    from remuda.config.errors import ConfigError
    from remuda.config.unused import unused_settings

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


@group.command(epilog=epilog("remuda config schema > remuda.schema.json"))
def schema(
    markdown: Annotated[bool, typer.Option("--markdown", help="Print docs/configuration.md instead.")] = False,
) -> None:
    """Print the JSON Schema of a config, which editors use to complete and check settings."""
    from remuda.config.reference import json_schema_text, markdown_text

    print(markdown_text() if markdown else json_schema_text(), end="")
