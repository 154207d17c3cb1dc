"""The acting side of SAC and TD3, without what is different between them: weights, values, and random actions."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from remuda.config.algorithms.twin_critics import TwinCriticConfig
from remuda.config.declaration import Schedule
from remuda.config.schema import ExperimentConfig
from remuda.policy.acting.distributions import masked
from remuda.policy.acting.network import ActingNetwork
from remuda.policy.algorithms.twin_critics.layout import CRITICS, TwinCriticLayout, least, numbers_of
from remuda.policy.base import Arrays, Policy
from remuda.policy.networks.parts import flat
from remuda.policy.spaces import ActionSpec, ObservationSpec, UnitBox

if TYPE_CHECKING:
    from torch import nn

RANDOM = "random"
"""The exploration of Policy.act that is the share of actions drawn evenly from all that are legal."""


class TwinCriticPolicy(Policy):
    """Acts on the state of a TwinCriticNetwork. A subclass says what the actor's outputs mean."""

    def __init__(
        self,
        config: TwinCriticConfig,
        layout: TwinCriticLayout,
        observation: ObservationSpec,
        actions: ActionSpec | UnitBox,
        *,
        source_dir: str | None = None,
        chosen: Callable[[str], None] | None = None,
        device: str = "cpu",
    ) -> None:
        """`actions` brings the network's actions to the environment; `chosen` and `device` are ActingNetwork's."""
        self._layout, self._observation, self._actions = layout, observation, actions
        self._numbers = numbers_of(config, observation)
        action = actions.action if isinstance(actions, UnitBox) else actions
        read = None if self._numbers is None else layout.critic(self._numbers)[0]
        critics = {f"critic_{index}": read for index in range(CRITICS)}
        self._network = ActingNetwork(
            functools.partial(_network, config, layout, observation, action, source_dir),
            observation,
            timed="actor",
            inputs=critics if self._numbers is None else {"actor": self._numbers, **critics},
            chosen=chosen,
            device=device,
        )
        self._critics = list(critics)

    def load_state(self, state: Arrays) -> None:
        """Act with these weights from now on. Raises StateMismatchError, and the old ones stay."""
        self._network.load_state(state)

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
        """Choose actions [n, …] as the environment takes them, counted ones among the legal: the best, or what
        explores."""
        outputs = masked(self.outputs(observations), legal)
        if deterministic:
            return self._actions.to_environment(self.best(outputs))
        chosen, share = self.explored(outputs, exploration, rng), exploration[RANDOM]
        if share:
            drawn = self.drawn_evenly(chosen, rng, legal)
            at_random = rng.random(len(chosen)) < share
            chosen = np.where(at_random.reshape(-1, *(1 for _ in chosen.shape[1:])), drawn, chosen)
        return self._actions.to_environment(chosen)

    @abstractmethod
    def best(self, outputs: NDArray[np.float32]) -> np.ndarray:
        """The best actions as the network has them, by the actor's outputs [n, outputs]: numbers in -1 … 1, float32
        [n, k], or indices [n]."""

    @abstractmethod
    def explored(
        self, outputs: NDArray[np.float32], exploration: Mapping[str, float], rng: np.random.Generator
    ) -> np.ndarray:
        """What collectors take, in the same form."""

    @abstractmethod
    def drawn_evenly(self, like: np.ndarray, rng: np.random.Generator, legal: NDArray[np.bool_] | None) -> np.ndarray:
        """As many actions as these, in the same form, drawn evenly from all that are legal."""

    def outputs(self, observations: np.ndarray) -> NDArray[np.float32]:
        """The actor's outputs for observations [n, …]: float32 [n, outputs]."""
        return self._network("actor", self._encoded(observations))

    def least_values(self, observations: np.ndarray, actions: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """The smaller of both critics' values of observations [n, …], and of actions in -1 … 1, float32 [n, k], where
        the critics read those: float32 [n, values]."""
        seen = self._encoded(observations)
        if self._numbers is None:
            seen = self._network("critic_features", seen)
        inputs = seen if actions is None else np.concatenate((seen, actions), axis=1)
        return least([self._network(critic, inputs) for critic in self._critics])

    def _encoded(self, observations: np.ndarray) -> np.ndarray:
        if self._numbers is None:
            return self._observation.encode(observations)
        return flat(self._observation, observations)


class BoxPolicy(TwinCriticPolicy):
    """Its actions are a bounded Box."""

    def value(self, observations: np.ndarray, *, state: np.ndarray | None = None) -> np.ndarray:
        """The lower critic's estimate for the best action: float32 [n]. SAC's has in it the entropy that is still to
        come."""
        values: NDArray[np.float32] = self.least_values(observations, self.best(self.outputs(observations)))[:, 0]
        return values

    def drawn_evenly(self, like: np.ndarray, rng: np.random.Generator, legal: NDArray[np.bool_] | None) -> np.ndarray:
        """See TwinCriticPolicy."""
        return rng.uniform(-1.0, 1.0, like.shape).astype(np.float32)


def _network(
    config: TwinCriticConfig,
    layout: TwinCriticLayout,
    observation: ObservationSpec,
    action: ActionSpec,
    source_dir: str | None,
) -> nn.Module:
    from remuda.policy.algorithms.twin_critics.networks import make_network  # not above: it needs torch

    return make_network(config, layout, observation, action, source_dir, 1.0 if layout.has_temperature else None)


def random_at_first(config: ExperimentConfig, settings: TwinCriticConfig) -> dict[str, Schedule]:
    """The exploration RANDOM: all actions until `random_env_steps`, none from then on, nor where nothing is learned."""
    steps = config.buffer.min_rows if settings.random_env_steps is None else settings.random_env_steps
    if config.learner.inference or not steps:
        return {RANDOM: ((0, 0.0),)}
    points = ((0, 1.0), (steps, 0.0)) if steps == 1 else ((0, 1.0), (steps - 1, 1.0), (steps, 0.0))
    return {RANDOM: points}
