"""MuZero Reanalyse (Schrittwieser et al. 2021) for workers: what a newer network's search prefers in stored rows."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.policy.acting.network import PLAIN, Inference
from remuda.policy.algorithms.muzero.acting import ILLEGAL, MuZeroPolicy
from remuda.policy.algorithms.muzero.targets import ROOT_VALUE, SEARCH_POLICY
from remuda.policy.base import Arrays, Reanalyzer
from remuda.policy.spaces import ActionSpec, ObservationSpec


class MuZeroReanalyzer(Reanalyzer):
    """Searches every position of a row at which an action was chosen, without noise, among the actions that were legal.

    Rows that were collected one after the other hold mostly the same observations: each different one is searched once.
    """

    def __init__(
        self,
        config: MuZeroConfig,
        observation: ObservationSpec,
        action: ActionSpec,
        inference: Inference = PLAIN,
    ) -> None:
        """See MuZeroPolicy."""
        self._policy = MuZeroPolicy(config, observation, action, inference)

    def load_state(self, state: Arrays) -> None:
        """See Reanalyzer."""
        self._policy.load_state(state)

    def compute(self, columns: Arrays) -> dict[str, np.ndarray]:
        """See Reanalyzer: the columns search_policy [B, K + 1, actions] and root_value [B, K + 1]."""
        policy = cast("NDArray[np.float32]", columns[SEARCH_POLICY]).copy()
        value = cast("NDArray[np.float32]", columns[ROOT_VALUE]).copy()
        steps = cast("NDArray[np.int32]", columns["steps"])
        row, position = np.nonzero(np.arange(int(policy.shape[1])) < steps[:, None])
        if len(row):
            seen, legal = columns["obs"][row, position], policy[row, position] != ILLEGAL
            first, again = _different(seen, legal)
            found = self._policy.searched(seen[first], legal[first])
            policy[row, position] = np.where(legal, found.policy[again], np.float32(ILLEGAL))
            value[row, position] = found.value[again]
        return {SEARCH_POLICY: policy, ROOT_VALUE: value}


def _different(observations: np.ndarray, legal: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each different pair of observation [n, …] and legal actions [n, actions] stands first, int64 [m]; and which
    of these each of the n is, int64 [n]."""
    number: dict[bytes, int] = {}
    first: list[int] = []
    again = np.empty(len(observations), np.int64)
    for place in range(len(observations)):
        content = observations[place].tobytes() + legal[place].tobytes()
        again[place] = number.setdefault(content, len(number))
        if again[place] == len(first):
            first.append(place)
    return np.array(first, np.int64), again
