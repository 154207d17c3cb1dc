"""Settings of collectors, evaluators, reanalyzers and inference workers, of cores, and of time limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, cast

from pydantic import BeforeValidator, Field, field_validator, model_validator

from remuda.config.section import (
    MOST_EVALUATION_EPISODES,
    Cores,
    Float,
    Kwargs,
    NonNegative,
    Positive,
    PositiveFloat,
    Section,
    Workers,
    no_bool,
    or_auto,
)


class CollectorConfig(Section):
    """Collecting experience."""

    count: Annotated[Workers, or_auto(100_000)] = 2
    """Collectors of the run (serial mode always has one). With `auto`, also for `env.num_envs` and
    `learner.threads`, `remuda train` and `remuda launch` measure the cost of a step, an action and an update on this
    machine before the run begins. The run then takes the fewest processes and environments with nearly the highest
    possible speed. The log shows the numbers and the measurements. The amount of experience per update stays the same:
    see `learner.segments_per_update`. A resumed run keeps the numbers."""
    minimum: Workers = 1
    """The run starts when this number of collectors is free. Collectors beyond this number are lent to waiting
    experiments of the same or a higher priority, up to the minimum of the waiting experiment."""
    chunk_env_steps: Annotated[int, Field(gt=0, le=10_000_000), BeforeValidator(no_bool)] | None = None
    """Environment steps per chunk, rounded up to whole steps of all environments of a collector. Small chunks bring new
    policies to collectors sooner; large chunks cost fewer messages. Null is 64. In parallel mode without
    buffer.samples_per_insert, where collectors run at full speed, null is 512 steps per environment or 0.1 s, whichever
    is less. On-policy chunks have policy.horizon_steps steps per environment."""
    device: str = "cpu"
    """Device for computing actions: cpu, or a GPU (cuda, cuda:1) for large networks. With a GPU, give one collector
    many environments in processes (env.num_envs, env.vectorization: async): the actions for all environments are
    computed as one batch."""

    dataset: str | None = None
    """Folder of a Minari dataset, for offline training: the run learns from the steps of the dataset alone, and takes
    none itself. A relative path starts at the folder of the config file; `--offline DATASET` sets it. `env` is for
    evaluations. Updates count as environment steps: evaluations, checkpoints, rows of progress.txt and bounds in
    environment steps come after as many updates. The run then has one collector, and ignores `buffer.min_rows` and
    `buffer.samples_per_insert`. See datasets.md."""

    @model_validator(mode="after")
    def _minimum_is_within_count(self) -> CollectorConfig:
        if self.minimum > self.count:
            raise ValueError(f"minimum ({self.minimum}) is more than count ({self.count}): it would never start")
        return self


class EvaluatorEnvConfig(Section):
    """Changes of `env` for evaluations."""

    id: str | None = None
    """Id of a different environment; null keeps `env.id`."""
    make: str | None = None
    """`module:function` of a different environment; null keeps `env.make`."""
    kwargs: Kwargs = {}  # noqa: RUF012  (pydantic copies it)
    """Arguments that replace or extend `env.kwargs` (and the `kwargs` of a task of `env.schedule`). With an `id` or
    `make` these are all arguments."""
    max_episode_steps: Positive | None = None
    """Episodes are truncated after this number of steps; null is as in `env`, and with an `id` or `make` the
    environment's own limit."""

    @model_validator(mode="after")
    def _one_source_at_most(self) -> EvaluatorEnvConfig:
        if self.id is not None and self.make is not None:
            raise ValueError("give at most one of evaluator.env.id and evaluator.env.make")
        if self.make is not None and self.make.count(":") != 1:
            raise ValueError(f"evaluator.env.make must look like module:function, not {self.make!r}")
        return self


class EvaluatorConfig(Section):
    """Evaluating the policy."""

    count: Workers = 1
    """Evaluators of the run (serial mode always has one)."""
    episodes: Annotated[NonNegative, Field(le=MOST_EVALUATION_EPISODES)] = 5
    """Episodes per evaluation, shared between the evaluators. Every evaluation uses the same seeds. With 0 the run has
    no evaluations, and the newest training episodes decide about the best checkpoint (see `window_episodes`)."""
    deterministic: bool = True
    """Always take the best action in evaluations. With false the policy explores as at the end of its schedule, as in
    `remuda evaluate` without -d. In an environment without chance, the best actions can repeat the same failure."""
    max_episode_steps: Positive = 30_000
    """Evaluation episodes are cut after this number of steps, with a warning: an environment without a limit may never
    end. The longest Atari games have 27,000 steps."""
    interval_env_steps: Positive = 5_000
    """Environment steps between evaluations. The first evaluation plays the initial policy at env_step 0."""
    env: EvaluatorEnvConfig | None = None
    """A different environment for evaluations and for `remuda evaluate`, with the same observations and actions: for
    example other levels, or no shaped reward. {kwargs: {…}} changes arguments of `env`; an `id` or `make`, with own
    `kwargs`, names another environment; `max_episode_steps` truncates the episodes. Null is `env`."""
    window_episodes: Positive = 100
    """Used only if `episodes` is 0: the mean return of this number of newest training episodes replaces evaluations,
    also for the best checkpoint and stop.stop_value. These episodes include exploration. The mean exists only after
    this number of episodes."""


