"""`remuda.Callback`: your own code for events of a run, which may log, change settings and end the run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from numpy.typing import ArrayLike

from remuda.config.schema import ExperimentConfig
from remuda.wire.messages import Checkpointed, Ended, Episodes, Evaluated, Started


class CallbackRun(Protocol):
    """The run, for a callback. Requests take effect after its method has returned."""

    @property
    def config(self) -> ExperimentConfig:
        """The present settings, including changes."""
        ...

    @property
    def ckpt(self) -> Path:
        """Folder of the checkpoints named in events."""
        ...

    @property
    def policy(self) -> str:
        """Name of the policy, with several policies; otherwise empty."""
        ...

    def log(self, name: str, value: ArrayLike) -> None:
        """Log a number: in the text log, and as curves `callback_step/<name>` and `callback_iter/<name>`; or an array
        of numbers, as the histogram `callback_histogram_iter/<name>` in TensorBoard."""
        ...

    def stop(self, reason: str) -> None:
        """End the run, as a stop condition does, with the reason `callback <Class>: <reason>`."""
        ...

    def change(self, setting: str, value: float) -> None:
        """Change a setting, such as `learner.learning_rate`, from now on. An invalid change is logged and has no
        effect."""
        ...

    def set_task(self, kwargs: Mapping[str, object]) -> None:
        """Begin another task now, with environments built with these arguments over those of `env.kwargs`. Later tasks
        of `env.schedule` begin as scheduled."""
        ...


class Callback:
    """Base class of callbacks; override the needed methods.

    A run has one object (with several policies, one per policy), in the learning process, which makes no updates during
    a call. After a crash an event may be delivered again, with the state from before; its requests count once. An
    exception fails the run.
    """

    def on_start(self, event: Started, run: CallbackRun) -> None:
        """Called first, at the beginning of the run and after each resume."""

    def on_evaluation(self, event: Evaluated, run: CallbackRun) -> None:
        """A checkpoint was evaluated."""

    def on_checkpoint(self, event: Checkpointed, run: CallbackRun) -> None:
        """A checkpoint is saved."""

    def on_episode(self, event: Episodes, run: CallbackRun) -> None:
        """Training episodes have ended: all since the last call, at most every second where workers collect."""

    def on_end(self, event: Ended, run: CallbackRun) -> None:
        """Called last, at the end of the run. Only `log` has an effect."""

    def state(self) -> Mapping[str, object] | None:
        """State to keep over restarts: a dict of numbers, texts, lists and dicts with text keys, at most 1 MiB. Called
        after each event. None: no state."""
        return None

    def load_state(self, state: Mapping[str, object]) -> None:
        """Restore a result of `state`; called before all other methods, unless the state was None."""
