"""Q-learning without torch: declaration and acting side of algorithms with action values; entries of DQN and PQN."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from remuda.config.algorithms.q_learning import ActionValueConfig, DqnConfig, PqnConfig
from remuda.config.declaration import Declaration, RowShape, Segments, Steps
from remuda.config.schema import ExperimentConfig
from remuda.config.section import Schedule
from remuda.policy.acting.distributions import EpsilonGreedy, masked
from remuda.policy.acting.network import PLAIN, Inference
from remuda.policy.acting.recurrent import RecurrentPolicy
from remuda.policy.base import Arrays, Policy
from remuda.policy.entry import BuiltInEntry
from remuda.policy.networks.layouts import RecurrentLayout, input_layout, require_readable, units
from remuda.policy.networks.normalisation import Moments
from remuda.policy.schedules import epsilon_schedule
from remuda.policy.spaces import ActionSpec, ObservationSpec

EPSILON = "epsilon"
"""Name of the exploration of Policy.act: the share of random actions."""
METRICS: Mapping[str, str] = MappingProxyType(
    {
        "cur_lr": "step size of the optimizer",
        "total_loss": "loss of a gradient update",
        "q_value": "values of the actions in the rows of a batch",
        "target_q_value": "values that `q_value` is trained towards",
        "td_error": "absolute differences between `q_value` and `target_q_value`; of R2D2 on the scale of "
        "`policy.value_rescaling`",
        "grad_norm": "norm of the gradient before clipping",
    }
)
"""Meanings of the metrics of an update, in the order of the logs."""
VALUE_METRICS = ("q_value", "target_q_value", "td_error")
"""Metrics in the environment's own rewards."""
REWARDS = "rewards"
"""Name of the moments of rewards in the networks of DQN and PQN with `normalize_rewards`."""
MEANINGS: Mapping[str, str] = MappingProxyType({**METRICS, EPSILON: "share of random actions"})
WITH_STATISTICS = ("total_loss", "q_value", "td_error", "grad_norm")
Q_VALUE_COLUMNS = {
    "AverageQVals": "q_value",
    "StdQVals": "q_value_std",
    "MaxQVals": "q_value_max",
    "MinQVals": "q_value_min",
}
"""Columns of progress.txt for algorithms with statistics of the metric `q_value`; see Declaration."""
LOSS_COLUMNS = {**Q_VALUE_COLUMNS, "LossQ": "total_loss"}
"""Columns of progress.txt of DQN, Rainbow and R2D2; see Declaration."""


def declared(
    config: ExperimentConfig,
    settings: ActionValueConfig,
    rows: RowShape,
    *,
    reuse: Literal["replay", "once"] = "replay",
    monitored: tuple[str, ...] = tuple(METRICS),
    exploration: Mapping[str, Schedule] | None = None,
) -> Declaration:
    """Declare an algorithm with action values that learns from these rows. Without `exploration` it is epsilon-greedy:
    collectors explore less and less, and with `learner.inference` as little as at the end of the schedule."""
    return Declaration(
        rows=rows,
        reuse=reuse,
        monitored=monitored,
        loss_columns=LOSS_COLUMNS,
        with_statistics=WITH_STATISTICS,
        exploration={EPSILON: epsilon_schedule(config, settings)} if exploration is None else dict(exploration),
        learns_from_parts=not settings.needs_whole_batches,
        lowers_products=settings.lowers_products,
    )


class QPolicy(Policy):
    """A subclass values the actions."""

    uses_legal_actions = True

    def __init__(
        self,
        config: ActionValueConfig,
        observation: ObservationSpec,
        action: ActionSpec,
        inference: Inference,
        *,
        folder: str,
        timed: str,
    ) -> None:
        """Raises UnsupportedSpaceError. For `folder` and `timed` see Inference.network."""
        self._observation, self._action = observation, action
        self._actions = number_of_actions(config, action)
        self._greedy = EpsilonGreedy(config.epsilon_spread)
        require_readable(config, observation)
        self._network = inference.network(folder, config, observation, action, timed=timed)

    def load_state(self, state: Arrays) -> None:
        """Act with these weights from now on. Raises StateMismatchError and keeps the old weights."""
        self._network.load_state(state)

    @abstractmethod
    def q_values(self, observations: np.ndarray) -> NDArray[np.float32]:
        """Value the actions of observations [n, …]: float32 [n, actions]."""

    def exploring_values(
        self,
        observations: np.ndarray,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        state: np.ndarray | None,
    ) -> NDArray[np.float32]:
        """Action values for the choices of collectors, [n, actions]. Overwrites `state`, see Actor.act."""
        return self.q_values(observations)

    def take_place(self, first: int, of: int) -> None:
        """See Policy: with `epsilon_spread` each environment has a separate epsilon."""
        self._greedy.take_place(first, of)

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
        """Choose actions [n] of the space's dtype among the legal actions. `deterministic`: the best by `q_values`;
        otherwise the best by `exploring_values`, with a share EPSILON of random actions."""
        if deterministic:
            return self._action.to_environment(masked(self.q_values(observations), legal).argmax(axis=1))
        values = self.exploring_values(observations, exploration, rng, state)
        if EPSILON not in exploration:
            return self._action.to_environment(masked(values, legal).argmax(axis=1))
        return self._action.to_environment(self._greedy(values, exploration[EPSILON], rng, legal))

    def value(self, observations: np.ndarray, *, state: np.ndarray | None = None) -> np.ndarray:
        """Value of the best action in every observation, legal or not: float32 [n]."""
        values: np.ndarray = self.q_values(observations).max(axis=1)
        return values


