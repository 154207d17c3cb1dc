"""SAC, CrossQ, TD3 and IQL without torch: layout of the network, acting side, declarations and entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from remuda.config.algorithms.base import EncodedConfig
from remuda.config.algorithms.crossq import CrossQConfig
from remuda.config.algorithms.twin_critics import IqlConfig, SacConfig, Td3Config, TemperedConfig, TwinCriticConfig
from remuda.config.declaration import Declaration, Steps
from remuda.config.schema import ExperimentConfig
from remuda.config.section import Schedule
from remuda.policy.acting.distributions import Categorical, best, drawn_evenly, expected_returns, explored, masked
from remuda.policy.acting.network import PLAIN, Inference
from remuda.policy.algorithms.dqn.entry import Q_VALUE_COLUMNS
from remuda.policy.base import Algorithm, Arrays, Policy, imported
from remuda.policy.entry import BuiltInEntry, Setup
from remuda.policy.networks.layouts import PartsLayout, flat, has_images, input_layout
from remuda.policy.networks.normalisation import Moments
from remuda.policy.spaces import ActionSpec, ObservationSpec, OutputName

Tempered = TypeVar("Tempered", bound=TemperedConfig)


@dataclass(frozen=True)
class TwinCriticLayout:
    """Layers of an actor and of each critic, after the features."""

    hidden: tuple[int, ...]
    actor_outputs: int
    action_numbers: int
    """Numbers of an action among the critics' inputs; 0 if the critics value all actions."""
    values: int
    """Outputs of each critic."""
    has_temperature: bool
    actor_hidden: tuple[int, ...] | None = None
    """Units of the actor's hidden layers; None: `hidden`."""
    normalization_share: float | None = None
    """Share of the newest batch in the running moments of batch normalisation; None: no normalisation."""
    returns: NDArray[np.float32] | None = None
    """Fixed returns [values] of categorical critics, in scaled rewards; None: outputs are values."""
    has_state_value: bool = False
    """True with a learned value of observations alone."""
    normalizes: bool = False
    """True to normalise observations that are read as one vector."""
    is_hyperspherical: bool = False
    """True for layers as in SimBaV2, a block for each of `hidden`; see `hyperspherical_perceptron`."""

    @property
    def scales_rewards(self) -> bool:
        """True if the critics learn scaled rewards; see RewardScale."""
        return self.returns is not None or self.is_hyperspherical

    def actor(self, features: int) -> tuple[int, ...]:
        """Widths of the actor, from features to outputs."""
        hidden = self.hidden if self.actor_hidden is None else self.actor_hidden
        return (features, *hidden, self.actor_outputs)

    def critic(self, features: int) -> tuple[int, ...]:
        """Widths of each critic, from features to outputs."""
        return (features + self.action_numbers, *self.hidden, self.values)

    def state_value(self, features: int) -> tuple[int, ...]:
        """Widths of the value of observations, from features to the output."""
        return (features, *self.hidden, 1)


def numbers_of(config: EncodedConfig, observation: ObservationSpec) -> int | None:
    """Number of inputs per observation as one vector (see `flat`); None if a user's module or convolutions read
    observations. Raises UnsupportedSpaceError."""
    if config.reads_by_module:
        return None
    layout = input_layout(observation, config.convolution)
    if has_images(layout):
        return None
    return layout.features if isinstance(layout, PartsLayout) else observation.features


ACTOR, AVERAGED_ACTOR = "actor", "averaged_actor"
"""Names of outputs: the actor explores, the averaged actor chooses the best actions."""
FEATURES = "critic_features"
"""Name of an output: what critics read of an observation, if modules or a normalisation come before."""
RANDOM = "random"
"""Name of the exploration of Policy.act: the share of actions drawn uniformly from the legal actions."""


