"""The settings of each algorithm, which `policy` of a config holds."""

from __future__ import annotations

from typing import Annotated, Literal, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from remuda.config.declaration import Declaration, Segments
from remuda.config.numbers import (
    AnyFloat,
    Convolution,
    Correlation,
    Discount,
    Fraction,
    Hidden,
    Horizon,
    LogStd,
    NonNegativeFloat,
    NSteps,
    Positive,
    PositiveFloat,
    Units,
    UnrollSteps,
    all_finite,
    as_json,
    at_least_one_layer,
    no_bool,
)
from remuda.config.section import Section


class AlgorithmConfig(Section):
    """The section of an algorithm."""

    @property
    def segment_steps(self) -> int | None:
        """Environment steps in a segment; None where rows of experience are not segments."""
        return None

    @property
    def reanalyzed_share(self) -> float | None:
        """The share of `Declaration.reanalyzed`; None if the algorithm declares nothing to compute again."""
        return None

    @property
    def learns_from_parts(self) -> bool:
        """`Declaration.learns_from_parts`, of Remuda's own algorithms."""
        return True

    @property
    def lowers_products(self) -> bool:
        """Whether `learner.precision` reaches its networks: whether its learning side has `Algorithm.products`."""
        return True


class QLearningConfig(AlgorithmConfig):
    """Settings that all algorithms with action values have."""

    type: Literal["dqn", "rainbow", "r2d2"]
    """Which algorithm."""
    hidden: Annotated[Hidden, AfterValidator(at_least_one_layer)] | None = None
    """Units of each hidden layer, at least one layer. With `dueling`, value and advantages each have a last hidden
    layer of their own. Null is [128, 128, 64], for rainbow [128, 128], and [512] for images."""
    convolution: Convolution | None = None
    """Layers that read images (uint8 observations of two to four axes, boolean ones of three or four), each [filters,
    kernel, stride], before the hidden layers. Null takes [[32, 8, 4], [64, 4, 2], [64, 3, 1]] (Mnih et al. 2015), and
    for images of less than 36 pixels [[16, 3, 1]] (Young and Tian 2019)."""
    dueling: bool = True
    """Separate value and advantage streams (Wang et al. 2016)."""
    double: bool = True
    """Choose the next action with the online network, value it with the target (van Hasselt et al. 2016)."""
    n_step: NSteps = 3
    """Steps of reward summed before bootstrapping."""
    discount: Discount = 0.99
    """Discount per environment step."""
    epsilon_start: Fraction = 1.0
    """Share of random actions at env_step 0."""
    epsilon_end: Fraction = 0.05
    """Share of random actions after the decay."""
    epsilon_decay_env_steps: Positive | None = None
    """Environment steps over which epsilon falls linearly from start to end; null is a fifth of stop.max_env_steps, at
    most a million."""
    epsilon_spread: NonNegativeFloat = 0.0
    """How differently the environments of all collectors explore (Ape-X, Horgan et al. 2018): environment i of N takes
    epsilon ** (1 + epsilon_spread * i / (N - 1)). 0 is the same epsilon for all. Ape-X has 7, with `epsilon_start` and
    `epsilon_end` 0.4."""
    target_update_iters: Positive = 250
    """Gradient updates between hard copies of the online network into the target network."""


class DqnConfig(QLearningConfig):
    """Deep Q-learning (Mnih et al. 2015) with double, dueling, n-step and prioritized variants."""

    type: Literal["dqn"] = "dqn"  # pyright: ignore[reportIncompatibleVariableOverride]  # is never assigned to
    """Which algorithm."""


