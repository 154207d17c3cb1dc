"""The settings of an experiment: each with its default, its unit and its consequence."""

from __future__ import annotations

from typing import Annotated, Literal, cast

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from remuda.config.algorithms.policy import PolicyConfig
from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.bounds import MOST_EVALUATION_EPISODES
from remuda.config.launching import LaunchConfig
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
from remuda.config.several_policies import MOST_POLICIES, AgentPattern, PolicyName, SelfPlayConfig, with_sections_above

SinkName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*(:[A-Za-z_][A-Za-z0-9_]*)?$", max_length=200)]
BUILT_IN_SINKS = ("csv", "jsonl", "wandb", "mlflow")


class EnvConfig(Section):
    """Which environment, and how many copies each collector steps at once."""

    id: str | None = None
    """A gymnasium id such as CartPole-v1. Give exactly one of `id` and `make`."""
    make: str | None = None
    """Your own environment: `module:function`. The module is looked up in the folder of the config file first; the
    function is called with `kwargs` and returns a gymnasium.Env."""
    kwargs: Kwargs = {}  # noqa: RUF012  (pydantic copies it)
    """Keyword arguments for the environment's constructor, or for your own function."""
    num_envs: Annotated[int, Field(gt=0, le=10_000), BeforeValidator(no_bool)] = 8
    """Environments that each collector steps together."""
    vectorization: Literal["auto", "native", "sync", "async", "envpool"] = "auto"
    """How the environments of a collector are stepped: `native` uses the environment's own vectorised class, `sync`
    objects in one process, `async` one process per core, `envpool` the threads of that package (`pip install
    'remuda[envpool]'`), which has many of gymnasium's environments; the same seed then gives other episodes. `auto`
    takes native if the id has one. Otherwise it times a few steps, and takes processes if they would be faster with all
    collectors on one machine."""
    kind: Literal["gymnasium", "pettingzoo"] = "gymnasium"
    """What `id` or `make` names: an environment of gymnasium, or with `pettingzoo` one of PettingZoo's parallel
    environments, in which several agents act at the same time (`remuda train` only). Then `id` is the module that has
    `parallel_env`, such as pettingzoo.butterfly.cooperative_pong_v5, and your own function (`make`) returns a
    pettingzoo.ParallelEnv."""
    max_episode_steps: Positive | None = None
    """Episodes are truncated after this number of steps; null keeps the environment's own limit."""
    episode_info: tuple[Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,49}$")], ...] = ()
    """Keys of numbers that the environment puts into `info` at the last step of an episode. They are logged like
    returns: mean, deviation, median, maximum and minimum over episodes."""
    restarts_per_hour: Annotated[NonNegative, Field(le=1_000_000)] = 20
    """How many environments each collector and evaluator makes again within an hour because they raised an error, hung,
    ended their process, or returned NaN, infinity, or observations of another shape or type than their space says. The
    other environments go on; the episode that was under way is truncated before the bad step. Beyond that, or if one
    breaks three times in a row without a good step, the worker fails; with 0 it does so at once. Environments with a
    vectorised class of their own (`native`, `envpool`) are not made again."""
    step_timeout_s: PositiveFloat | None = 90.0
    """Seconds that one step or reset of an environment in a process of its own may take (`vectorization: async`); then
    its process is killed and started again, with all environments in it. A collector without any progress is dismissed
    after two minutes. With null only that limit is left."""

    @field_validator("episode_info")
    @classmethod
    def _columns_of_their_own(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        taken = {"reward", "length", "epret", "eplen", "testepret", "testeplen"}
        taken |= {"discountedreturn", "testdiscountedreturn"}
        for name in names:
            column = name.replace("_", "").lower()
            if column in taken:
                raise ValueError(f"{name!r} is given twice, or is the name of a column that is always logged")
            taken |= {column, f"test{column}"}
        return names

    @model_validator(mode="after")
    def _exactly_one_source(self) -> EnvConfig:
        if (self.id is None) == (self.make is None):
            raise ValueError("give exactly one of env.id (a gymnasium id) and env.make (module:function)")
        if self.make is not None and self.make.count(":") != 1:
            raise ValueError(f"env.make must look like module:function, not {self.make!r}")
        if self.kind == "pettingzoo" and self.vectorization not in ("auto", "sync"):
            raise ValueError(
                f"env.vectorization is {self.vectorization}, and environments with several agents are stepped in one "
                "process: leave it out"
            )
        return self


Precision = Literal["float32", "bfloat16"]
"""What products are computed in."""


class LearnerConfig(Section):
    """How the policy is updated, and how often it is published."""

    batch_size: Annotated[int, Field(gt=0, le=LARGEST_REQUEST), BeforeValidator(no_bool)] = 64
    """Replay only: rows per gradient update. On-policy algorithms have `segments_per_update`."""
    learning_rate: PositiveFloat = 1e-3
    """Adam step size."""
    max_grad_norm: PositiveFloat | None = 10.0
    """Gradients with a larger norm are scaled down to it; null never scales."""
    publish_interval_iters: Positive = 10
    """Least number of gradient updates between two versions of the policy file. In parallel mode publishing takes about
    1 % of the learner's time at most, so large networks are published less often. On-policy algorithms publish after
    every batch."""
    segments_per_update: Annotated[int, Field(gt=0, le=1_000_000), BeforeValidator(no_bool)] | None = None
    """On-policy algorithms only: segments (of `policy.horizon_steps` steps of one environment) per update. Null is one
    segment from each environment of `collector.count` collectors, also in serial mode, where one collector makes all
    of them."""
    prefetch_batches: Annotated[int, Field(gt=0, le=10_000), BeforeValidator(no_bool)] = 16
    """Replay only: batches per request. The next request is under way while the learner trains on these."""
    device: str = "cpu"
    """A torch device: cpu, cuda, cuda:1. With several ranks, cuda is a GPU for each of them."""
    ranks: Annotated[int, Field(gt=0, le=64), BeforeValidator(no_bool)] = 1
    """Processes that learn together: each computes the gradient of its part of every batch, and all take the same step,
    which is that of one process with the whole batch. They run on the learner's machine, or where torchrun has started
    them. For networks and batches so large that an update takes much longer than a message: the learner's log says
    after 46 batches whether they gain anything. All but MuZero, and your own algorithms if they declare it. Serial mode
    has one."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """What the large matrix products and convolutions of an update are computed in: DQN, PPO, IMPALA, SAC, TD3, and
    Rainbow of images (MuZero has `policy.precision`). Weights, gradients, the optimizer, losses, the layers that
    read observations other than images, the last layer of every network and target networks (but those of SAC and
    TD3) are float32 always, as are policy files, checkpoints and model/. `bfloat16` is two to four times as fast on
    processors with instructions for it (AMX), and leaves small products as they are. `auto` takes float32 where
    there are no such instructions. In parallel mode with one rank it computes the first updates in both by turns,
    and keeps what took clearly less time; in serial mode, which times nothing, it takes bfloat16 where there is AMX
    or a GPU that has it. A resumed run keeps what was decided. Unless it is `float32`, collectors of parallel mode
    time bfloat16, too, for policies that read images, and record the probabilities by which they really acted."""
    initialize_from: str | None = None
    """Checkpoint file with the initial weights of a new run; nothing else is taken from it. A relative path starts at
    the folder of the config file. The option --initialize-from RUN sets this to the best checkpoint of that run."""
    inference: bool = False
    """No updates: the policy with which the run begins (or is resumed) acts with the least exploration of its schedule,
    and is evaluated."""

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
    """Collectors that the experiment asks for (serial mode has one)."""
    minimum: Workers = 1
    """The experiment starts when this number of collectors is free. Collectors beyond it are lent to experiments of the
    same or a higher priority that wait for their own minimum."""
    chunk_env_steps: Annotated[int, Field(gt=0, le=10_000_000), BeforeValidator(no_bool)] | None = None
    """Environment steps per chunk, rounded up to whole steps of all environments of a collector. With small chunks
    collectors get new policies sooner; large ones cost fewer messages. Null is 64. In parallel mode without
    buffer.samples_per_insert, where collectors run at full speed, null is 512 steps of each environment or 0.1 s,
    whichever is less. On-policy chunks have policy.horizon_steps steps of each environment."""
    device: str = "cpu"
    """Where a collector computes actions: cpu, or a GPU (cuda, cuda:1) for large networks. With a GPU, give one
    collector many environments in processes (env.num_envs, env.vectorization: async): the actions for all of them are
    computed as one batch."""

    @model_validator(mode="after")
    def _minimum_is_within_count(self) -> CollectorConfig:
        if self.minimum > self.count:
            raise ValueError(f"minimum ({self.minimum}) is more than count ({self.count}): it would never start")
        return self


class EvaluatorConfig(Section):
    """How the policy is evaluated."""

    count: Workers = 1
    """Evaluators that the experiment asks for (serial mode has one)."""
    episodes: Annotated[NonNegative, Field(le=MOST_EVALUATION_EPISODES)] = 5
    """Episodes per evaluation, shared between the evaluators; their seeds are the same at every evaluation. With 0
    there are no evaluations, and the newest training episodes decide which checkpoint is the best (see
    `window_episodes`)."""
    max_episode_steps: Positive = 30_000
    """Evaluation episodes are cut after this number of steps, with a warning, since an environment without its own
    limit may never end. The longest Atari games have 27,000 steps."""
    interval_env_steps: Positive = 5_000
    """Environment steps between evaluations. The first evaluation plays the initial policy at env_step 0."""
    window_episodes: Positive = 100
    """Only if `episodes` is 0: the mean return of this number of newest training episodes takes the place of an
    evaluation, also for the best checkpoint and stop.stop_value. These episodes explore. There is no value before
    there are that many."""


class ReanalyzerConfig(Section):
    """Workers that compute columns of stored rows again with the target network, in place of the learner: Reanalyse of
    MuZero (`policy.reanalyze_ratio`). Parallel mode only; in serial mode the learner does it."""

    count: Annotated[int, Field(ge=0, le=100_000), BeforeValidator(no_bool)] = 0
    """Reanalyzers that the experiment asks for. With 0 the learner does it, as part of each update. Otherwise the
    learner computes nothing again, and `policy.reanalyze_ratio` is how many rows reanalyzers compute again for each row
    that is drawn, at most: they draw chunks as batches are drawn, and compute a chunk once for each target network. The
    experiment starts without them and takes free ones as they come; while it has none nothing is computed again."""
    device: str = "cpu"
    """Where a reanalyzer computes: a torch device."""


class BufferConfig(Section):
    """What the replay index keeps, and how rows are drawn from it. On-policy algorithms use each row once, in order,
    and only the settings `max_policy_lag` and `quota_bytes` apply to them."""

    capacity: Annotated[int, Field(gt=0, le=LARGEST_CAPACITY), BeforeValidator(no_bool)] = 100_000
    """Rows kept; the oldest are evicted first. Memory grows with the rows: about 50 bytes each in the coordinator, and
    their content in the learner."""
    min_rows: Positive = 1_000
    """Rows collected before the first update."""
    prioritized: bool = True
    """Draw rows in proportion to their priority (Schaul et al. 2016) instead of uniformly."""
    priority_exponent: Fraction = 0.6
    """alpha of prioritized replay: 0 is uniform, 1 fully proportional."""
    importance_exponent: Fraction = 0.4
    """beta of prioritized replay at the start: the part of the sampling bias that the weights correct."""
    importance_anneal_iters: Positive = 20_000
    """Gradient updates over which beta rises linearly to 1."""
    samples_per_insert: Annotated[float, Field(ge=1e-6, le=1e6), BeforeValidator(no_bool)] | None = 8.0
    """How often a row is sampled on average. Collectors wait when the learner is behind, and the learner waits when
    collectors are behind; a run that reaches stop.max_env_steps ends when the learner has caught up. With null neither
    waits."""
    max_policy_lag: Annotated[int, Field(ge=0, le=10_000), BeforeValidator(no_bool)] | None = 0
    """On-policy algorithms only: largest number of updates between the policy that collected a row and the policy that
    learns from it. Older rows are dropped and counted. 0 is strictly on-policy; null drops nothing."""
    quota_bytes: Positive = 8 << 30
    """Most bytes of payload files in data/; when they are reached the oldest rows are evicted earlier."""


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
    """Gradient updates."""
    max_wall_s: PositiveFloat | None = None
    """Seconds since the run started. An evaluation under way at that time, and the evaluation of the last checkpoint,
    may take a tenth of it longer (at least 5 s, at most 600 s); then they are given up."""


class LogConfig(Section):
    """How often each log is written."""

    interval_train_iters: Positive = 100
    """Gradient updates between tables of the learner's log, and the least number between reports of a collector. With
    `learner.inference` there are no updates, and collectors report every `progress_interval_env_steps`."""
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


class AffinityConfig(Section):
    """Core numbers for each role. Cores that a process may not use are left out."""

    learner: Cores | None = None
    """The learner runs on these, with one torch thread per core, four at most; null is every core, with one thread."""
    collector: Cores | None = None
    """Each collector runs on one of these, in turn."""
    evaluator: Cores | None = None
    """Each evaluator runs on one of these, in turn."""
    reanalyzer: Cores | None = None
    """Each reanalyzer runs on one of these, in turn."""


class LimitsConfig(Section):
    """Time limits, without any progress, for slow steps of a worker. A worker that takes longer is dismissed: its
    process ends and is started again, and the run counts a failure. In any other work a worker is dismissed after two
    minutes without progress (see `remuda coordinator --limit`). Parallel mode only."""

    prepare_s: PositiveFloat = 1_800.0
    """Seconds for building environments and networks, and for loading a checkpoint or a policy. Each file of replay
    that is loaded counts as progress."""
    save_s: PositiveFloat = 1_800.0
    """Seconds for saving a checkpoint. The end of a run waits this long for the last one."""
    rank_s: PositiveFloat = 60.0
    """Seconds that one learner rank waits for another in an update. Then the learner has failed, and starts again from
    the last checkpoint. Less than the two minutes above, or the learner is dismissed without this reason."""


class AgentsPolicyConfig(Section):
    """One of several policies: whose actions it makes, and how it learns. Its sections `policy`, `learner` and `buffer`
    need to name only what differs from those of the whole config; a `policy` of another `type` takes nothing from
    there."""

    agents: Annotated[tuple[AgentPattern, ...], Field(min_length=1, max_length=1_000)]
    """Names of the agents whose actions it makes; `*` and `?` stand for characters, as in names of files:
    `[adversary_*]`. Each agent of the environment belongs to exactly one policy."""
    policy: PolicyConfig
    """Its algorithm and its networks."""
    learner: LearnerConfig
    """Its updates."""
    buffer: BufferConfig
    """Its replay."""


class ExperimentConfig(Section):
    """All settings of one experiment; the same config runs in serial and in parallel mode."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    """Name of the experiment and, without --run-dir and --run-id, of its run folder."""
    seed: NonNegative = 0
    """Every worker, environment and network derives its own seed from this one."""
    env: EnvConfig
    """The environment."""
    policy: PolicyConfig = DqnConfig()
    """The algorithm and its networks. `type` selects the algorithm (dqn if it is missing) and with it the settings."""
    policies: Annotated[dict[PolicyName, AgentsPolicyConfig], Field(max_length=MOST_POLICIES)] = {}  # noqa: RUF012
    """Several policies by name, with env.kind pettingzoo: whose actions each makes and how it learns. Each has a
    learner, checkpoints (`ckpt/<name>/`), logs and curves of its own. Without it all agents share `policy`."""
    self_play: SelfPlayConfig = SelfPlayConfig()
    """Training against older checkpoints."""
    learner: LearnerConfig = LearnerConfig()
    """Updates and publishing."""
    collector: CollectorConfig = CollectorConfig()
    """Collecting experience."""
    evaluator: EvaluatorConfig = EvaluatorConfig()
    """Evaluating the policy."""
    reanalyzer: ReanalyzerConfig = ReanalyzerConfig()
    """Computing stored rows again."""
    buffer: BufferConfig = BufferConfig()
    """Replay."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """Checkpoints."""
    stop: StopConfig = StopConfig()
    """Stop conditions."""
    log: LogConfig = LogConfig()
    """Logs."""
    limits: LimitsConfig = LimitsConfig()
    """Time limits of workers."""
    launch: LaunchConfig = LaunchConfig()
    """What starts the processes of `remuda launch`."""
    affinity: Literal["auto", "none"] | AffinityConfig = "none"
    """Which cores processes run on. `none` leaves that to the operating system. `auto` gives each process of the run
    its own core, and the learner the rest, if there are enough cores; use it on machines that serve one run at a time.
    Or name cores by role: {learner: [0, 1], collector: [2, 3]}."""
    source_dir: str | None = None
    """Folder of the config file, set when it is loaded; `env.make` is looked up there."""

    @model_validator(mode="before")
    @classmethod
    def _policies_take_sections_from_above(cls, value: object) -> object:
        return with_sections_above(value)

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
        if self.reanalyzer.count and self.policy.reanalyzed_share is None:
            raise ValueError(
                f"reanalyzer.count is {self.reanalyzer.count}, and policy.type {self.policy.type} has nothing to "
                "compute again: set it to 0"
            )
        if self.policy.segment_steps is not None:
            self._check_segments(self.policy.segment_steps)
        if self.learner.ranks > 1:
            self._check_ranks()
        if self.learner.precision == "bfloat16" and not self.policy.lowers_products:
            has_own = "precision" in type(self.policy).model_fields
            own = "set policy.precision instead" if has_own else "leave it out"
            raise ValueError(
                f"learner.precision is bfloat16, which does not reach the networks of policy.type {self.policy.type}: "
                f"{own}"
            )
        if self.env.kind == "pettingzoo" or self.policies or self.self_play.share:
            self._check_several_agents()
        return self

    @property
    def obstacle_to_herds(self) -> str | None:
        """Why this experiment cannot run in parallel mode; None if it can."""
        if self.env.kind != "pettingzoo":
            return None
        return "environments with several agents (env.kind pettingzoo) are trained in one process: use remuda train"

    def of_policy(self, name: str) -> ExperimentConfig:
        """The settings under which one of `policies` learns, as those of a run of its own."""
        one = self.policies[name]
        own: dict[str, object] = {"policies": {}, "policy": one.policy, "learner": one.learner, "buffer": one.buffer}
        return ExperimentConfig.model_validate({**dict(self), **own})

    def _check_several_agents(self) -> None:
        """Raise ValueError for settings that environments with several agents need, or do not have."""
        if self.env.kind != "pettingzoo":
            setting = "policies" if self.policies else "self_play.share"
            raise ValueError(f"{setting} is for environments with several agents: set env.kind to pettingzoo")
        if self.log.film_interval_env_steps is not None:
            raise ValueError("log.film_interval_env_steps is not available with env.kind pettingzoo: leave it out")
        if self.self_play.share and 0 < self.checkpoint.keep < self.self_play.keep:
            raise ValueError(
                f"self_play.keep ({self.self_play.keep}) is more than checkpoint.keep ({self.checkpoint.keep}): older "
                "checkpoints would be gone"
            )
        for name in self.policies:
            try:
                self.of_policy(name)
            except ValidationError as error:
                told = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
                raise ValueError(f"policies.{name}: {told}") from None
        horizons = {name: one.policy.segment_steps for name, one in self.policies.items()}
        if len({steps for steps in horizons.values() if steps is not None}) > 1:
            told = ", ".join(f"{name}: {steps}" for name, steps in horizons.items() if steps is not None)
            raise ValueError(
                f"on-policy algorithms collect together, so policy.horizon_steps has to be the same in all policies "
                f"({told})"
            )

    def _check_ranks(self) -> None:
        """Raise ValueError if several learner ranks could not learn together."""
        if not self.policy.learns_from_parts:
            raise ValueError(
                f"learner.ranks is {self.learner.ranks}, and policy.type {self.policy.type} cannot learn from parts of "
                "a batch (its declaration does not say learns_from_parts): set it to 1"
            )
        rows = self.learner.batch_size
        if self.policy.segment_steps is not None:
            rows = self.learner.segments_per_update or self.env.num_envs * self.collector.count
        if rows < self.learner.ranks:
            raise ValueError(
                f"learner.ranks ({self.learner.ranks}) is more than the rows of a batch ({rows}): a rank would have "
                "none"
            )

    def _check_segments(self, horizon_steps: int) -> None:
        """Raise ValueError if an on-policy run would need more memory than any machine has."""
        envs, lag = self.env.num_envs * self.collector.count, self.buffer.max_policy_lag or 0
        waiting = (lag + 1) * (self.learner.segments_per_update or envs)
        steps = max(waiting * horizon_steps, self.env.num_envs * horizon_steps)
        if steps > LARGEST_CAPACITY:
            raise ValueError(
                f"{steps} steps would have to be kept at once, and the most is {LARGEST_CAPACITY}: lower "
                "policy.horizon_steps, learner.segments_per_update (env.num_envs times collector.count where it is "
                "null) or buffer.max_policy_lag"
            )
