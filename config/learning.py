"""Settings of the learner, of replay, and of several policies."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Annotated, Literal, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from remuda.config.algorithms.registry import PolicyConfig
from remuda.config.errors import dotted
from remuda.config.section import (
    LARGEST_CAPACITY,
    LARGEST_REQUEST,
    MOST_LEAGUE,
    MOST_OPPONENTS,
    REFERENCE,
    Correlation,
    Fraction,
    Kwargs,
    MayChange,
    NonNegativeFloat,
    OnlyFor,
    Positive,
    PositiveFloat,
    ScheduledSection,
    Section,
    no_bool,
    or_auto,
)
from remuda.config.user_code import UserCodeError, require_arguments, user_object

OPTIMIZER, OPTIMIZER_SETTINGS = "learner.optimizer", "learner.optimizer_settings"
USUAL_OPTIMIZER = "adam"
_GIVEN = {"lr": "learner.learning_rate is given as that", "params": "the learner gives the parameters"}


class AdamSettings(Section):
    """Adam (Kingma and Ba 2015)."""

    betas: tuple[Correlation, Correlation] = (0.9, 0.999)
    """Decay of the running means of the gradient and of the squared gradient."""
    eps: NonNegativeFloat = 1e-8
    """Added to the root of the mean square: larger values make steps smaller where gradients are small."""
    weight_decay: NonNegativeFloat = 0.0
    """Share of a weight added to its gradient (L2 penalty)."""


class AdamwSettings(AdamSettings):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    weight_decay: NonNegativeFloat = 1e-2
    """Share of a weight, times the step size, subtracted from the weight."""


class RmspropSettings(Section):
    """RMSProp (Tieleman and Hinton 2012)."""

    alpha: Correlation = 0.99
    """Decay of the running mean of the squared gradient."""
    eps: NonNegativeFloat = 1e-8
    """Added to the root of the mean square."""
    eps_inside_root: bool = False
    """Add `eps` to the mean square itself, as TensorFlow does."""
    centered: bool = False
    """Divide by the gradient's standard deviation instead of the root mean square (Graves 2013)."""
    momentum: Correlation = 0.0
    """Share of the former step added to a step."""
    weight_decay: NonNegativeFloat = 0.0
    """Share of a weight added to its gradient (L2 penalty)."""


BUILT_IN_OPTIMIZERS: Mapping[str, type[Section]] = MappingProxyType(
    {"adam": AdamSettings, "adamw": AdamwSettings, "rmsprop": RmspropSettings}
)


def _known(name: str) -> str:
    if name not in BUILT_IN_OPTIMIZERS and not re.match(REFERENCE, name):
        raise ValueError(f'should be one of {", ".join(BUILT_IN_OPTIMIZERS)}, or module:Class, not "{name[:60]}"')
    return name


OptimizerName = Annotated[
    str,
    AfterValidator(_known),
    WithJsonSchema({"anyOf": [{"enum": [*BUILT_IN_OPTIMIZERS]}, {"type": "string", "pattern": REFERENCE}]}),
]


def require_settings(optimizer: str, settings: Mapping[str, JsonValue]) -> None:
    """Check the settings of a built-in optimizer. Raises ValueError with the names of wrong settings."""
    kind = BUILT_IN_OPTIMIZERS.get(optimizer)
    if kind is None:
        return
    try:
        kind.model_validate(settings)
    except ValidationError as error:
        problems = (_problem(optimizer, kind, one["loc"], one["msg"]) for one in error.errors(include_url=False))
        raise ValueError("; ".join(problems)) from None


def _problem(optimizer: str, kind: type[Section], loc: tuple[int | str, ...], message: str) -> str:
    if loc[0] in kind.model_fields:
        return f"{dotted(loc)}: {message.removeprefix('Value error, ').replace('Input should', 'should')}"
    near = get_close_matches(str(loc[0])[:60], kind.model_fields, n=1)
    hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(kind.model_fields)}"
    return f"{str(loc[0])[:60]}: {optimizer} has no such setting; {hint}"


