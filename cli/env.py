"""`remuda env check`: what is wrong with an environment, before a run."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, cast

import typer

from remuda.cli.errors import InputError
from remuda.cli.options import AsJson, epilog, new_group

group = new_group("Look at environments.", example="remuda env check my_module:make_env")

Which = Annotated[str, typer.Argument(metavar="ID_OR_FUNCTION", help="An id, or your own module:function.")]
Arguments = Annotated[
    str | None, typer.Option("--kwargs", metavar="JSON", help='Arguments for it, as env.kwargs: {"size": 8}.')
]
Steps = Annotated[int, typer.Option("--steps", metavar="N", min=1, help="How many steps are looked at.")]


@group.command(epilog=epilog("remuda env check my_module:make_env --steps 5000"))
def check(which: Which, kwargs: Arguments = None, steps: Steps = 1_000, as_json: AsJson = False) -> None:
    """Step an environment with random actions and say what is wrong: shapes, types and bounds of observations, rewards,
    masks of actions, seeds, time limits, speed, and what gymnasium's own checker says. Exit code 1 if something is."""
    from remuda.cli.asked_output import asked_output
    from remuda.client.choosing import environment_of
    from remuda.config.load import load_settings
    from remuda.environments.errors import EnvironmentBuildError
    from remuda.environments.probe import probe

    env = {**environment_of(which), "kwargs": _given(kwargs)}
    config = load_settings({"name": "check", "env": env}, folder=Path(os.getcwd())).config
    try:
        with asked_output():  # what the environment prints goes to standard error
            found = probe(config.env, source_dir=config.source_dir, steps=steps)
    except EnvironmentBuildError as error:
        raise InputError(str(error)) from error
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
        raise InputError(f"--kwargs: {kwargs} is no JSON object, such as '{{\"size\": 8}}'")
    return cast("dict[str, object]", given)