class RainbowConfig(QLearningConfig):
    """Rainbow (Hessel et al. 2018): Q-learning of whole distributions of returns, with noisy networks. Actions must be
    Discrete."""

    model_config = ConfigDict(json_schema_extra={"required": ["type"]})  # left out, it is dqn

    type: Literal["rainbow"] = "rainbow"  # pyright: ignore[reportIncompatibleVariableOverride]  # is never assigned to
    """Which algorithm."""
    distribution: Literal["categorical", "quantile"] = "categorical"
    """`categorical`: the probabilities of fixed returns from `v_min` to `v_max` (C51, Bellemare et al. 2017).
    `quantile`: returns of fixed probability (Dabney et al. 2018), which need no bounds."""
    atoms: Annotated[int, Field(gt=1, le=1000), BeforeValidator(no_bool)] = 51
    """Fixed returns, or quantiles, for each action. More describe a distribution more finely, and an update takes
    longer."""
    v_min: AnyFloat = -10.0
    """Categorical only: the least return that can be told from others. Choose it and `v_max` by the discounted returns
    of the environment; what lies beyond them counts as the bound."""
    v_max: AnyFloat = 10.0
    """Categorical only: the largest return. The range is divided evenly among the atoms, so a range that is much too
    wide tells near returns apart less well."""
    noisy: bool = True
    """Explore by learned noise in the weights of the last two layers (Fortunato et al. 2018) instead of by random
    actions: `epsilon_…` is then not used."""
    noisy_sigma: PositiveFloat = 0.5
    """Size of that noise at first, relative to that of the weights."""
    adam_epsilon: PositiveFloat = 1.5e-4
    """Added to the root of Adam's mean square: larger values make steps smaller where gradients are small."""

    @model_validator(mode="after")
    def _bounds_in_order(self) -> RainbowConfig:
        if self.distribution == "categorical" and self.v_min >= self.v_max:
            raise ValueError(f"v_min ({self.v_min:g}) should be less than v_max ({self.v_max:g})")
        return self


class R2d2Config(QLearningConfig):
    """R2D2 (Kapturowski et al. 2019): deep Q-learning with a recurrent network, which remembers the episode, from
    replayed sequences.

    A row of the buffer is a sequence: `buffer.capacity` and `buffer.min_rows` count sequences, `learner.batch_size` is
    the sequences of an update. Actions must be Discrete. The paper has `learner.learning_rate` 1e-4,
    `learner.max_grad_norm` 40, `buffer.priority_exponent` 0.9 and `buffer.importance_exponent` 0.6.
    """

    model_config = ConfigDict(json_schema_extra={"required": ["type"]})  # left out, it is dqn

    type: Literal["r2d2"] = "r2d2"  # pyright: ignore[reportIncompatibleVariableOverride]  # is never assigned to
    """Which algorithm."""
    recurrent: Literal["lstm", "gru"] = "lstm"
    """The recurrent core: long short-term memory, or gated recurrent units, which take three quarters of the time."""
    recurrent_units: Units = 128
    """Units of the core. The paper has 512, for Atari."""
    hidden: Annotated[Hidden, AfterValidator(at_least_one_layer)] | None = None
    """Units of each hidden layer between the observation and the core, at least one layer. Null is [128], and [512] for
    images."""
    head_hidden: Annotated[Hidden, AfterValidator(at_least_one_layer)] = (128,)
    """Units of each hidden layer between the core and the values, at least one layer. With `dueling`, value and
    advantages each have a last hidden layer of their own."""
    value_rescaling: bool = True
    """Learn values after sign(x)(sqrt(|x| + 1) - 1) + 0.001 x (Pohlen et al. 2018), so that large returns need no
    clipped rewards."""
    n_step: NSteps = 5
    """Steps of reward summed before bootstrapping."""
    discount: Discount = 0.997
    """Discount per environment step."""
    burn_in_steps: Annotated[int, Field(ge=0, le=10_000), BeforeValidator(no_bool)] = 40
    """Steps before those of a sequence from which nothing is learned: they bring the state, which an older network left
    with the sequence, up to date."""
    sequence_steps: Horizon = 80
    """Steps of a sequence to learn from. An update takes longer in proportion to these and the burn-in together."""
    overlap_steps: Annotated[int, Field(ge=0, le=1_000_000), BeforeValidator(no_bool)] = 40
    """Steps that neighbouring sequences of an environment share; less than `sequence_steps`. More overlap is more rows
    for the same experience."""
    priority_eta: Fraction = 0.9
    """The priority of a sequence is this share of its largest absolute error and the rest of its mean."""
    target_update_iters: Positive = 2_500
    """Gradient updates between hard copies of the online network into the target network."""

    @property
    def lowers_products(self) -> bool:
        """See AlgorithmConfig."""
        return False

    @model_validator(mode="after")
    def _sequences_move_on(self) -> R2d2Config:
        if self.overlap_steps >= self.sequence_steps:
            raise ValueError(
                f"overlap_steps ({self.overlap_steps}) must be less than sequence_steps ({self.sequence_steps}), or "
                "sequences would never move on"
            )
        return self