class TwinCriticPolicy(Policy):
    """Acts on the outputs of a TwinCriticNetwork's actor. Values are those of the lowest critic."""

    def __init__(
        self,
        config: TwinCriticConfig,
        layout: TwinCriticLayout,
        observation: ObservationSpec,
        action: ActionSpec,
        output_name: OutputName,
        inference: Inference = PLAIN,
    ) -> None:
        """`action` is Discrete, or a bounded Box."""
        self._layout, self._observation = layout, observation
        self._output_name: OutputName = output_name
        self._actions = action.bounded(by=config.type) if action.is_box else action
        self.uses_legal_actions = not action.is_box
        self._numbers = numbers_of(config, observation)
        read = None if self._numbers is None else layout.critic(self._numbers)[0]
        critics = {f"critic_{index}": read for index in range(config.critics)}
        temperature = 1.0 if layout.has_temperature else None
        self._best = ACTOR if config.averaged_share is None else AVERAGED_ACTOR
        inputs = dict[str, int | None](critics)
        if self._numbers is not None:
            inputs |= dict.fromkeys((ACTOR, self._best, FEATURES), self._numbers)
        self._network = inference.network(
            "twin_critics", config, observation, action, layout, temperature, timed=ACTOR, inputs=inputs
        )
        self._critics = list(critics)

    def load_state(self, state: Arrays) -> None:
        """Act with these weights from now on. Raises StateMismatchError and keeps the old weights."""
        rewards = Moments.stored(state, "rewards") if self._layout.scales_rewards else None
        self._network.load_state(state)
        self._reward_std = np.float32(1.0 if rewards is None else 1.0 / rewards.scale[0])

    def act(
        self,
        observations: np.ndarray,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        deterministic: bool,
        legal: np.ndarray | None = None,
        state: np.ndarray | None = None,
    ) -> np.ndarray:
        """Choose actions [n, …] for the environment, counted actions among the legal: the best, or explored actions,
        with a share RANDOM drawn uniformly."""
        outputs = masked(self._outputs(self._best if deterministic else ACTOR, observations), legal)
        if deterministic:
            return self._actions.to_environment(best(self._output_name, outputs))
        chosen, share = explored(self._output_name, outputs, exploration, rng), exploration[RANDOM]
        if share:
            drawn = self._drawn_evenly(chosen, rng, legal)
            at_random = rng.random(len(chosen)) < share
            chosen = np.where(at_random.reshape(-1, *(1 for _ in chosen.shape[1:])), drawn, chosen)
        return self._actions.to_environment(chosen)

    def value(self, observations: np.ndarray, *, state: np.ndarray | None = None) -> np.ndarray:
        """Estimates of the lowest critic, float32 [n]: of the best action in a Box, or the mean over counted actions by
        their probabilities. SAC's estimates include the entropy of later steps."""
        outputs = self.outputs(observations)
        values: NDArray[np.float32]
        if self._output_name == "logits":
            values = (Categorical(outputs).probabilities() * self._smaller_values(observations)).sum(axis=1)
        else:
            values = self._smaller_values(observations, best(self._output_name, outputs))[:, 0]
        return values

    def outputs(self, observations: np.ndarray) -> NDArray[np.float32]:
        """Outputs for the best actions in observations [n, …], float32 [n, outputs], or actions in -1 … 1."""
        return self._outputs(self._best, observations)

    def _outputs(self, actor: str, observations: np.ndarray) -> NDArray[np.float32]:
        outputs = self._network(actor, self._encoded(observations))
        return np.tanh(outputs) if self._output_name == "unit_action" else outputs

    def _drawn_evenly(self, like: np.ndarray, rng: np.random.Generator, legal: NDArray[np.bool_] | None) -> np.ndarray:
        """Draw len(like) actions, in the form of `like`, uniformly from the legal actions."""
        if self._output_name != "logits":
            return rng.uniform(-1.0, 1.0, like.shape).astype(np.float32)
        return rng.integers(self._layout.actor_outputs, size=len(like)) if legal is None else drawn_evenly(legal, rng)

    def _smaller_values(
        self, observations: np.ndarray, actions: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Smallest of all critics' values of observations [n, …], and of actions in -1 … 1, float32 [n, k], if the
        critics read actions: float32 [n, values]."""
        seen = self._encoded(observations)
        if self._numbers is None or self._layout.normalizes:
            seen = self._network(FEATURES, seen)
        inputs = seen if actions is None else np.concatenate((seen, actions), axis=1)
        outputs, returns = [self._network(critic, inputs) for critic in self._critics], self._layout.returns
        if returns is not None:
            outputs = [expected_returns(logits, returns)[:, None] for logits in outputs]
        least: NDArray[np.float32] = np.minimum.reduce(outputs) * self._reward_std
        return least

    def _encoded(self, observations: np.ndarray) -> np.ndarray:
        if self._numbers is None:
            return self._observation.encode(observations)
        return flat(self._observation, observations)


def random_at_first(config: ExperimentConfig, settings: TwinCriticConfig) -> dict[str, Schedule]:
    """The exploration RANDOM: all actions before `random_env_steps`, and 0 afterwards or with
    `learner.inference`."""
    steps = config.buffer.min_rows if settings.random_env_steps is None else settings.random_env_steps
    if config.learner.inference or not steps:
        return {RANDOM: ((0, 0.0),)}
    points = ((0, 1.0), (steps, 0.0)) if steps == 1 else ((0, 1.0), (steps - 1, 1.0), (steps, 0.0))
    return {RANDOM: points}


_RANDOM = {RANDOM: "share of collectors' actions that are random, at first"}
_ACTOR = {
    "cur_lr": "step size of the optimizer",
    "critic_loss": "loss of all critics together",
    "policy_loss": "loss of the actor; TD3 has one only in the updates that move the actor",
}
_CRITICS = {
    "q_value": "values of the actions in the rows of a batch, by the first critic",
    "target_q_value": "values that the critics are trained towards",
    "td_error": "absolute differences between values and `target_q_value`, averaged over the critics",
    "grad_norm": "norm of the gradient of critics and actor together, before clipping",
    "actor_grad_norm": "norm of the actor's gradient, before clipping",
}
METRICS: Mapping[str, str] = MappingProxyType({**_ACTOR, **_CRITICS})
"""Meanings of the metrics of an update, in the order of the logs."""
TEMPERED_METRICS: Mapping[str, str] = MappingProxyType(
    {
        **_ACTOR,
        "temperature": "weight of the entropy in the reward",
        "entropy": "entropy of the policy, in nats, for actions in -1 … 1",
        **_CRITICS,
    }
)
"""The same for soft actor-critics."""


def declared(
    config: ExperimentConfig,
    settings: TwinCriticConfig,
    *,
    metrics: Mapping[str, str],
    columns: Mapping[str, str] = MappingProxyType({}),
    exploration: Mapping[str, Schedule] = MappingProxyType({}),
) -> Declaration:
    """Declare an algorithm with an actor and twin critics, which learns from single steps. `columns` are more columns
    of progress.txt; `exploration` comes in addition to random actions at first."""
    return Declaration(
        rows=Steps(n_step=settings.n_step, discount=settings.discount),
        reuse="replay",
        monitored=tuple(metrics),
        loss_columns={**Q_VALUE_COLUMNS, "LossPi": "policy_loss", "LossQ": "critic_loss", **columns},
        with_statistics=("critic_loss", "policy_loss", "q_value", "td_error", "grad_norm"),
        exploration={**exploration, **random_at_first(config, settings)},
        learns_from_parts=not settings.needs_whole_batches,
        lowers_products=settings.lowers_products,
    )


def make_sac_policy(
    config: SacConfig, observation: ObservationSpec, action: ActionSpec, inference: Inference = PLAIN
) -> TwinCriticPolicy:
    """Make a policy that draws numbers from a normal distribution, brought within the bounds by tanh, or actions of a
    Discrete space by their probabilities. Raises UnsupportedSpaceError."""
    layout = sac_layout(config, action)
    name: OutputName = "logits" if action.n is not None else "squashed_gaussian"
    return TwinCriticPolicy(config, layout, observation, action, name, inference)


def sac_layout(config: SacConfig, action: ActionSpec) -> TwinCriticLayout:
    """The network's layers. Raises UnsupportedSpaceError."""
    outputs, learned, sphere = action.outputs, config.temperature is None, config.normalization is not None
    sizes = (outputs, 0, outputs) if action.n is not None else (2 * outputs, outputs, 1)
    if action.n is None:
        action.bounded(by="sac", supported="Box, Discrete")
    return TwinCriticLayout(config.hidden, *sizes, learned, normalizes=sphere, is_hyperspherical=sphere)


class TemperedEntry(BuiltInEntry[Tempered]):
    """Entry of a soft actor-critic."""

    meanings = MappingProxyType({**TEMPERED_METRICS, **_RANDOM})

    def declaration(self, config: ExperimentConfig, settings: Tempered) -> Declaration:
        """Declare random actions at first; afterwards the policy draws its actions."""
        columns = {"Entropy": "entropy", "Temperature": "temperature"}
        return declared(config, settings, metrics=TEMPERED_METRICS, columns=columns)


class SacEntry(TemperedEntry[SacConfig]):
    """See AlgorithmEntry."""

    settings = SacConfig
    acts = staticmethod(make_sac_policy)

    def make_algorithm(self, setup: Setup[SacConfig], seed: int) -> Algorithm:
        kind = "Sac" if setup.action.n is None else "DiscreteSac"
        made = imported(f"remuda.policy.algorithms.twin_critics.sac:{kind}")
        return cast("Algorithm", made(setup.config, setup.observation, setup.action, seed))


VALUE_LIMIT = 5.0
"""Largest value that a categorical critic distinguishes, in root mean squares of the replayed returns."""


def crossq_layout(config: CrossQConfig, action: ActionSpec) -> TwinCriticLayout:
    """The network's layers. Raises UnsupportedSpaceError."""
    action.bounded(by="crossq")
    return TwinCriticLayout(
        config.hidden,
        2 * action.outputs,
        action.outputs,
        config.atoms or 1,
        config.temperature is None,
        config.actor_hidden,
        config.normalization_share,
        None if config.atoms is None else np.linspace(-VALUE_LIMIT, VALUE_LIMIT, config.atoms, dtype=np.float32),
        normalizes=config.normalization is not None,
        is_hyperspherical=config.normalization is not None,
    )


def make_crossq_policy(
    config: CrossQConfig, observation: ObservationSpec, action: ActionSpec, inference: Inference = PLAIN
) -> TwinCriticPolicy:
    """Make a policy like that of SAC. Raises UnsupportedSpaceError."""
    return TwinCriticPolicy(config, crossq_layout(config, action), observation, action, "squashed_gaussian", inference)


class CrossQEntry(TemperedEntry[CrossQConfig]):
    """See AlgorithmEntry."""

    settings = CrossQConfig
    acts = staticmethod(make_crossq_policy)
    learner = "remuda.policy.algorithms.twin_critics.crossq:CrossQ"


NOISE = "noise"
"""Name of the exploration of Policy.act: the standard deviation of the noise on actions in -1 … 1."""


def unit_layout(config: Td3Config | IqlConfig, action: ActionSpec) -> TwinCriticLayout:
    """The layers of an actor with actions in -1 … 1. Raises UnsupportedSpaceError."""
    action.bounded(by=config.type)
    is_iql, outputs, sphere = isinstance(config, IqlConfig), action.outputs, config.normalization is not None
    return TwinCriticLayout(
        config.hidden,
        outputs,
        outputs,
        1,
        False,
        has_state_value=is_iql,
        normalizes=config.normalize_observations if isinstance(config, IqlConfig) else sphere,
        is_hyperspherical=sphere,
    )


def make_unit_policy(
    config: Td3Config | IqlConfig, observation: ObservationSpec, action: ActionSpec, inference: Inference = PLAIN
) -> TwinCriticPolicy:
    """Make a policy that takes tanh of the actor's outputs. Raises UnsupportedSpaceError."""
    return TwinCriticPolicy(config, unit_layout(config, action), observation, action, "unit_action", inference)


class Td3Entry(BuiltInEntry[Td3Config]):
    """See AlgorithmEntry."""

    settings = Td3Config
    acts = staticmethod(make_unit_policy)
    learner = "remuda.policy.algorithms.twin_critics.td3:Td3"
    meanings = MappingProxyType(
        {**METRICS, **_RANDOM, NOISE: "standard deviation of the noise on collectors' actions, in -1 … 1"}
    )

    def declaration(self, config: ExperimentConfig, settings: Td3Config) -> Declaration:
        """Random actions at first; then the actor's, with noise."""
        return declared(config, settings, metrics=METRICS, exploration={NOISE: ((0, settings.exploration_noise),)})


IQL_METRICS: Mapping[str, str] = MappingProxyType(
    {
        **_ACTOR,
        "value_loss": "loss of the value of observations",
        "state_value": "values of observations, whatever the action",
        "advantage": "values of the actions in the rows, minus `state_value`",
        **_CRITICS,
    }
)


class IqlEntry(BuiltInEntry[IqlConfig]):
    """See AlgorithmEntry."""

    settings = IqlConfig
    acts = staticmethod(make_unit_policy)
    learner = "remuda.policy.algorithms.twin_critics.iql:Iql"
    meanings = MappingProxyType({**IQL_METRICS, **Td3Entry.meanings})

    def declaration(self, config: ExperimentConfig, settings: IqlConfig) -> Declaration:
        """Random actions at first; then the actor's, with noise."""
        noise = {NOISE: ((0, settings.exploration_noise),)}
        return declared(config, settings, metrics=IQL_METRICS, columns={"LossV": "value_loss"}, exploration=noise)
