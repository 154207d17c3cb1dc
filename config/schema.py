"""What an experiment may be told: every setting, its default, its unit and its consequence."""

from __future__ import annotations

from typing import Annotated, Literal, cast

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from remuda.config.algorithms import CustomConfig, DqnConfig, ImpalaConfig, PpoConfig
from remuda.config.bounds import MOST_EVALUATION_EPISODES
from remuda.config.numbers import (
    LARGEST_CAPACITY,
    LARGEST_REQUEST,
    Cores,
    Float,
    Fraction,
    Kwargs,
    NonNegative,
    Positive,
    PositiveFloat,
    Workers,
    no_bool,
)
from remuda.config.section import Section

SinkName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*(:[A-Za-z_][A-Za-z0-9_]*)?$", max_length=200)]
BUILT_IN_SINKS = ("csv", "jsonl", "wandb", "mlflow")


class EnvConfig(Section):
    """Which environment, and how many copies each collector steps at once."""

    id: str | None = None
    """A gymnasium id such as CartPole-v1. Exactly one of `id` and `make` is given."""
    make: str | None = None
    """Your own environment: `module:function`, imported with the directory of the config file on the path; the
    function is called with `kwargs` and returns a gymnasium.Env."""
    kwargs: Kwargs = {}  # noqa: RUF012  (pydantic copies it)
    """Keyword arguments for the environment's constructor (or for your own function)."""
    num_envs: Annotated[int, Field(gt=0, le=10_000), BeforeValidator(no_bool)] = 8
    """Environments in each collector's vector."""
    vectorization: Literal["auto", "native", "sync", "async"] = "auto"
    """How the vector is stepped: `native` is the environment's own vectorised class, `sync` objects in one process,
    `async` objects in a process per core. `auto` takes native where the id has one; else it times a few steps and takes
    processes where a step is so slow that they win on the cores there are, were all collectors on one machine."""
    max_episode_steps: Positive | None = None
    """Longest episode in steps, truncated there; null keeps the environment's own limit."""
    episode_info: tuple[Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,49}$")], ...] = ()
    """Numbers that the environment puts into `info` with an episode's last step, under these names: logged per episode
    as its return is, with mean, deviation, median, largest and smallest."""

    @field_validator("episode_info")
    @classmethod
    def _columns_of_their_own(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        taken = {"reward", "length", "epret", "eplen", "testepret", "testeplen"}
        for name in names:
            column = name.replace("_", "").lower()
            if column in taken:
                raise ValueError(f"{name!r} is the name of something that is logged already, or given twice")
            taken |= {column, f"test{column}"}
        return names

    @model_validator(mode="after")
    def _exactly_one_source(self) -> EnvConfig:
        if (self.id is None) == (self.make is None):
            raise ValueError("give exactly one of env.id (a gymnasium id) and env.make (module:function)")
        if self.make is not None and self.make.count(":") != 1:
            raise ValueError(f"env.make must look like module:function, not {self.make!r}")
        return self


def _algorithm(value: object) -> str | None:
    """Which of the sections below is meant; an algorithm that is not among them is looked up by its name."""
    kind = cast("dict[str, object]", value).get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return None if not isinstance(kind, str) else kind if kind in BUILT_IN else CUSTOM


BUILT_IN = ("dqn", "ppo", "impala")
CUSTOM = "custom"
"""Stands for every other `type`, in messages of validation and in the documentation."""
PolicyConfig = Annotated[
    Annotated[DqnConfig, Tag("dqn")]
    | Annotated[PpoConfig, Tag("ppo")]
    | Annotated[ImpalaConfig, Tag("impala")]
    | Annotated[CustomConfig, Tag(CUSTOM)],
    Discriminator(_algorithm),
]


class LearnerConfig(Section):
    """How the policy is updated and how often it is published."""

    batch_size: Annotated[int, Field(gt=0, le=LARGEST_REQUEST), BeforeValidator(no_bool)] = 64
    """Replay only: rows per gradient update. On-policy algorithms have `segments_per_update`."""
    learning_rate: PositiveFloat = 1e-3
    """Adam step size."""
    max_grad_norm: PositiveFloat | None = 10.0
    """Gradients are scaled down to this norm; null leaves them."""
    publish_interval_iters: Positive = 10
    """Gradient updates between rewrites of the policy file, at least: in parallel mode publishing keeps to about 1 % of
    the learner's time, so a large network's versions are further apart. On-policy algorithms publish after every
    batch."""
    segments_per_update: Annotated[int, Field(gt=0, le=1_000_000), BeforeValidator(no_bool)] | None = None
    """On-policy algorithms only: segments (of `policy.horizon_steps` steps of one environment) per update; null takes
    one of every environment of `collector.count` collectors, in serial mode too, where one collector makes them all."""
    prefetch_batches: Annotated[int, Field(gt=0, le=10_000), BeforeValidator(no_bool)] = 16
    """Replay only: batches asked for in one request; the next request is in flight while these are trained on."""
    device: str = "cpu"
    """A torch device: cpu, cuda, cuda:1."""
    initialize_from: str | None = None
    """Checkpoint file whose weights a new run begins with; nothing else of it is taken. A relative path is meant from
    the config file's folder. --initialize-from RUN fills in that run's best."""
    inference: bool = False
    """No updates: the policy that a run begins with (or is resumed with) acts, exploring as little as it ever would,
    and is judged."""

    @model_validator(mode="after")
    def _requests_fit_a_message(self) -> LearnerConfig:
        rows = self.batch_size * self.prefetch_batches
        if rows > LARGEST_REQUEST:
            raise ValueError(
                f"batch_size ({self.batch_size}) times prefetch_batches ({self.prefetch_batches}) is {rows} rows "
                f"in one request; the most is {LARGEST_REQUEST}: lower one of them"
            )
        return self


class CollectorConfig(Section):
    """How experience is gathered."""

    count: Workers = 2
    """Collector workers the experiment asks for (serial mode has one)."""
    minimum: Workers = 1
    """It starts once so many are free. Those beyond it are lent to experiments of the same or a higher priority that
    wait for their own minimum."""
    chunk_env_steps: Annotated[int, Field(gt=0, le=10_000_000), BeforeValidator(no_bool)] | None = None
    """Environment steps per chunk, rounded up to whole steps of the vector. Small chunks hear of new policies sooner;
    large ones cost less control traffic. Null is 64; but in parallel mode without buffer.samples_per_insert, where
    collectors run as fast as they can, 512 steps of the whole vector or 0.1 s, whichever is less. On-policy chunks are
    policy.horizon_steps long."""
    device: str = "cpu"
    """Where a collector's network answers its environments: cpu, or a GPU (cuda, cuda:1) for large networks. Then let
    one collector have many environments in processes (env.num_envs, env.vectorization: async): their observations are
    answered together, as one batch on the GPU."""

    @model_validator(mode="after")
    def _minimum_is_within_count(self) -> CollectorConfig:
        if self.minimum > self.count:
            raise ValueError(f"minimum ({self.minimum}) is more than count ({self.count}): it would never start")
        return self


class EvaluatorConfig(Section):
    """How the policy is judged."""

    count: Workers = 1
    """Evaluator workers the experiment asks for (serial mode has one)."""
    episodes: Annotated[NonNegative, Field(le=MOST_EVALUATION_EPISODES)] = 5
    """Episodes per evaluation, shared between the evaluators; their seeds are the same at every evaluation. 0 plays
    none: checkpoints are judged by how the training episodes before them went."""
    max_episode_steps: Positive = 30_000
    """Longest episode of an evaluation in steps, which is cut there with a warning: an environment without a limit of
    its own may never end one. Above the 27,000 steps of the longest Atari games."""
    interval_env_steps: Positive = 5_000
    """Environment steps between evaluations (or judgements). The first evaluation plays the initial policy at
    env_step 0."""
    window_episodes: Positive = 100
    """Only where `episodes` is 0: so many of the newest training episodes, which explore, judge a checkpoint by their
    mean return, `best` and stop.stop_value included. Nothing is judged before there are so many."""


class BufferConfig(Section):
    """What the replay index keeps and how rows are drawn from it. On-policy algorithms use each row once, in order: of
    these settings `max_policy_lag` and `quota_bytes` alone are theirs."""

    capacity: Annotated[int, Field(gt=0, le=LARGEST_CAPACITY), BeforeValidator(no_bool)] = 100_000
    """Rows kept; the oldest go first. Memory is taken as rows come: about 50 bytes each in the coordinator, and what
    they consist of in the learner."""
    min_rows: Positive = 1_000
    """Rows collected before the first update."""
    prioritized: bool = True
    """Draw rows in proportion to their priority (Schaul et al. 2016) instead of uniformly."""
    priority_exponent: Fraction = 0.6
    """alpha: 0 is uniform, 1 fully proportional."""
    importance_exponent: Fraction = 0.4
    """beta at the start: how much of the sampling bias the weights undo."""
    importance_anneal_iters: Positive = 20_000
    """Gradient updates over which beta rises linearly to 1."""
    samples_per_insert: Annotated[float, Field(ge=1e-6, le=1e6), BeforeValidator(no_bool)] | None = 8.0
    """How often a row is sampled on average. Holds back collectors when the learner lags and the learner when
    collectors lag; null lets both run free."""
    max_policy_lag: Annotated[int, Field(ge=0, le=10_000), BeforeValidator(no_bool)] | None = 0
    """On-policy algorithms only: by how many updates the policy that collected may be older than the one that learns;
    older rows are dropped and counted. 0 is strictly on-policy; null drops nothing."""
    quota_bytes: Positive = 8 << 30
    """Most bytes of payload files in data/; the oldest rows are evicted sooner when it is reached."""


class CheckpointConfig(Section):
    """When checkpoints are saved and how many stay."""

    interval_env_steps: Positive | None = 50_000
    """Environment steps between checkpoints, saved at multiples of it (evaluations save theirs besides); null saves
    none by steps."""
    interval_s: PositiveFloat | None = None
    """Longest time in seconds from one checkpoint to the next; null saves none by time."""
    keep: NonNegative = 5
    """Checkpoints kept, the oldest pruned first; 0 keeps all. Initial, best and last are never pruned."""


class StopConfig(Section):
    """What ends a run; the first condition reached wins."""

    stop_value: Float | None = None
    """Mean evaluation return that counts as solved."""
    max_env_steps: Positive = 1_000_000
    """Environment steps in accepted chunks."""
    max_train_iters: Positive | None = None
    """Gradient updates."""
    max_wall_s: PositiveFloat | None = None
    """Seconds since the run started. An evaluation that is under way then, and that of the last checkpoint, may take a
    tenth of it longer, at least 5 s and at most 600 s, and is given up after that."""


class LogConfig(Section):
    """How often each log speaks."""

    interval_train_iters: Positive = 100
    """Gradient updates between tables of the learner's log, and at most between reports of a collector (with
    `learner.inference`, where there are none, its environment steps count by `progress_interval_env_steps`)."""
    progress_interval_env_steps: Positive = 1_000
    """Environment steps between rows of progress.txt, which stand at its multiples. A row waits for the evaluation that
    is due there."""
    sinks: tuple[SinkName, ...] = ()
    """Where each row of progress.txt goes besides, with medians and all that the algorithm monitors: `csv` and `jsonl`
    are files beside it; `wandb` (Weights & Biases) and `mlflow` are packages of their own, which stay offline unless
    their environment variables say otherwise. A class of yours is named as `module:Class`, with the directory of the
    config file on the path, or by the name that an installed package gives it (entry point group `remuda.sinks`); it
    works in a process of its own. A sink that fails is warned of once, and the run goes on."""
    buffer_interval_samples: Positive = 200
    """Batches drawn between tables of the buffer's log."""
    buffer_interval_s: PositiveFloat = 60.0
    """Seconds between throughput tables of the buffer's log."""

    @field_validator("sinks")
    @classmethod
    def _each_once(cls, value: tuple[SinkName, ...]) -> tuple[SinkName, ...]:
        if len(set(value)) < len(value):
            raise ValueError(f"should name each sink once, not {list(value)}")
        return value


class AffinityConfig(Section):
    """Cores by number, for each role. Those that a process may not use are left out."""

    learner: Cores | None = None
    """The learner keeps to these, with a torch thread for each, four at most; null is every core, with one thread."""
    collector: Cores | None = None
    """Each collector keeps to one of these, in turn."""
    evaluator: Cores | None = None
    """Each evaluator keeps to one of these, in turn."""


class LimitsConfig(Section):
    """How long workers may take, without any progress, for what takes long. One that takes longer is dismissed: its
    process ends, is started again, and the run counts a failure. In anything else a worker is dismissed after two
    minutes without progress (see `remuda coordinator --limit`). Parallel mode only."""

    prepare_s: PositiveFloat = 1_800.0
    """Seconds for building environments and networks, and for loading a checkpoint or a policy. Replay that is loaded
    is progress, file by file."""
    save_s: PositiveFloat = 1_800.0
    """Seconds for saving a checkpoint. The end of a run waits as long for the last one."""


class ExperimentConfig(Section):
    """One experiment, complete. Same config for serial and parallel mode."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    """Names the experiment and, unless told otherwise, its run folder."""
    seed: NonNegative = 0
    """Every worker, environment and network derives its own seed from this one."""
    env: EnvConfig
    """The environment."""
    policy: PolicyConfig = DqnConfig()
    """The algorithm and its networks: the settings are those of the `type` it names, dqn where it names none."""
    learner: LearnerConfig = LearnerConfig()
    """Updates and publishing."""
    collector: CollectorConfig = CollectorConfig()
    """Gathering experience."""
    evaluator: EvaluatorConfig = EvaluatorConfig()
    """Judging the policy."""
    buffer: BufferConfig = BufferConfig()
    """Replay."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """Saved work."""
    stop: StopConfig = StopConfig()
    """The end."""
    log: LogConfig = LogConfig()
    """Cadence of logs."""
    limits: LimitsConfig = LimitsConfig()
    """How long workers may take."""
    affinity: Literal["auto", "none"] | AffinityConfig = "none"
    """Cores that processes keep to. `none` leaves that to the operating system. `auto` gives each process of the run a
    core of its own and the learner what is left, where there are enough cores; it is meant for machines that work for
    one run at a time. Or name cores by role: {learner: [0, 1], collector: [2, 3]}."""
    source_dir: str | None = None
    """Directory of the config file, filled in when it is loaded: where `env.make` is looked up."""

    @field_validator("policy", mode="before")
    @classmethod
    def _dqn_unless_told(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {"type": "dqn"} | cast("dict[str, object]", value)

    @model_validator(mode="after")
    def _fits_together(self) -> ExperimentConfig:
        if self.buffer.min_rows > self.buffer.capacity:
            raise ValueError(
                f"buffer.min_rows ({self.buffer.min_rows}) is more than buffer.capacity ({self.buffer.capacity}): "
                "training would never start"
            )
        if self.policy.segment_steps is not None:
            self._check_segments(self.policy.segment_steps)
        return self

    def _check_segments(self, horizon_steps: int) -> None:
        """Raise where an on-policy run would have to hold more than fits any memory."""
        envs, lag = self.env.num_envs * self.collector.count, self.buffer.max_policy_lag or 0
        waiting = (lag + 1) * (self.learner.segments_per_update or envs)
        slots = max(waiting * horizon_steps, self.env.num_envs * horizon_steps)
        if slots > LARGEST_CAPACITY:
            raise ValueError(
                f"{slots} steps would have to be held at once, and the most is {LARGEST_CAPACITY}: lower "
                "policy.horizon_steps, learner.segments_per_update (env.num_envs times collector.count where it is "
                "null) or buffer.max_policy_lag"
            )