class ActorCriticConfig(AlgorithmConfig):
    """Settings that all algorithms with a policy and a value network have."""

    model_config = ConfigDict(json_schema_extra={"required": ["type"]})  # left out, it is dqn

    type: Literal["ppo", "impala"]
    """Which algorithm."""
    hidden: Hidden | None = None
    """Units of each hidden layer; null is [64, 64], and [512] for images."""
    shared_hidden: bool | None = None
    """Whether policy and value share the hidden layers. Sharing halves the cost of an update; separate layers keep the
    two losses from disturbing each other. Null shares them for images only."""
    convolution: Convolution | None = None
    """Layers that read images (uint8 observations of two to four axes, boolean ones of three or four), each [filters,
    kernel, stride], before the hidden layers. Null takes [[32, 8, 4], [64, 4, 2], [64, 3, 1]] (Mnih et al. 2015), and
    for images of less than 36 pixels [[16, 3, 1]] (Young and Tian 2019)."""
    activation: Literal["tanh", "relu"] | None = None
    """Activation after each hidden layer; null is tanh, and relu for images. Convolutions always use relu."""
    log_std_start: LogStd = 0.0
    """Box actions only: logarithm of the standard deviation with which collectors draw each number of an action at the
    start; it is learned, and the same in all states. Actions are clipped to their bounds, so with bounds of ±1 the
    default 0 explores widely, and -2 makes small changes around what the network says."""
    noise_correlation: Correlation = 0.0
    """Box actions only: correlation of an action's noise with that of the step before in the same environment. The
    noise of each action alone is distributed as before; given what came before it is not, which PPO and IMPALA leave
    out of account. 0 draws each alone; values near 1 push in one
    direction for about 1 / (1 - noise_correlation) steps, and find rewards that need many similar actions in a row
    (Hollenstein et al. 2024)."""
    recurrent: Literal["lstm", "gru"] | None = None
    """A recurrent core behind the hidden layers, which both policy and value read: it remembers the episode. Segments
    begin with the state that the collector had there, and gradients reach back to their beginning, not further. The
    shares of `minibatches` are then whole segments. Null remembers nothing, and is much faster."""
    recurrent_units: Units = 64
    """Units of that core."""
    discount: Discount = 0.99
    """Discount per environment step."""

    @property
    def lowers_products(self) -> bool:
        """See AlgorithmConfig."""
        return self.recurrent is None

    @model_validator(mode="after")
    def _core_reads_shared_layers(self) -> ActorCriticConfig:
        if self.recurrent is not None and (self.shared_hidden is False or self.hidden == ()):
            raise ValueError(
                "with `recurrent`, policy and value share at least one hidden layer, which the core reads: leave "
                "shared_hidden out, and hidden if it is empty"
            )
        return self


