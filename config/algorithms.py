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
    Convolution,
    Discount,
    Fraction,
    Hidden,
    Horizon,
    NonNegativeFloat,
    NSteps,
    Positive,
    PositiveFloat,
    all_finite,
    as_json,
    at_least_one_layer,
)
from remuda.config.section import Section


class AlgorithmConfig(Section):
    """The section of an algorithm."""

    @property
    def segment_steps(self) -> int | None:
        """Environment steps in a segment; None where rows of experience are not segments."""
        return None


class DqnConfig(AlgorithmConfig):
    """Deep Q-learning (Mnih et al. 2015) with double, dueling, n-step and prioritized variants."""

    type: Literal["dqn"] = "dqn"
    """Which algorithm."""
    hidden: Annotated[Hidden, AfterValidator(at_least_one_layer)] | None = None
    """Units of each hidden layer, at least one layer. With `dueling`, value and advantages each have a last hidden
    layer of their own. Null is [128, 128, 64], and [512] for images."""
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
    target_update_iters: Positive = 250
    """Gradient updates between hard copies of the online network into the target network."""


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
    discount: Discount = 0.99
    """Discount per environment step."""


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
            json_schema_extra={"not": {"enum": ["dqn", "ppo", "impala"]}},
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
