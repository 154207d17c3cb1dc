"""Deep Q-learning, the acting side: epsilon-greedy actions."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from remuda.config.algorithms.q_learning import DqnConfig, PqnConfig
from remuda.policy.acting.network import PLAIN, Inference
from remuda.policy.algorithms.q_policy import QPolicy
from remuda.policy.base import Arrays
from remuda.policy.networks.parts import require_readable
from remuda.policy.spaces import ActionSpec, ObservationSpec

if TYPE_CHECKING:
    from torch import nn


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
        super().__init__(config, observation, action)
        require_readable(config, observation)
        make = functools.partial(_network, config, observation, action, inference.source_dir)
        self._network = inference.network(make, observation, timed="values")

    def load_state(self, state: Arrays) -> None:
        """Act with these weights from now on. Raises StateMismatchError, and the old ones stay."""
        self._network.load_state(state)

    def q_values(self, observations: np.ndarray) -> NDArray[np.float32]:
        """See QPolicy."""
        return self._network("values", self._observation.encode(observations))


def _network(
    config: DqnConfig | PqnConfig, observation: ObservationSpec, action: ActionSpec, source_dir: str | None
) -> nn.Module:
    from remuda.policy.algorithms.dqn.network import make_network  # not above: most collectors need no torch

    return make_network(config, observation, action, source_dir)