class ReanalyzerConfig(Section):
    """Workers that recompute columns of stored rows with the target network, in place of the learner: Reanalyse of
    MuZero (`policy.reanalyze_ratio`). Parallel mode only; in serial mode the learner recomputes the columns."""

    count: Annotated[int, Field(ge=0, le=100_000), BeforeValidator(no_bool)] = 0
    """Reanalyzers of the run. With 0 the learner recomputes rows as part of an update. With reanalyzers the
    learner recomputes nothing, and `policy.reanalyze_ratio` is the largest number of recomputed rows per drawn row:
    reanalyzers draw chunks like batches, and compute a chunk once per target network. The run starts without
    reanalyzers and takes free ones later; until then nothing is recomputed. With several policies each reanalyzer
    computes for all of them."""
    device: str = "cpu"
    """Torch device for the computations of a reanalyzer."""


def _number_or_auto(value: object) -> object:
    """Refuse other values with a single message; for a union pydantic has a message per type."""
    if value != "auto" and not (type(value) is int and 0 <= value <= 1_000):
        raise ValueError("should be auto, or a number from 0 to 1000")
    return value


class InferenceConfig(Section):
    """Workers that compute the networks of collectors, for many collectors at once. Parallel mode only."""

    count: Annotated[Annotated[int, Field(ge=0, le=1_000)] | Literal["auto"], BeforeValidator(_number_or_auto)] = 0
    """Inference workers of the run. With 0 each collector computes its actions itself. Otherwise collectors send
    observations to an inference worker, which computes those of several collectors as one batch, with the version of
    the policy that the collector acts by. Collectors still draw the actions, and count steps as always. If no inference
    worker is there, collectors wait for the next. `auto` is one worker if `inference.device` is a GPU and several
    collectors compute on CPU cores, else none: on CPU cores shared inference never pays. The log names the decision."""
    device: str = "cpu"
    """Torch device of the inference workers: cpu, or a GPU (cuda, cuda:1)."""


@dataclass(frozen=True)
class SharedInference:
    """The number of inference workers, decided."""

    workers: int
    decided: str = ""
    """Reason of a decision by `auto`, for the log; empty for a number."""


def shared_inference(inference: InferenceConfig, collector: CollectorConfig) -> SharedInference:
    """Decide the number of inference workers; 0 for a run on a dataset, whose collector takes no steps.

    The rule of `auto` follows benchmarks/shared_inference.py.
    """
    if collector.dataset is not None:
        return SharedInference(0)
    if inference.count != "auto":
        return SharedInference(inference.count)
    if inference.device == "cpu":
        return SharedInference(0, "each collector computes its actions itself, since inference.device is cpu")
    if collector.device != "cpu" or collector.count < 2:
        own = f"collector.device is {collector.device}" if collector.device != "cpu" else "there is one collector"
        return SharedInference(0, f"each collector computes its actions itself, since {own}")
    return SharedInference(1, f"one inference worker on {inference.device} for {collector.count} collectors")


class AffinityConfig(Section):
    """Core numbers for each role. Cores outside a process's permitted set are ignored."""

    learner: Cores | None = None
    """Cores of the learner, with one torch thread per core, at most four; null is every core, with one thread."""
    collector: Cores | None = None
    """Cores of the collectors: one core per collector, in turn."""
    evaluator: Cores | None = None
    """Cores of the evaluators: one core per evaluator, in turn."""
    reanalyzer: Cores | None = None
    """Cores of the reanalyzers: one core per reanalyzer, in turn."""
    inference: Cores | None = None
    """Cores of the inference workers: one core per worker, in turn."""


class LimitsConfig(Section):
    """Time limits without progress for slow steps of a worker. After the limit the worker is dismissed: its process
    ends and is restarted, and the run counts a failure. In all remaining work a worker is dismissed after two minutes
    without progress (see `remuda coordinator --limit`). Parallel mode only."""

    prepare_s: PositiveFloat = 1_800.0
    """Seconds for building environments and networks, and for loading a checkpoint or a policy. Every loaded replay
    file counts as progress."""
    save_s: PositiveFloat = 1_800.0
    """Seconds for saving a checkpoint, and for an on-policy learner to wait until its policy is published. The end of a
    run waits this long for the last checkpoint."""
    rank_s: PositiveFloat = 60.0
    """Seconds for one learner rank to wait for another rank in an update. After this time the learner fails, and
    restarts from the last checkpoint. Choose less than two minutes; otherwise the learner is dismissed without this
    reason."""


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
    """Checkpoints kept; the oldest are removed first, but never the initial, the best and the last. 0 keeps all;
    ckpt/index.json lists the newest 20,000."""


class StorageConfig(Section):
    """Copies of the run folder in an object store, for runs at an address such as s3://bucket/runs/x. See buckets.md.
    Without effect for run folders on a disk."""

    ship_interval_s: PositiveFloat = 30.0
    """Seconds between two copies. If the machine is lost, the run continues elsewhere from the last copy."""
    payloads: Literal["all", "none"] = "all"
    """Payload files of the replay: with `all`, a run on another machine continues with its replay; with `none`, the
    replay begins empty there, and all counters and weights are the same."""
    last_copy_s: PositiveFloat = 300.0
    """Longest time for the copy at the end of the run. If the copy fails, the command ends with exit code 1, and the
    run folder on this machine stays."""


class StopConfig(Section):
    """Stop conditions: the first condition reached ends the run."""

    stop_value: Float | None = None
    """Mean return of an evaluation at which the task counts as solved."""
    max_env_steps: Positive = 1_000_000
    """Environment steps in accepted chunks."""
    max_train_iters: Positive | None = None
    """Gradient updates; PPO and PQN make `policy.epochs` times `policy.minibatches` updates per batch, IMPALA
    `policy.epochs`."""
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
    steps: bool = True
    """Keep the action, the reward and 32 bits of the observation of every collected step in steps/, so that `remuda
    replay` can play every training episode again. A step takes about 7 bytes for counted actions with few rewards, 37
    for HalfCheetah. Not kept in self-play, and by collectors that do not see the runs folder."""
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
