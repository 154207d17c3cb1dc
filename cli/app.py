"""The `remuda` command, with a module per group of commands.

`remuda --help` imports these modules: at module level they import only typer and cli.options, and the rest of Remuda
inside functions.
"""

from __future__ import annotations

from typing import Annotated

import typer

from remuda.cli import (
    bill,
    configs,
    dataset,
    doctor,
    evaluate,
    export,
    keys,
    page,
    plot,
    replay,
    requests,
    service,
    status,
    sweep,
    train,
)
from remuda.cli.options import epilog, new_group

app = new_group(
    "Trains reinforcement learning policies: in this process, or with a coordinator and a herd of workers.",
    example="remuda train examples/cartpole_dqn.yaml --seed 1",
)
app.command(epilog=epilog(train.TRAIN_EXAMPLE))(train.train)
app.command(epilog=epilog(configs.EXAMPLES_EXAMPLE))(configs.examples)
app.command(epilog=epilog(evaluate.EXAMPLE))(evaluate.evaluate)
app.command(epilog=epilog(export.EXPORT_EXAMPLE))(export.export)
app.command(epilog=epilog(export.FETCH_EXAMPLE))(export.fetch)
app.command(epilog=epilog(plot.EXAMPLE))(plot.plot)
app.command(epilog=epilog(plot.LEAGUE_EXAMPLE))(plot.league)
app.command(epilog=epilog(replay.REPLAY_EXAMPLE))(replay.replay)
app.command(epilog=epilog(replay.REPRODUCE_EXAMPLE))(replay.reproduce)
app.command(epilog=epilog(train.LAUNCH_EXAMPLE))(train.launch)
app.command(epilog=epilog(service.COORDINATOR_EXAMPLE))(service.coordinator)
app.command(epilog=epilog(service.WORKER_EXAMPLE))(service.worker)
app.command(epilog=epilog(requests.SUBMIT_EXAMPLE))(requests.submit)
app.command(epilog=epilog(status.EXAMPLE))(status.status)
app.command(epilog=epilog(requests.LOGS_EXAMPLE))(requests.logs)
app.command(epilog=epilog(requests.STOP_EXAMPLE))(requests.stop)
app.command(epilog=epilog(requests.PRIORITY_EXAMPLE))(requests.priority)
app.command(epilog=epilog(bill.REPORT_EXAMPLE))(bill.report)
app.command(epilog=epilog(requests.SHUTDOWN_EXAMPLE))(requests.shutdown)
app.command(epilog=epilog(sweep.EXAMPLE))(sweep.sweep)
app.command(epilog=epilog(page.EXAMPLE))(page.page)
app.command(epilog=epilog(doctor.EXAMPLE))(doctor.doctor)
app.add_typer(configs.config_group, name="config")
app.add_typer(configs.env_group, name="env")
app.add_typer(keys.group, name="keys")
app.add_typer(dataset.group, name="dataset")
app.add_typer(bill.group, name="quota")


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"remuda {version('remuda')}")
        raise typer.Exit


@app.callback()
def _root(  # pyright: ignore[reportUnusedFunction]  # typer calls it
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options before the command."""
