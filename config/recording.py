"""The settings of checkpoints, stop conditions, logs and callbacks."""

from __future__ import annotations

from typing import Annotated, cast

from pydantic import BeforeValidator, Field, field_validator

from remuda.config.numbers import Float, Kwargs, NonNegative, Positive, PositiveFloat
from remuda.config.section import Section

SinkName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*(:[A-Za-z_][A-Za-z0-9_]*)?$", max_length=200)]


BUILT_IN_SINKS = ("csv", "jsonl", "wandb", "mlflow")


class CheckpointConfig(Section):
    """Checkpoints: time of saving, and number kept."""

    interval_env_steps: Positive | None = 50_000
    """Environment steps between checkpoints, saved at multiples of this number; evaluations save further checkpoints.
    Null saves no checkpoints by steps."""
    interval_s: PositiveFloat | None = None
    """Longest time in seconds between two checkpoints; null saves no checkpoints by time."""
    keep: NonNegative = 5
    """Checkpoints kept; the oldest are removed first, but never the initial, the best and the last. 0 keeps all."""


class StopConfig(Section):
    """Stop conditions: the first condition reached ends the run."""

    stop_value: Float | None = None
    """Mean return of an evaluation at which the task counts as solved."""
    max_env_steps: Positive = 1_000_000
    """Environment steps in accepted chunks."""
    max_train_iters: Positive | None = None
    """Gradient updates; PPO makes `policy.epochs` times `policy.minibatches` updates per batch."""
    max_wall_s: PositiveFloat | None = None
    """Seconds since the run got its first worker, over restarts and resumes. Time in the queue does not count; time of
    waiting for a worker counts. A running evaluation, and the evaluation of the last checkpoint, may take a tenth of
    this time longer (at least 5 s, at most 600 s) before they are abandoned."""


class LogConfig(Section):
    """Frequency and content of the logs."""

    interval_train_iters: Positive = 100
    """Gradient updates between tables of the learner's log, and the least number between reports of a collector.
    Algorithms with rare updates get a table for every row of progress.txt. With `learner.inference` there are no
    updates, and collectors report every `progress_interval_env_steps`."""
    progress_interval_env_steps: Positive = 1_000
    """Environment steps between rows of progress.txt, which are written at multiples of this number. A row waits for an
    evaluation due at the same step."""
    sinks: tuple[SinkName, ...] = ()
    """Further outputs for the rows of progress.txt, with medians and all metrics of the algorithm. `csv` and `jsonl`
    are files in the same folder; `wandb` (Weights & Biases) and `mlflow` need the packages of the same name, and stay
    offline unless their environment variables say otherwise. Name your own class as `module:Class`, looked up in the
    folder of the config file first, or by its name in an installed package (entry point group `remuda.sinks`); the
    class runs in a separate process. A failing sink causes one warning, and the run continues."""
    buffer_interval_samples: Positive = 200
    """Batches drawn between tables of the buffer's log."""
    buffer_interval_s: PositiveFloat = 60.0
    """Seconds between throughput tables of the buffer's log."""
    histograms: bool = True
    """Show histograms in TensorBoard: of the weights of every checkpoint, and of the actions of every evaluation.
    Histograms cost only milliseconds and are therefore on: in a layer with more than 65,536 weights every n-th weight
    is counted, and at most 16 action dimensions. A checkpoint takes about 600 bytes per layer."""
    film_interval_env_steps: Positive | None = None
    """Environment steps between films in TensorBoard. The first evaluation at or after each multiple is filmed; null
    disables films. A film shows at most 1,000 steps of the first episode, and has at most 512 KiB. Filming takes some
    seconds, and does not change the results of the evaluation. Films need `pip install
    'remuda[video]'` and an environment with the render mode `rgb_array`; a failure causes one warning."""

    @field_validator("sinks")
    @classmethod
    def _each_once(cls, value: tuple[SinkName, ...]) -> tuple[SinkName, ...]:
        if len(set(value)) < len(value):
            raise ValueError(f"should name each sink once, not {list(value)}")
        return value


class CallbackConfig(Section):
    """A callback of your own."""

    make: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$", max_length=200)]
    """Class of the callback: `module:Class`, derived from remuda.Callback."""
    kwargs: Kwargs = {}  # noqa: RUF012  (pydantic copies it)
    """Keyword arguments of the constructor."""


def _named(value: object) -> object:
    """`module:Class` alone is a callback without arguments."""
    if not isinstance(value, list | tuple):
        return value
    return [{"make": one} if isinstance(one, str) else one for one in cast("list[object]", value)]


Callbacks = Annotated[tuple[CallbackConfig, ...], Field(max_length=100), BeforeValidator(_named)]
