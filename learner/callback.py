"""`remuda.Callback`: your own code that is told what happens in a run, and may log, change settings and end it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from remuda.config.schema import ExperimentConfig
from remuda.wire.messages import Checkpointed, Ended, Episodes, Evaluated, Started


class CallbackRun(Protocol):
    """The run, as a callback sees it. What it asks for takes effect once its method has returned."""

    @property
    def config(self) -> ExperimentConfig:
        """The settings as they are now: changes included."""
        ...

    @property
    def ckpt(self) -> Path:
        """The folder of the checkpoints that events name."""
        ...

    @property
    def policy(self) -> str:
        """Which of several policies this is about; empty where there is one."""
        ...

    def log(self, name: str, value: float) -> None:
        """Log a number: in the text log, and as curves `callback_step/<name>` and `callback_iter/<name>`."""
        ...

    def stop(self, reason: str) -> None:
        """End the run, as a stop condition does. Its reason is then `callback <Class>: <reason>`."""
        ...

    def change(self, setting: str, value: float) -> None:
        """Give a setting, such as `learner.learning_rate`, another value from now on. One that cannot have it stays as
        it is, which the log tells."""
        ...

    def set_task(self, kwargs: Mapping[str, object]) -> None:
        """Go on to another task from now on, whose environments have these arguments over those of `env.kwargs`. The
        tasks of `env.schedule` that are left begin as they would have."""
        ...


class Callback:
    """Derive from this class, and override the methods that you need.

    There is one object per run (of several policies, one for each), in the process that learns; it makes no update
    meanwhile. It may be told of something again after a crash, with the state that it had before: what it asks for then
    counts once. An error that it raises ends the run, which has failed.
    """

    def on_start(self, event: Started, run: CallbackRun) -> None:
        """Called first, when the run begins and whenever it is resumed."""

    def on_evaluation(self, event: Evaluated, run: CallbackRun) -> None:
        """A checkpoint was evaluated."""

    def on_checkpoint(self, event: Checkpointed, run: CallbackRun) -> None:
        """A checkpoint is saved."""

    def on_episode(self, event: Episodes, run: CallbackRun) -> None:
        """Training episodes have ended: all since the last call, at most every second where workers collect."""

    def on_end(self, event: Ended, run: CallbackRun) -> None:
        """Called last, when the run is over. It can log, and nothing else."""

    def state(self) -> Mapping[str, object] | None:
        """What it has to remember over restarts: a dict of numbers, texts, lists and dicts by text, at most 1 MiB. It
        is asked for after each call. None: nothing."""
        return None

    def load_state(self, state: Mapping[str, object]) -> None:
        """Remember what `state` once returned; called before anything else, unless that was None."""