class PpoConfig(ActorCriticConfig):
    """Proximal policy optimisation (Schulman et al. 2017), on-policy: each segment of experience is used once."""

    type: Literal["ppo"] = "ppo"  # pyright: ignore[reportIncompatibleVariableOverride]  # is never assigned to
    """Which algorithm."""
    gae_lambda: Fraction = 0.95
    """lambda of generalised advantage estimation (Schulman et al. 2016): 0 looks one step ahead, 1 to the end of the
    segment."""
    horizon_steps: Horizon = 64
    """Steps of one environment in each segment. A batch is learner.segments_per_update segments."""
    epochs: Positive = 10
    """Passes over each batch."""
    minibatches: Positive = 8
    """Gradient steps per pass, each on an equal part of the batch."""
    clip: PositiveFloat = 0.2
    """The ratio of new to old action probability is clipped to 1 - clip … 1 + clip."""
    value_clip: PositiveFloat | None = None
    """The change of a value from its estimate before the update is clipped to this size; null does not clip values."""
    entropy_coefficient: NonNegativeFloat = 0.0
    """Weight of the entropy bonus in the loss."""
    value_coefficient: NonNegativeFloat = 0.5
    """Weight of the squared value error in the loss."""
    normalize_advantages: bool = True
    """Bring the advantages of each batch to mean 0 and standard deviation 1."""
    recompute_advantages: bool = False
    """Compute advantages and returns again with the newest values before each pass but the first (Andrychowicz et al.
    2021). Each of these passes then costs one evaluation of the value network more."""
    normalize_observations: bool = False
    """Bring observations to running mean 0 and standard deviation 1, clipped at 10. Observations of float64 then stay
    exact until their mean is subtracted, however large that is, and take twice the room in chunks and in memory."""
    normalize_rewards: bool = False
    """Divide rewards by the running standard deviation of the discounted return, clipped at 10."""
    target_kl: PositiveFloat | None = None
    """The remaining gradient steps of a batch are skipped once the KL divergence from the old policy exceeds 1.5 times
    this value; null never skips any."""
    anneal_env_steps: Positive | None = None
    """Learning rate and clip fall linearly to 0 over this number of environment steps that were learned from; null
    keeps them constant."""

    @property
    def learns_from_parts(self) -> bool:
        """See AlgorithmConfig: the shares of a recurrent network are whole segments."""
        return self.recurrent is None

    @property
    def segment_steps(self) -> int | None:
        """Environment steps in a segment."""
        return self.horizon_steps


class ImpalaConfig(ActorCriticConfig):
    """Actor-critic with V-trace (Espeholt et al. 2018): learns from segments that slightly older policies collected."""

    type: Literal["impala"] = "impala"  # pyright: ignore[reportIncompatibleVariableOverride]  # is never assigned to
    """Which algorithm."""
    horizon_steps: Horizon = 32
    """Steps of one environment in each segment. A batch is learner.segments_per_update segments and one
    gradient step."""
    rho_clip: PositiveFloat = 1.0
    """Largest importance weight of a step (rho in V-trace). A larger value brings the learned values closer to those of
    the newest policy."""
    c_clip: PositiveFloat = 1.0
    """Largest importance weight along the trace (c in V-trace). A larger value passes rewards back faster, with more
    variance."""
    entropy_coefficient: NonNegativeFloat = 0.01
    """Weight of the entropy bonus in the loss."""
    value_coefficient: NonNegativeFloat = 0.5
    """Weight of the squared value error in the loss."""
    normalize_observations: bool = False
    """Bring observations to running mean 0 and standard deviation 1, clipped at 10. Observations of float64 then stay
    exact until their mean is subtracted, however large that is, and take twice the room in chunks and in memory."""
    normalize_rewards: bool = True
    """Divide rewards by the running standard deviation of the discounted return, clipped at 10."""
    anneal_env_steps: Positive | None = None
    """The learning rate falls linearly to 0 over this number of environment steps that were learned from; null keeps it
    constant. With a constant rate a policy that has solved its task can become worse again."""

    @property
    def segment_steps(self) -> int | None:
        """Environment steps in a segment."""
        return self.horizon_steps