def number_of_actions(config: ActionValueConfig, action: ActionSpec) -> int:
    """Number of valued actions. Raises UnsupportedSpaceError if the actions cannot be counted."""
    return action.counted(by=f"{config.type}, which values each action")


def hidden_layers(
    config: ActionValueConfig, observation: ObservationSpec, *, default: tuple[int, ...]
) -> tuple[int, ...]:
    """Units of the network's hidden layers: of the config, a wide layer for images, or `default`. Raises
    UnsupportedSpaceError."""
    image = None if config.reads_by_module else input_layout(observation, config.convolution)
    return units(config.hidden, image, default=default)


class DqnPolicy(QPolicy):
    """Acts on the weights of a QNetwork."""

    def __init__(
        self,
        config: DqnConfig | PqnConfig,
        observation: ObservationSpec,
        action: ActionSpec,
        inference: Inference = PLAIN,
    ) -> None:
        """Raises UnsupportedSpaceError."""
        super().__init__(config, observation, action, inference, folder="dqn", timed="values")
        self._reward_std: np.float32 | None = None
        self._scaled = config.normalize_rewards

    def load_state(self, state: Arrays) -> None:
        """See QPolicy."""
        moments = Moments.stored(state, REWARDS) if self._scaled else None
        super().load_state(state)
        self._reward_std = None if moments is None else np.float32(1.0 / moments.scale[0])

    def q_values(self, observations: np.ndarray) -> NDArray[np.float32]:
        values = self._network("values", self._observation.encode(observations))
        return values if self._reward_std is None else values * self._reward_std


PQN_HIDDEN = (128, 128)
"""Default units of PQN's hidden layers."""


def recurrent_layout(config: PqnConfig, observation: ObservationSpec) -> RecurrentLayout:
    """Layout of PQN's recurrent network; the head has the last hidden layer. Raises UnsupportedSpaceError."""
    require_readable(config, observation)
    hidden, core = hidden_layers(config, observation, default=PQN_HIDDEN), config.recurrent
    assert core is not None
    return RecurrentLayout(0, hidden[:-1] or hidden, "relu", core, config.recurrent_units, layer_norm=config.layer_norm)


def make_pqn_policy(
    config: PqnConfig, observation: ObservationSpec, action: ActionSpec, inference: Inference = PLAIN
) -> Policy:
    """Raises UnsupportedSpaceError."""
    if config.recurrent is None:
        return DqnPolicy(config, observation, action, inference)
    number_of_actions(config, action)
    layout = recurrent_layout(config, observation)
    plain: dict[str, object] = {"recurrent": None, "encoder": None, "encoder_kwargs": {}, "convolution": None}
    head = DqnPolicy(config.model_copy(update=plain), layout.remembered, action)
    network = inference.network("dqn", config, observation, action, timed="encoded")
    return RecurrentPolicy(layout, observation, head, network)


class DqnEntry(BuiltInEntry[DqnConfig]):
    """See AlgorithmEntry."""

    settings = DqnConfig
    acts = DqnPolicy
    learner = "remuda.policy.algorithms.dqn.learning:Dqn"
    meanings = MEANINGS

    def declaration(self, config: ExperimentConfig, settings: DqnConfig) -> Declaration:
        rows = Steps(n_step=settings.n_step, discount=settings.discount)
        return declared(config, settings, rows)


class PqnEntry(BuiltInEntry[PqnConfig]):
    """See AlgorithmEntry."""

    settings = PqnConfig
    acts = staticmethod(make_pqn_policy)
    learner = "remuda.policy.algorithms.dqn.pqn:Pqn"
    meanings = MEANINGS

    def declaration(self, config: ExperimentConfig, settings: PqnConfig) -> Declaration:
        rows = Segments(horizon_steps=settings.horizon_steps, discount=settings.discount)
        return declared(config, settings, rows, reuse="once")
