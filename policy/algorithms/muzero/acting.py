"""MuZero, the acting side: by the network's policy alone, or by a search for each action."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.policy.acting.distributions import Categorical, masked
from remuda.policy.acting.network import PLAIN, Inference
from remuda.policy.algorithms.muzero.model import SearchedModel, make_network, number_of_actions
from remuda.policy.algorithms.muzero.networks import CONSISTENCY, FrozenNetwork
from remuda.policy.algorithms.muzero.scaling import Support
from remuda.policy.algorithms.muzero.search.roots import logits_of
from remuda.policy.algorithms.muzero.search.search import SearchResult, choose, search
from remuda.policy.algorithms.muzero.search.settings import GumbelSettings
from remuda.policy.algorithms.muzero.search.tree import SearchSettings, Tree, new_tree
from remuda.policy.algorithms.muzero.targets import (
    COMPLETED_VALUE,
    ROOT_VALUE,
    SEARCH_POLICY,
    TEMPERATURE,
    VISIT_ENTROPY,
)
from remuda.policy.base import Arrays, Policy
from remuda.policy.networks.tensors import to_tensor, usable
from remuda.policy.saved_state import require_fit
from remuda.policy.spaces import ActionSpec, ObservationSpec

VISITS = "visits"
"""Names the visits of Gumbel MuZero's searches, [actions]: its SEARCH_POLICY is the improved policy, so their shares
are not stored."""
ILLEGAL = -1.0
"""Stands in SEARCH_POLICY for the share of an illegal action. So whoever searches again knows which were illegal, and
rows of environments that name none need no more space."""


class UnsearchedMuZero(Policy):
    """Takes the action that the network expects a search to prefer, or draws from its policy. This shows how much of
    the playing strength the search adds, and is many times as fast."""

    uses_legal_actions = True

    def __init__(
        self,
        config: MuZeroConfig,
        observation: ObservationSpec,
        action: ActionSpec,
        inference: Inference = PLAIN,
    ) -> None:
        """Raises UnsupportedSpaceError, DeviceError where there is no such device, and UserCodeError by the encoder."""
        self._observation, self._action = observation, action
        self._actions = number_of_actions(action)
        self._device = usable(inference.device, setting="collector.device")
        network = make_network(config, observation, action, inference.source_dir, trains=False)
        self._network = network.to(self._device).requires_grad_(False)
        self._shapes = {name: tuple(tensor.shape) for name, tensor in self._network.state_dict().items()}
        self._support = Support(config.support_size)
        self._frozen: FrozenNetwork | None = None

    def load_state(self, state: Arrays) -> None:
        """Act with these weights from now on; what only training needs may be among them. Raises StateMismatchError,
        and the old ones stay."""
        given = {name: array for name, array in state.items() if not name.startswith(CONSISTENCY)}
        require_fit(self._shapes, given, what="policy")
        for name, tensor in self._network.state_dict().items():
            tensor.copy_(torch.tensor(given[name]))
        self._frozen = self._network.frozen(self._support)

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
        """Choose actions [n] of the space's dtype among the legal ones: the likeliest, or drawn by their
        probabilities."""
        with torch.inference_mode():
            seen = to_tensor(self._observation.encode(observations), self._device)
            probabilities, _ = self.frozen.predict(self.frozen.represent(seen))
        logits = logits_of(probabilities.cpu().numpy())
        policy = Categorical(masked(logits, legal))
        return self._action.to_environment(policy.mode() if deterministic else policy.sample(rng))

    def value(self, observations: np.ndarray, *, state: np.ndarray | None = None) -> np.ndarray:
        """What the network says, without a search: float32 [n]."""
        with torch.inference_mode():
            values = self.frozen.value(to_tensor(self._observation.encode(observations), self._device))
        array: NDArray[np.float32] = values.cpu().numpy()
        return array

    @property
    def frozen(self) -> FrozenNetwork:
        """The newest weights. Raises RuntimeError before there are any."""
        if self._frozen is None:
            raise RuntimeError("the policy has no weights yet: call load_state first")
        return self._frozen


class MuZeroPolicy(UnsearchedMuZero):
    """Searches the learned model, and takes the actions that the search visited most.

    In collectors the root's prior has noise, and actions are drawn by their visits. With Gumbel MuZero it takes the
    winners of sequential halving, in collectors under its noise. All chance comes from the given generator.
    """

    def __init__(
        self,
        config: MuZeroConfig,
        observation: ObservationSpec,
        action: ActionSpec,
        inference: Inference = PLAIN,
    ) -> None:
        """See UnsearchedMuZero."""
        super().__init__(config, observation, action, inference)
        self._config, self._settings = config, search_settings(config)
        self._model: SearchedModel | None = None
        self._tree: tuple[int, Tree] | None = None
        """For so many roots."""

    def load_state(self, state: Arrays) -> None:
        """See UnsearchedMuZero."""
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
