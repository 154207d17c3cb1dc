"""The settings of the learner and of what it learns from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, ValidationInfo, field_validator, model_validator

from remuda.config.algorithms.custom import PolicyConfig
from remuda.config.numbers import (
    LARGEST_CAPACITY,
    LARGEST_REQUEST,
    MOST_OPPONENTS,
    Fraction,
    Kwargs,
    NonNegativeFloat,
    Positive,
    PositiveFloat,
    no_bool,
    or_auto,
)
from remuda.config.optimizers import USUAL_OPTIMIZER, OptimizerName, require_settings
from remuda.config.section import MayChange, ScheduledSection, Section

Precision = Literal["float32", "bfloat16"]
"""What products are computed in."""


class LearnerConfig(ScheduledSection):
    """How the policy is updated, and how often it is published."""

    batch_size: Annotated[int, Field(gt=0, le=LARGEST_REQUEST), BeforeValidator(no_bool)] = 64
    """Replay only: rows per gradient update. On-policy algorithms have `segments_per_update`."""
    learning_rate: Annotated[PositiveFloat, MayChange(NonNegativeFloat)] = 1e-3
    """Step size of the optimizer."""
    optimizer: OptimizerName = USUAL_OPTIMIZER
    """`adam` (Kingma and Ba 2015), `adamw` (Loshchilov and Hutter 2019), `rmsprop` (Tieleman and Hinton 2012), or your
    own as `module:Class`, in the folder of the config or installed: a torch.optim.Optimizer, as torch.optim:NAdam. Your
    class gets one parameter, a vector of all weights, and is called as Class([parameter], lr=learning_rate, and
    `optimizer_settings` by name). Checkpoints keep its state, and a resumed run needs the same one. An algorithm of
    your own has it by remuda.learning.make_optimizer."""
    optimizer_settings: Kwargs = {}  # noqa: RUF012  (pydantic copies it)
    """Further settings of the optimizer, by torch's names; those that are left out have torch's defaults, as below.
    adam: `betas` [0.9, 0.999], `eps` 1e-8, `weight_decay` 0, which adds this share of the weights to the gradient.
    adamw: the same, with `weight_decay` 0.01, which takes this share of the weights times the learning rate off them.
    rmsprop: `alpha` 0.99, `eps` 1e-8, `eps_inside_root` false (true adds eps to the mean square, not to its root, as
    TensorFlow does), `centered` false, `momentum` 0, `weight_decay` 0. Algorithms have defaults of these for the
    optimizer that is theirs."""
    max_grad_norm: Annotated[PositiveFloat | None, MayChange()] = 10.0
    """Gradients with a larger norm are scaled down to it; null never scales."""
    publish_interval_iters: Positive = 10
    """Least number of gradient updates between two versions of the policy file. In parallel mode publishing takes about
    1 % of the learner's time at most, so large networks are published less often. On-policy algorithms publish after
    every batch."""
    segments_per_update: Annotated[int, Field(gt=0, le=1_000_000), BeforeValidator(no_bool)] | None = None
    """On-policy algorithms only: segments (of `policy.horizon_steps` steps of one environment) of a batch, with which
    IMPALA makes one gradient update and PPO several. Null is one segment from each environment of `collector.count`
    collectors, also in serial mode, where one collector makes all of them. Where these two are `auto`, null is what it
    would be with their defaults."""
    prefetch_batches: Annotated[int, Field(gt=0, le=10_000), BeforeValidator(no_bool)] = 16
    """Replay only: batches per request. The next request is under way while the learner trains on these."""
    threads: Annotated[int, Field(gt=0, le=64), BeforeValidator(no_bool), or_auto(64)] | None = None
    """Threads that an update is computed with, on a CPU, by one rank. Null is one, and more for large updates on cores
    that nothing else of the run needs meanwhile. `auto`: see `collector.count`. The number decides how sums are
    rounded."""
    device: str = "cpu"
    """A torch device: cpu, cuda, cuda:1. With several ranks, cuda is a GPU for each of them."""
    ranks: Annotated[int, Field(gt=0, le=64), BeforeValidator(no_bool)] = 1
    """Processes that learn together: each computes the gradient of its part of every batch, and all take the same step,
    which is that of one process with the whole batch. They run on the learner's machine, or where torchrun has started
    them. For networks and batches so large that an update takes much longer than a message: the learner's log says
    after 46 batches whether they gain anything. All but MuZero and recurrent PPO, and your own algorithms if they
    declare it. Serial mode has one."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """What the large matrix products and convolutions of an update are computed in: DQN, PPO and IMPALA that are not
    recurrent, SAC, TD3, Rainbow of images, and your own algorithms if they declare it (MuZero has `policy.precision`).
    Weights, gradients, the optimizer, losses, the layers that read observations other than images, the last layer of
    every network and target networks (but those of SAC and TD3) are float32 always, as are policy files, checkpoints
    and model/. `bfloat16` is two to four times as fast on processors with instructions for it (AMX, AVX512_BF16), and
    leaves small products as they are. `auto` takes float32 where there are no such instructions. In parallel mode with
    one rank it computes the first updates in both by turns, and keeps what took clearly less time; in serial mode,
    which times nothing, it takes bfloat16 where there are these instructions or a GPU that has it. A resumed run keeps
    what was decided. Unless it is `float32`, collectors of parallel mode time bfloat16, too, for policies that read
    images, and record the probabilities by which they really acted."""
    compile: bool = False
    """Compile the convolutions that read images, and their way back, by torch.compile: DQN, Rainbow, R2D2, PPO and
    IMPALA. Meant for a GPU (`device`), where it has not been timed yet: compare updates per second with and without.
    The first update then takes a minute longer; on a CPU torch needs a C++ compiler for it. Observations that are no
    images are read as before."""
    initialize_from: str | None = None
    """Checkpoint file with the initial weights of a new run; nothing else is taken from it. A relative path starts at
    the folder of the config file. The option --initialize-from RUN sets this to the best checkpoint of that run."""
    inference: bool = False
    """No updates: the policy with which the run begins (or is resumed) acts with the least exploration of its schedule,
    and is evaluated."""

    @field_validator("optimizer_settings")
    @classmethod
    def _known_to_the_optimizer(cls, settings: dict[str, JsonValue], info: ValidationInfo) -> dict[str, JsonValue]:
        if "optimizer" in info.data:  # and so it is valid
            require_settings(info.data["optimizer"], settings)
        return settings

    @model_validator(mode="after")
    def _requests_fit_a_message(self) -> LearnerConfig:
        rows = self.batch_size * self.prefetch_batches
        if rows > LARGEST_REQUEST:
            raise ValueError(
                f"batch_size ({self.batch_size}) times prefetch_batches ({self.prefetch_batches}) is {rows} rows "
                f"in one request; the most is {LARGEST_REQUEST}: lower one of them"
            )
        return self


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
    """On-policy algorithms only: largest number of batches that were learned from between the policy that collected a
    row and the policy that learns from it. Older rows are dropped and counted. 0 is strictly on-policy; null drops
    nothing."""
    quota_bytes: Positive = 8 << 30
    """Most bytes of payload files in data/; when they are reached the oldest rows are evicted earlier."""


TAKEN_NAMES = frozenset({"buffer", "collector", "commander", "evaluator", "learner", "serial"})
"""Folders of logs, beside which policies have theirs."""


def _not_taken(name: str) -> str:
    if name in TAKEN_NAMES:
        raise ValueError(f"{name} is the name of a folder of logs: choose another name for the policy")
    return name


PolicyName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,49}$"), AfterValidator(_not_taken)]
"""Names folders, and tables of the journal: neither tells capital letters from small ones everywhere."""
AgentPattern = Annotated[str, Field(min_length=1, max_length=200)]
MOST_POLICIES = 100


class SelfPlayConfig(Section):
    """Games against older checkpoints, in environments with several agents: a policy then learns to play against more
    than its newest self."""

    share: Fraction = 0.0
    """Share of training episodes in which one agent, drawn at random, is played by the newest policy and learns, and
    all others are played by older checkpoints of their policies and do not learn. Above 0 the newest checkpoint that
    was evaluated counts as the best, since returns then say little about strength; and evaluations also report how an
    agent of each policy does against older checkpoints (`against_past`)."""
    keep: Annotated[Positive, Field(le=MOST_OPPONENTS)] = 5
    """The number of newest checkpoints of each policy from which opponents are drawn, one for each policy and episode.
    At most `checkpoint.keep`."""


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