def own_optimizer(
    reference: str, settings: Mapping[str, JsonValue], *, source_dir: str | None
) -> Callable[..., object]:
    """Import the user's class, and check its call with parameters, `lr` and these settings. Raises UserCodeError."""
    given = user_object(reference, setting=OPTIMIZER, source_dir=source_dir, kind="class")
    found = cast("Callable[..., object]", given)
    for name, instead in _GIVEN.items():
        if name in settings:
            raise _wrong(f"leave {name} out: {instead}")
    require_arguments(found, settings, setting=OPTIMIZER_SETTINGS, reference=reference)
    try:
        inspect.signature(found).bind([], lr=0.0, **settings)
    except TypeError as error:
        call = ", ".join(["parameters", "lr=…", *(f"{name}=…" for name in settings)])
        raise _wrong(f"{reference} cannot be called with ({call}): {error}") from None
    except ValueError:  # some classes written in C do not tell their parameters
        pass
    return found


def _wrong(text: str) -> UserCodeError:
    return UserCodeError(OPTIMIZER_SETTINGS, f"{OPTIMIZER_SETTINGS}: {text}")


Segments = Annotated[int, Field(gt=0, le=1_000_000), BeforeValidator(no_bool)]
SamplesPerInsert = Annotated[float, Field(ge=1e-6, le=1e6), BeforeValidator(no_bool)]
PolicyLag = Annotated[int, Field(ge=0, le=10_000), BeforeValidator(no_bool)]
Precision = Literal["float32", "bfloat16"]
"""Number format of the products of an update."""