class MuZeroConfig(AlgorithmConfig):
    """MuZero (Schrittwieser et al. 2020): a learned model of the environment, and a search in it for every action.

    With the self-supervised consistency of EfficientZero (Ye et al. 2021) and Reanalyse (Schrittwieser et al. 2021).
    Actions must be Discrete.
    """

    model_config = ConfigDict(json_schema_extra={"required": ["type"]})  # left out, it is dqn

    type: Literal["muzero"] = "muzero"
    """Which algorithm."""
    simulations: Annotated[int, Field(gt=0, le=10_000), BeforeValidator(no_bool)] = 50
    """Simulations of each search, in collectors and evaluators: one evaluation of the model each, for all environments
    of a collector at once. More choose better actions, and take longer in proportion."""
    gumbel: bool = False
    """Search by the rule of Gumbel MuZero (Danihelka et al. 2022), which improves the policy with as few as 2
    simulations. Collectors then explore by Gumbel noise alone: `root_noise_…`, `temperature_…` and `pb_c_…` are not
    used."""
    gumbel_considered_actions: Positive = 16
    """Actions of the root that a search with `gumbel` tries at most; with fewer simulations it tries fewer."""
    gumbel_c_visit: NonNegativeFloat = 50.0
    """The larger, the sooner values decide against the network's policy, however few simulations there were."""
    gumbel_c_scale: PositiveFloat = 1.0
    """How much values count against the network's policy. The paper has 1.0 for board games and 0.1 for Atari."""
    pb_c_base: PositiveFloat = 19_652.0
    """c2 of the search's formula: with so many visits the prior weighs notably more than at the start."""
    pb_c_init: NonNegativeFloat = 1.25
    """c1 of the search's formula: how much the prior weighs against the values that the search has found."""
    value_delta_min: PositiveFloat = 0.01
    """The search brings values to 0 … 1 between the least and the largest it has seen; differences below this are not
    enlarged."""
    root_noise_alpha: PositiveFloat = 0.3
    """Parameter of the Dirichlet noise on the prior of the root, in collectors. Small values favour single actions."""
    root_noise_fraction: Fraction = 0.25
    """Share of the noise in the prior of the root; 0 explores by the temperature alone."""
    temperature_start: NonNegativeFloat = 0.25
    """Collectors draw actions in proportion to visits ** (1 / temperature): at env_step 0. At 0 they take the most
    visited."""
    temperature_end: NonNegativeFloat = 0.25
    """The same after the decay; evaluations always take the most visited action."""
    temperature_decay_env_steps: Positive | None = None
    """Environment steps over which the temperature changes linearly from start to end; null is half of
    stop.max_env_steps."""
    players: Literal[1, 2] = 1
    """2: two players take turns, each reward is for the player who acted, and what is good for one is bad for the
    other."""
    discount: Discount = 0.997
    """Discount per environment step."""
    n_step: NSteps = 5
    """Steps of reward summed before bootstrapping from the target network."""
    unroll_steps: UnrollSteps = 5
    """Steps that the model is unrolled in training. An update takes longer in proportion."""
    reanalyze_ratio: Fraction = 0.0
    """Share of each batch whose policy targets come from a new search with the target network, in the learner. Searches
    take most of the time of an update: `unroll_steps` + 1 of them for each such row. With `reanalyzer.count` workers
    search instead, so many rows for each row that is drawn."""
    target_update_iters: Positive = 100
    """Gradient updates between hard copies of the network into the target network."""
    hidden: Annotated[Hidden, AfterValidator(at_least_one_layer)] | None = None
    """Units of each hidden layer between an observation that is no image and its latent state. Null is [128]."""
    latent: Units = 128
    """Numbers in a latent state of an observation that is no image, and units of each hidden layer that reads one."""
    channels: Annotated[int, Field(gt=0, le=1024), BeforeValidator(no_bool)] = 64
    """Channels of a latent state of an image (uint8 observations of two to four axes, boolean ones of three or four).
    Images are halved until neither side is longer than 8, so that those of 96 or 84 pixels have latent states of 6x6.
    Search and updates take longer in proportion to its square."""
    residual_blocks: Annotated[int, Field(gt=0, le=64), BeforeValidator(no_bool)] = 1
    """Residual blocks of two convolutions each, for images: so many in the dynamics, in what policy and value share,
    and in the representation after the last halving. 1 is EfficientZero's network for Atari, 16 MuZero's."""
    head_hidden: Units = 32
    """Units of the hidden layer of each head: reward, value and policy."""
    support_size: Annotated[int, Field(gt=0, le=10_000), BeforeValidator(no_bool)] = 300
    """Rewards and values are distributions over the whole numbers from -support_size to support_size, after
    sign(x)(sqrt(|x| + 1) - 1) + 0.001 x. 300 reaches values of about 62,000 on either side."""
    projection_units: Units = 1024
    """Units of the projection whose outputs consistency compares. Its layers are most of an update's arithmetic, and
    are not needed for acting."""
    projection_bottleneck: Units = 512
    """Units of the hidden layer that predicts one projection from the other."""
    reward_coefficient: NonNegativeFloat = 1.0
    """Weight of the reward's cross-entropy in the loss."""
    value_coefficient: NonNegativeFloat = 0.25
    """Weight of the value's cross-entropy in the loss."""
    policy_coefficient: NonNegativeFloat = 1.0
    """Weight of the policy's cross-entropy in the loss."""
    entropy_coefficient: NonNegativeFloat = 0.005
    """Weight of the entropy bonus in the loss."""
    consistency_coefficient: NonNegativeFloat = 2.0
    """Weight of the consistency loss: a latent state that the model predicts should resemble that of the observation
    which really came. With 0 nothing of it is computed."""
    weight_decay: NonNegativeFloat = 1e-4
    """This share of each weight is added to its gradient (L2 penalty)."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the products that are most of an update: those of the consistency loss, and for images those of all
    convolutions, of which searches compute those in bfloat16 that read the observation. Processors that have
    instructions for it compute them several times as fast; everything else stays float32."""

    @property
    def reanalyzed_share(self) -> float | None:
        """See AlgorithmConfig."""
        return self.reanalyze_ratio

    @property
    def learns_from_parts(self) -> bool:
        """See AlgorithmConfig."""
        return False

    @property
    def lowers_products(self) -> bool:
        """See AlgorithmConfig; it has a `precision` of its own."""
        return False


