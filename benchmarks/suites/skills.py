"""bsuite: its settings, their lengths, and its own analysis of what it recorded."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from importlib import import_module  # bsuite and pandas have no types, and come with an extra
from pathlib import Path
from typing import Any

from remuda import Callback, CallbackRun, Episodes

NAME = "bsuite"
_LONG = ("cartpole", "mountain_car")
_LONGEST = 1_000
"""Steps of an episode of these families; others have as many steps in every episode."""


class Enough(Callback):
    """Ends a run after the number of episodes that bsuite scores."""

    def __init__(self, episodes: int) -> None:
        self._left = episodes

    def on_episode(self, event: Episodes, run: CallbackRun) -> None:
        """Count the episodes of training."""
        self._left -= len(event.returns) + event.left_out
        if self._left <= 0:
            run.stop("bsuite scores no more episodes")


def ids(family: str, indices: Sequence[int] | None) -> list[str]:
    """The settings of a family with these indices, in the order of difficulty where there is one; None: all."""
    found = [id for id in import_module("bsuite.sweep").SWEEP if id.rpartition("/")[0] == family]
    return found if indices is None else [found[index] for index in indices if index < len(found)]


def env_steps(bsuite_id: str) -> int:
    """Environment steps that the episodes of a setting take at most."""
    steps = _LONGEST
    if not bsuite_id.startswith(_LONG):
        with contextlib.redirect_stdout(io.StringIO()):
            env: Any = import_module("bsuite").load_from_id(bsuite_id)
        steps, ended = 0, env.reset().last()
        while not ended:
            steps, ended = steps + 1, env.step(0).last()
    return steps * _episodes(bsuite_id)


def _episodes(bsuite_id: str) -> int:
    return int(import_module("bsuite.sweep").EPISODES[bsuite_id])


def arguments(bsuite_id: str, folder: Path) -> tuple[str, ...]:
    """Settings of a run whose training bsuite records in `folder`, while evaluations play elsewhere."""
    named = f'bsuite_id: "{bsuite_id}"'
    return (
        f"env.kwargs.bsuite_id={bsuite_id}",
        f"env.kwargs.results_dir={folder}",
        f"evaluator.env={{make: bsuite:load_from_id, kwargs: {{{named}}}}}",
        f"callbacks=[{{make: {Enough.__module__}:Enough, kwargs: {{episodes: {_episodes(bsuite_id)}}}}}]",
    )


def recorded(folder: Path) -> dict[str, list[float]]:
    """The columns of what bsuite recorded. Raises StopIteration if it recorded nothing."""
    table = import_module("pandas").read_csv(next(folder.glob("*.csv")))
    return {str(name): [float(value) for value in table[name]] for name in table.columns}


def score(family: str, records: Mapping[str, Mapping[str, Sequence[float]]]) -> float:
    """Score a family by the records of its settings, by id."""
    pandas, analysis = import_module("pandas"), import_module("bsuite.experiments.summary_analysis")
    if not hasattr(pandas.Series, "append"):  # which bsuite 0.3.6 calls, and pandas has no longer

        def append(one: object, other: object) -> object:
            return pandas.concat([one, other])

        pandas.Series.append = append
    tables = [pandas.DataFrame(record).assign(bsuite_id=id) for id, record in records.items()]
    joined = import_module("bsuite.logging.logging_utils").join_metadata(pandas.concat(tables, sort=False))
    return float(analysis.BSUITE_INFO[family].score(joined))
