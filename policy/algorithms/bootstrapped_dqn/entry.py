"""Bootstrapped DQN without torch: acting side and entry."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from remuda.config.algorithms.bootstrapped_dqn import BootstrappedDqnConfig
from remuda.config.declaration import Declaration, Steps
from remuda.config.schema import ExperimentConfig
from remuda.policy.acting.network import PLAIN, Inference
from remuda.policy.algorithms.dqn.entry import MEANINGS, QPolicy, declared
from remuda.policy.entry import BuiltInEntry
from remuda.policy.spaces import ActionSpec, ObservationSpec

HIDDEN = (50, 50)
"""Default units of the hidden layers of a member."""


class BootstrappedDqnPolicy(QPolicy):
    """Acts on the weights of an EnsembleNetwork. Follows one member for an episode; deterministic actions follow the
    mean of all members."""

    state_size = 1
    """The state is the number of the episode's member, from 1; 0 before the first observation."""

    def __init__(
        self,
        config: BootstrappedDqnConfig,
        observation: ObservationSpec,
        action: ActionSpec,
        inference: Inference = PLAIN,
    ) -> None:
        """Raises UnsupportedSpaceError."""
        super().__init__(config, observation, action, inference, folder="bootstrapped_dqn", timed="values")
        self._members = config.members

    def q_values(self, observations: np.ndarray) -> NDArray[np.float32]:
        """See QPolicy: the means of the members' values."""
        means: NDArray[np.float32] = self._values(observations).mean(axis=1)
        return means

    def exploring_values(
        self,
        observations: np.ndarray,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        state: np.ndarray | None,
    ) -> NDArray[np.float32]:
        """See QPolicy: the values of the episode's member, drawn at the first observation."""
        assert state is not None, "a policy that follows a member for an episode needs its state"
        member = state[:, 0]
        begins = member == 0
        member[begins] = rng.integers(1, self._members + 1, np.count_nonzero(begins))
        return self._values(observations)[np.arange(len(member)), member.astype(np.intp) - 1]

    def _values(self, observations: np.ndarray) -> NDArray[np.float32]:
        """Value the actions by each member: [n, members, actions]."""
        values = self._network("values", self._observation.encode(observations))
        return values.reshape(len(values), self._members, -1)


class BootstrappedDqnEntry(BuiltInEntry[BootstrappedDqnConfig]):
    """See AlgorithmEntry."""

    settings = BootstrappedDqnConfig
    acts = BootstrappedDqnPolicy
    learner = "remuda.policy.algorithms.bootstrapped_dqn.learning:BootstrappedDqn"
    meanings = MEANINGS

    def declaration(self, config: ExperimentConfig, settings: BootstrappedDqnConfig) -> Declaration:
        return declared(config, settings, Steps(n_step=settings.n_step, discount=settings.discount))