def _as_setting(key: str, value: object) -> JsonValue:
    try:
        return _SETTING.validate_python(value)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise ValueError(f"{key} {problem}") from None


_SETTING: TypeAdapter[JsonValue] = TypeAdapter(
    Annotated[JsonValue, BeforeValidator(as_json), AfterValidator(all_finite)]
)


class CustomConfig(AlgorithmConfig):
    """Your own algorithm, or one of an installed package. The settings of its class come beside these."""

    model_config = ConfigDict(extra="allow")
    type: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*(:[A-Za-z_][A-Za-z0-9_]*)?$",
            max_length=200,
            json_schema_extra={"not": {"enum": ["dqn", "rainbow", "ppo", "impala", "muzero", "r2d2", "sac", "td3"]}},
        ),
    ]
    """`module:Class`, looked up in the folder of the config file first; or its name in an installed package (entry
    point group `remuda.algorithms`)."""
    declaration: Declaration | None = None
    """The declaration of the class, for the coordinator, which does not import it. Filled in when the config is
    loaded."""

    @model_validator(mode="before")
    @classmethod
    def _plain_settings(cls, values: object) -> object:
        """Settings of the class are checked by the class; until then they must be what JSON can hold."""
        if not isinstance(values, dict):
            return values
        given = cast("dict[str, object]", values)
        return {key: value if key in cls.model_fields else _as_setting(key, value) for key, value in given.items()}

    @property
    def settings(self) -> dict[str, JsonValue]:
        """The settings of its class."""
        return dict(self.model_extra or {})

    @property
    def segment_steps(self) -> int | None:
        """Environment steps in a segment; None where rows of experience are not segments."""
        rows = None if self.declaration is None else self.declaration.rows
        return rows.horizon_steps if isinstance(rows, Segments) else None

    @property
    def reanalyzed_share(self) -> float | None:
        """See AlgorithmConfig; 0 as long as the declaration is not filled in."""
        if self.declaration is None:
            return 0.0
        return None if self.declaration.reanalyzed is None else self.declaration.reanalyzed.share

    @property
    def learns_from_parts(self) -> bool:
        """See AlgorithmConfig; True as long as the declaration is not filled in."""
        return self.declaration is None or self.declaration.learns_from_parts

    @property
    def lowers_products(self) -> bool:
        """See AlgorithmConfig; its networks are its own."""
        return False
