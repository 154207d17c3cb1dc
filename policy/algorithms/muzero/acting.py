"""MuZero, the acting side: a search for each action."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.policy.algorithms.muzero.model import SearchedModel
from remuda.policy.algorithms.muzero.model_policy import ModelPolicy
from remuda.policy.algorithms.muzero.names import COMPLETED_VALUE, ROOT_VALUE, SEARCH_POLICY, TEMPERATURE, VISIT_ENTROPY
from remuda.policy.algorithms.muzero.search.search import SearchResult, choose, search
from remuda.policy.algorithms.muzero.search.settings import GumbelSettings
from remuda.policy.algorithms.muzero.search.tree import SearchSettings, Tree, new_tree
from remuda.policy.base import Arrays
from remuda.policy.spaces import ActionSpec, ObservationSpec

VISITS = "visits"
"""Names the visits of Gumbel MuZero's searches, [actions]: its SEARCH_POLICY is the improved policy, so their shares
are not stored."""
ILLEGAL = -1.0
"""Stands in SEARCH_POLICY for the share of an illegal action. So whoever searches again knows which were illegal, and
rows of environments that name none need no more space."""


class MuZeroPolicy(ModelPolicy):
    """Searches the learned model, and takes the actions that the search visited most.

    In collectors the root's prior has noise, and actions are drawn by their visits. With Gumbel MuZero it takes the
    winners of sequential halving, in collectors under its noise. All chance comes from the given generator.
    """

    def __init__(
        self,
        config: MuZeroConfig,
        observation: ObservationSpec,
        action: ActionSpec,
        *,
        source_dir: str | None = None,
        device: str = "cpu",
    ) -> None:
        """See ModelPolicy."""
        super().__init__(config, observation, action, source_dir=source_dir, device=device)
        self._config, self._settings = config, search_settings(config)
        self._model: SearchedModel | None = None
        self._tree: tuple[int, Tree] | None = None
        """For so many roots."""

    def load_state(self, state: Arrays) -> None:
        """See ModelPolicy."""
        super().load_state(state)
        self._model = None

    def recorded(self) -> Mapping[str, tuple[tuple[int, ...], str]]:
        """See Policy."""
        return {SEARCH_POLICY: ((self._actions,), "float32"), ROOT_VALUE: ((), "float32")}

    def measured(self) -> Mapping[str, tuple[tuple[int, ...], str]]:
        """See Policy."""
        return {VISITS: ((self._actions,), "int32")} if self._config.gumbel else {}

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
        """Choose actions [n] of the space's dtype: the best, or as `act_recording` does."""
        if deterministic:
            return self._action.to_environment(self._searched(observations, None, legal).action)
        return self.act_recording(observations, exploration, rng, legal=legal)[0]

    def act_recording(
        self,
        observations: np.ndarray,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        legal: np.ndarray | None = None,
        state: np.ndarray | None = None,
    ) -> tuple[np.ndarray, Arrays]:
        """See Policy: what the search preferred and found is recorded.

        Actions are drawn by visits ** (1 / temperature). With Gumbel MuZero its noise draws them.
        """
        roots = len(observations)
        if self._config.gumbel:
            noise = rng.gumbel(size=(roots, self._actions))
            found = self._searched(observations, noise.astype(np.float32), legal)
            chosen = found.action
        else:
            noise = rng.dirichlet(np.full(self._actions, self._config.root_noise_alpha), roots)
            found = self._searched(observations, noise.astype(np.float32), legal)
            chosen = choose(found.visits, exploration[TEMPERATURE], rng)
        policy = found.policy if legal is None else np.where(legal, found.policy, np.float32(ILLEGAL))
        columns = {SEARCH_POLICY: policy, ROOT_VALUE: found.value}
        if self._config.gumbel:
            columns[VISITS] = found.visits
        return self._action.to_environment(chosen), columns

    def collected_metrics(self, columns: Arrays) -> Arrays:
        """See Policy: how far the searches' visits were spread, in nats, and with Gumbel MuZero the values they
        found."""
        if not self._config.gumbel:
            return {VISIT_ENTROPY: entropies(columns[SEARCH_POLICY])}
        return {VISIT_ENTROPY: entropies(columns[VISITS]), COMPLETED_VALUE: columns[ROOT_VALUE]}

    def searched(self, observations: np.ndarray, legal: NDArray[np.bool_]) -> SearchResult:
        """Search from each observation [n, …] without noise, among its `legal` actions [n, actions]."""
        return self._searched(observations, None, legal)

    def _searched(
        self, observations: np.ndarray, noise: NDArray[np.float32] | None, legal: NDArray[np.bool_] | None
    ) -> SearchResult:
        if self._model is None:
            self._model = SearchedModel(self.frozen, self._device)
        roots = len(observations)
        if self._tree is None or self._tree[0] != roots:
            self._tree = roots, new_tree(roots, self._actions, self._settings)
        return search(
            self._model,
            self._observation.encode(observations),
            self._settings,
            tree=self._tree[1],
            legal=legal,
            noise=noise,
            noise_fraction=0.0 if noise is None else self._config.root_noise_fraction,
        )


def entropies(shares: NDArray[np.generic]) -> NDArray[np.float64]:
    """The entropy of each distribution in nats, [n], of shares or counts [n, actions]; those below 0 are no part of
    it."""
    counted = np.maximum(shares.astype(np.float64), 0.0)
    probability = counted / counted.sum(axis=1, keepdims=True)
    logs = np.log(probability, out=np.zeros_like(probability), where=probability > 0)
    return np.asarray(0.0 - (probability * logs).sum(axis=1))


def search_settings(config: MuZeroConfig) -> SearchSettings:
    """The settings of the search."""
    return SearchSettings(
        simulations=config.simulations,
        discount=config.discount,
        players=config.players,
        pb_c_base=config.pb_c_base,
        pb_c_init=config.pb_c_init,
        value_delta_min=config.value_delta_min,
        gumbel=_gumbel_settings(config) if config.gumbel else None,
    )


def _gumbel_settings(config: MuZeroConfig) -> GumbelSettings:
    return GumbelSettings(
        considered_actions=config.gumbel_considered_actions,
        c_visit=config.gumbel_c_visit,
        c_scale=config.gumbel_c_scale,
    )
