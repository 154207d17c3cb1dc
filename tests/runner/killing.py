"""Serial runs that are killed at a chosen moment of their saving."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from remuda.config.schema import ExperimentConfig
from remuda.learner import checkpoint
from remuda.logbook.progress import ProgressFile
from remuda.runner import memory
from remuda.runner.serial import Start
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.tests.runner.runs import run_tiny
from remuda.training.journal import RunJournal


class Killed(BaseException):
    """What no handler of the product catches, as nothing catches a SIGKILL."""


@dataclass
class Killer:
    """Wraps functions whose work a kill may come before or after; the n-th of those moments is deadly."""

    at: int
    moments: int = 0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*given: Any, **named: Any) -> Any:
            self.pass_by()
            result = function(*given, **named)
            self.pass_by()
            return result

        return wrapped

    def pass_by(self) -> None:
        self.moments += 1
        if self.moments == self.at:
            raise Killed


def run_to_its_death(config: ExperimentConfig, root: Path, killer: Killer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or to its end, if the killer's moment does not come."""
    with monkeypatch.context() as patch:
        for where, name in (
            (RunJournal, "write"), (CheckpointIndex, "add"), (CheckpointIndex, "set_reward"), (ProgressFile, "row"),
            (memory, "write_chunk"), (memory, "delete_chunks"), (checkpoint, "save"),
        ):  # fmt: skip
            patch.setattr(where, name, killer.wrap(getattr(where, name)))
        with contextlib.suppress(Killed):
            run_tiny(config, Start(root))