class LearnerConfig(ScheduledSection):
    """Updating and publishing the policy."""

    batch_size: Annotated[int, Field(gt=0, le=LARGEST_REQUEST), BeforeValidator(no_bool), OnlyFor("replay")] = 64
    """Replay only: rows per gradient update. On-policy algorithms have `segments_per_update`."""
    learning_rate: Annotated[PositiveFloat, MayChange(NonNegativeFloat)] = 1e-3
    """Step size of the optimizer."""
    optimizer: OptimizerName = USUAL_OPTIMIZER
    """`adam` (Kingma and Ba 2015), `adamw` (Loshchilov and Hutter 2019), `rmsprop` (Tieleman and Hinton 2012), or your
    own as `module:Class`, in the folder of the config or installed: a torch.optim.Optimizer, for example
    torch.optim:NAdam. Your class is called as Class(parameters, lr=learning_rate, and `optimizer_settings` by name);
    parameters are pairs of name and torch.nn.Parameter, as torch takes them, so the class may treat matrices or layers
    differently. Checkpoints keep the state of the optimizer, and a resumed run needs the same optimizer. Your own
    algorithm gets the optimizer by remuda.learning.make_optimizer."""
    optimizer_settings: Kwargs = {}  # noqa: RUF012  (pydantic copies it)
    """Further settings of the optimizer, by torch's names. Omitted settings have torch's defaults. adam: `betas` [0.9,
    0.999], `eps` 1e-8, `weight_decay` 0 (adds this share of the weights to the gradient). adamw: the same, with
    `weight_decay` 0.01 (subtracts this share of the weights, times the learning rate). rmsprop: `alpha` 0.99, `eps`
    1e-8, `eps_inside_root` false (true adds eps to the mean square instead of its root, as TensorFlow does), `centered`
    false, `momentum` 0, `weight_decay` 0. Algorithms may have different defaults for their usual optimizer."""
    max_grad_norm: Annotated[PositiveFloat | None, MayChange()] = 10.0
    """Largest norm of a gradient; larger gradients are scaled down. Null never scales."""
    publish_interval_iters: Annotated[Positive, OnlyFor("replay")] = 10
    """Least number of gradient updates between two versions of the policy file. In parallel mode publishing takes about
    1 % of the learner's time at most, so large networks are published less often. On-policy algorithms publish after
    every batch."""
    segments_per_update: Annotated[Segments | None, OnlyFor("once")] = None
    """On-policy algorithms only: segments (of `policy.horizon_steps` steps of one environment) in a batch. IMPALA makes
    one gradient update per batch, PPO and PQN several. Null is one segment from every environment of `collector.count`
    collectors, also in serial mode, where one collector makes all segments. If `collector.count` or `env.num_envs` is
    `auto`, null is computed from their defaults."""
    prefetch_batches: Annotated[int, Field(gt=0, le=10_000), BeforeValidator(no_bool), OnlyFor("replay")] = 16
    """Replay only: batches per request. The next request is under way while the learner trains on these."""
    threads: Annotated[int, Field(gt=0, le=64), BeforeValidator(no_bool), or_auto(64)] | None = None
    """CPU threads of an update, in one rank. Null is one thread; for large updates null is more, on cores that the rest
    of the run does not need. `auto`: see `collector.count`. The number affects the rounding of sums."""
    device: str = "cpu"
    """A torch device: cpu, cuda, cuda:1. With several ranks, cuda is a separate GPU per rank."""
    ranks: Annotated[int, Field(gt=0, le=64), BeforeValidator(no_bool)] = 1
    """Processes that learn together: every rank computes the gradient of a part of the batch, and all ranks take the
    same step, equal to the step of one process with the whole batch. The ranks run on the learner's machine, or on the
    hosts of torchrun. Useful for networks and batches so large that an update takes much longer than a message: after
    46 batches the learner's log shows the gain. Available for all algorithms except MuZero, IQL, CrossQ with batch
    normalisation, and recurrent PPO and PQN, and for your own algorithms by declaration. Serial mode has one rank."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Number format of the large matrix products and convolutions of an update: for DQN, PPO, IMPALA and PQN without
    recurrence, SAC, TD3 and IQL without hyperspherical layers, Rainbow of images, and your own algorithms by
    declaration (MuZero has `policy.precision`). Always float32: weights, gradients, the optimizer, losses, layers that
    read observations other than images, the last layer of every network, target networks (except of SAC, TD3 and IQL),
    policy files, checkpoints and model/. `bfloat16` is two to four times as fast on processors with instructions for
    bfloat16 (AMX, AVX512_BF16), and leaves small products in float32. `auto` takes float32 on processors without these
    instructions. In parallel mode with one rank, `auto` computes the first updates alternately in both formats, and
    keeps the clearly faster format; in serial mode, without timing, `auto` takes bfloat16 if the processor or the GPU
    has the instructions. A resumed run keeps the decision. Unless set to `float32`, collectors of parallel mode also
    time bfloat16 for policies that read images, and record the true probabilities of their actions."""
    compile: bool = False
    """Compile the convolutions that read images, and their backward pass, by torch.compile: DQN, Rainbow, R2D2, PPO and
    IMPALA. Meant for a GPU (`device`), where no timings exist yet: compare updates per second with and without. The
    first update takes a minute longer; on a CPU torch needs a C++ compiler. Observations other than images are not
    affected."""
    initialize_from: str | None = None
    """Checkpoint file with the initial weights of a new run; only the weights are read. A relative path starts at the
    folder of the config file. The option --initialize-from RUN names the best checkpoint of a run."""
    initialize_from_demonstrations: str | None = None
    """Folder of a Minari dataset that the policy of a new run imitates first, for `demonstration_iters` updates
    (behaviour cloning); then the run begins. A relative path starts at the folder of the config file. Not for policies
    that remember observations or normalise batches (crossq), nor for muzero. See datasets.md."""
    demonstration_iters: Positive = 1_000
    """Updates of the imitation, of 256 steps each; they are not among `train_iter`."""
    inference: bool = False
    """Evaluate without updates: the initial (or resumed) policy acts with the least exploration of the schedule."""

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
    """Contents of the replay index, and sampling of rows. On-policy algorithms use every row once, in order, and read
    only `max_policy_lag` and `quota_bytes`."""

    capacity: Annotated[int, Field(gt=0, le=LARGEST_CAPACITY), BeforeValidator(no_bool), OnlyFor("replay")] = 100_000
    """Number of rows kept; the oldest rows are evicted first. Memory grows with the rows: about 50 bytes per row in the
    coordinator, and the content of the rows in the learner."""
    min_rows: Annotated[Positive, OnlyFor("replay")] = 1_000
    """Rows collected before the first update."""
    prioritized: Annotated[bool, OnlyFor("replay")] = True
    """Sample rows in proportion to their priorities (Schaul et al. 2016) instead of uniformly."""
    priority_exponent: Annotated[Fraction, OnlyFor("replay")] = 0.6
    """alpha of prioritized replay: 0 is uniform, 1 fully proportional."""
    importance_exponent: Annotated[Fraction, OnlyFor("replay")] = 0.4
    """beta of prioritized replay at the start: the part of the sampling bias corrected by the weights."""
    importance_anneal_iters: Annotated[Positive, OnlyFor("replay")] = 20_000
    """Gradient updates over which beta rises linearly to 1."""
    samples_per_insert: Annotated[SamplesPerInsert | None, OnlyFor("replay")] = 8.0
    """Average number of samples per row. Collectors wait for a slower learner, and the learner waits for slower
    collectors; at stop.max_env_steps the run ends after the learner has caught up. With null neither side waits."""
    max_policy_lag: Annotated[PolicyLag | None, OnlyFor("once")] = 0
    """On-policy algorithms only: largest number of learned batches between the policy that collected a row and the
    policy that learns from the row. Older rows are dropped and counted. 0 is strictly on-policy; null drops nothing."""
    demonstrations: Annotated[str | None, OnlyFor("replay")] = None
    """Folder of a Minari dataset whose steps are in every batch, besides `learner.batch_size` rows of the replay, for
    algorithms that replay single steps. A relative path starts at the folder of the config file. See datasets.md."""
    demonstration_share: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False), BeforeValidator(no_bool)] = 0.25
    """Share of the steps of `demonstrations` in a batch."""
    quota_bytes: Positive = 8 << 30
    """Limit for the bytes of payload files in data/; at this limit the oldest rows are evicted earlier."""


