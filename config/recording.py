"""The settings of checkpoints, stop conditions, logs and callbacks."""

from __future__ import annotations

from typing import Annotated, cast

from pydantic import BeforeValidator, Field, field_validator

from remuda.config.numbers import Float, Kwargs, NonNegative, Positive, PositiveFloat
from remuda.config.section import Section

SinkName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*(:[A-Za-z_][A-Za-z0-9_]*)?$", max_length=200)]


BUILT_IN_SINKS = ("csv", "jsonl", "wandb", "mlflow")


class CheckpointConfig(Section):
    """When checkpoints are saved, and how many are kept."""

    interval_env_steps: Positive | None = 50_000
    """Environment steps between checkpoints, which are saved at multiples of it; each evaluation saves another one.
    Null saves none by steps."""
    interval_s: PositiveFloat | None = None
    """Longest time in seconds between two checkpoints; null saves none by time."""
    keep: NonNegative = 5
    """Checkpoints kept; the oldest are removed first, but never the initial, the best and the last. 0 keeps all."""


class StopConfig(Section):
    """What ends a run: the first of these conditions that is reached."""

    stop_value: Float | None = None
    """Mean return of an evaluation that counts as solved."""
    max_env_steps: Positive = 1_000_000
    """Environment steps in accepted chunks."""
    max_train_iters: Positive | None = None
    """Gradient updates; PPO takes `policy.epochs` times `policy.minibatches` of them with each batch."""
    max_wall_s: PositiveFloat | None = None
    """Seconds since the run got its first worker, over restarts and resumes. Time in the queue does not count, time in
    which the run waits for a worker does. An evaluation under way at that time, and the evaluation of the last
    checkpoint, may take a tenth of it longer (at least 5 s, at most 600 s); then they are given up."""


class LogConfig(Section):
    """How often each log is written."""

    interval_train_iters: Positive = 100
    """Gradient updates between tables of the learner's log, and the least number between reports of a collector. Seldom
    updates have a table for each row of progress.txt. With `learner.inference` there are no updates, and collectors
    report every `progress_interval_env_steps`."""
    progress_interval_env_steps: Positive = 1_000
    """Rows of progress.txt are at multiples of this number of environment steps. A row waits for the evaluation that is
    due there."""
    sinks: tuple[SinkName, ...] = ()
    """Other places that get each row of progress.txt, with medians and all metrics of the algorithm: `csv` and `jsonl`
    are files beside it; `wandb` (Weights & Biases) and `mlflow` need their packages, and stay offline unless their
    environment variables say otherwise. Name your own class as `module:Class`, looked up in the folder of the config
    file first, or by its name in an installed package (entry point group `remuda.sinks`); it runs in a separate
    process. If a sink fails there is one warning, and the run goes on."""
    buffer_interval_samples: Positive = 200
    """Batches drawn between tables of the buffer's log."""
    buffer_interval_s: PositiveFloat = 60.0
    """Seconds between throughput tables of the buffer's log."""
    histograms: bool = True
    """Show histograms in TensorBoard: of the weights of each checkpoint, and of the actions of each evaluation. They
    are on because they cost only milliseconds: in a layer with more than 65,536 weights every n-th weight is counted,
    and at most 16 action dimensions. A checkpoint takes about 600 bytes per layer."""
    film_interval_env_steps: Positive | None = None
    """Environment steps between films in TensorBoard. The first evaluation at or after each multiple is filmed; null
    films none. A film shows the first episode, at most 1,000 steps of it, and has at most 512 KiB. It takes some
    seconds, which are not part of the evaluation's results. Films need `pip install 'remuda[video]'` and an environment
    that can render `rgb_array`; if filming fails there is one warning."""

    @field_validator("sinks")
    @classmethod
    def _each_once(cls, value: tuple[SinkName, ...]) -> tuple[SinkName, ...]:
        if len(set(value)) < len(value):
            raise ValueError(f"should name each sink once, not {list(value)}")
        return value


class CallbackConfig(Section):
    """A callback of your own."""

    make: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$", max_length=200)]
    """Its class: `module:Class`, derived from remuda.Callback."""
    kwargs: Kwargs = {}  # noqa: RUF012  (pydantic copies it)
    """Keyword arguments for its constructor."""


def _named(value: object) -> object:
    """`module:Class` alone is a callback without arguments."""
    if not isinstance(value, list | tuple):
        return value
    return [{"make": one} if isinstance(one, str) else one for one in cast("list[object]", value)]


Callbacks = Annotated[tuple[CallbackConfig, ...], Field(max_length=100), BeforeValidator(_named)]