TAKEN_NAMES = frozenset(
    {"buffer", "collector", "commander", "evaluator", "inference", "learner", "reanalyzer", "serial"}
)
"""Names of log folders, next to the log folders of the policies."""


def _not_taken(name: str) -> str:
    if name in TAKEN_NAMES:
        raise ValueError(f"{name} is the name of a folder of logs: choose another name for the policy")
    return name


PolicyName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,49}$"), AfterValidator(_not_taken)]
"""Name of folders and of journal tables, where some systems ignore the case of letters."""
AgentPattern = Annotated[str, Field(min_length=1, max_length=200)]
MOST_POLICIES = 100


class ExploiterConfig(Section):
    """A policy of a league that looks for weaknesses of others."""

    against: Literal["main", "league"] = "main"
    """Opponents: `main`, the newest versions of the main policies (and their checkpoints in `self_play.share` of its
    episodes), or `league`, the whole pool."""
    reset_win_rate: Fraction = 0.7
    """At this share of won games, draws as halves, an evaluated checkpoint joins the pool, and the exploiter begins
    again with its first weights: in games against the newest main checkpoint in the pool, or against the pool."""
    reset_env_steps: Positive | None = None
    """Environment steps after which it joins and begins again in any case; null: never."""


class LeagueConfig(Section):
    """A league: opponents are a pool of checkpoints of all policies, drawn by rating."""

    pool: Annotated[int, Field(ge=2, le=MOST_LEAGUE)] = 10
    """Checkpoints in the pool. Every evaluated checkpoint of a main policy joins; beyond the limit the checkpoint
    nearest in time to its predecessor leaves, never the first or newest of a policy."""
    matching: Literal["hard", "even", "uniform"] = "hard"
    """Weight of an opponent against which a policy wins with probability p: `hard` (1 - p)^2, `even` p (1 - p),
    `uniform` 1."""
    exploiters: dict[PolicyName, ExploiterConfig] = {}  # noqa: RUF012
    """Names of `policies` that are exploiters; all others are main policies."""


class SelfPlayConfig(Section):
    """Games against older checkpoints, in environments with several agents: a policy then learns to play against more
    than its newest version."""

    share: Fraction = 0.0
    """Share of training episodes against older checkpoints: one random agent is played by the newest policy and learns,
    and all further agents are played by older checkpoints of their policies and do not learn. Above 0 the newest
    evaluated checkpoint counts as the best, because returns then say little about strength, and evaluations also report
    the result of an agent of each policy against older checkpoints (`against_past`)."""
    keep: Annotated[Positive, Field(le=MOST_OPPONENTS)] = 5
    """Number of newest checkpoints per policy from which opponents are drawn, one per policy and episode. Their
    files stay, whatever `checkpoint.keep`. Without a league."""
    league: LeagueConfig | None = None
    """Opponents are drawn from a pool by rating, and each of several policies acts for all agents by turns; see
    several-agents.md."""


class AgentsPolicyConfig(Section):
    """One of several policies: its agents and its learning. The sections `policy`, `learner` and `buffer` name only the
    differences from the whole config; a `policy` of another `type` takes nothing from the whole config."""

    agents: Annotated[tuple[AgentPattern, ...], Field(min_length=1, max_length=1_000)]
    """Names of the policy's agents; `*` and `?` stand for characters, as in file names: `[adversary_*]`. Every agent of
    the environment belongs to exactly one policy."""
    policy: PolicyConfig
    """Algorithm and networks."""
    learner: LearnerConfig
    """Updates."""
    buffer: BufferConfig
    """Replay."""
