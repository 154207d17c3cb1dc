"""MuZero, the acting side: by the network alone, by a search per action, and reanalysis of stored rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.policy.acting.distributions import Categorical, masked
from remuda.policy.acting.network import PLAIN, Function, Inference
from remuda.policy.algorithms.muzero.models import ConvolutionNetwork, PerceptronNetwork
from remuda.policy.algorithms.muzero.networks import CONSISTENCY, FrozenNetwork, MuZeroNetwork, Support
from remuda.policy.algorithms.muzero.search.rules import GumbelSettings, SearchSettings, logits_of
from remuda.policy.algorithms.muzero.search.search import SearchResult, choose, new_tree, search
from remuda.policy.algorithms.muzero.search.tree import Tree
from remuda.policy.algorithms.muzero.targets import (
    COMPLETED_VALUE,
    ROOT_VALUE,
    SEARCH_POLICY,
    TEMPERATURE,
    VISIT_ENTROPY,
)
from remuda.policy.base import Arrays, Policy, Reanalyzer
from remuda.policy.networks.custom import CustomEncoder
from remuda.policy.networks.layouts import Pixels
from remuda.policy.networks.tensors import to_tensor, usable
from remuda.policy.saved_state import require_fit
from remuda.policy.spaces import ActionSpec, ObservationSpec

Floats = NDArray[np.float32]


class SearchModel:
    """A network for searches; see remuda.policy.algorithms.muzero.search. Latent states stay in one tensor, reused by
    the next search."""

    def __init__(self, network: FrozenNetwork, device: torch.device) -> None:
        self._network, self._device = network, device
        self._pool = torch.empty(0, 0, device=device)
        """[simulations + 1, n, …]"""

    def begin(self, observations: np.ndarray, simulations: int) -> tuple[Floats, Floats]:
        """See Model, for encoded observations [n, …]."""
        with torch.inference_mode():
            latent = self._network.represent(to_tensor(observations, self._device))
            size = (simulations + 1, *latent.shape)
            if self._pool.shape != size:
                self._pool = torch.empty(size, device=self._device)
            self._rows = np.arange(len(latent), dtype=np.int64)
            self._pool[0] = latent
            prior, value = self._network.predict(latent)
        return prior.cpu().numpy(), value.cpu().numpy()

    def expand(
        self, parents: NDArray[np.int32], actions: NDArray[np.int64], node: int
    ) -> tuple[Floats, Floats, Floats]:
        with torch.inference_mode():
            rows = to_tensor(parents * np.int64(len(parents)) + self._rows, self._device)
            before = self._pool.flatten(0, 1).index_select(0, rows)
            latent = self._network.imagine(before, to_tensor(actions, self._device))
            self._pool[node] = latent
            reward, prior, value = self._network.evaluate(latent)
        return reward.cpu().numpy(), prior.cpu().numpy(), value.cpu().numpy()


def number_of_actions(action: ActionSpec) -> int:
    """Number of actions. Raises UnsupportedSpaceError if they cannot be counted."""
    return action.counted(by="muzero, which searches by single actions")


def make_network(
    config: MuZeroConfig, observation: ObservationSpec, action: ActionSpec, source_dir: str | None, *, trains: bool
) -> MuZeroNetwork:
    """Make a network with weights from torch's generator, and with the heads of consistency if it `trains` with them.

    Raises UnsupportedSpaceError, and UserCodeError for a user's encoder, whose module is looked up in `source_dir`.
    """
    encoder = None if config.encoder is None else CustomEncoder(config, observation, source_dir)
    pixels, actions = None if encoder is not None else Pixels.of(observation), number_of_actions(action)
    trains = trains and config.consistency_coefficient > 0
    if pixels is not None:
        return ConvolutionNetwork(config, pixels, actions, trains=trains)
    features = observation.features if encoder is None else encoder.features
    return PerceptronNetwork(config, features, actions, encoder, trains=trains)


VISITS = "visits"
"""Name of the visits of Gumbel MuZero's searches, [actions]. They are not stored: SEARCH_POLICY holds the improved
policy."""
ILLEGAL = -1.0
"""Marks an illegal action in SEARCH_POLICY, for reanalysis. So no rows need an additional column of legal actions."""


_RESULTS = ("visits", "policy", "value", "action")
"""Fields of a SearchResult, in their order."""


class NetworkMuZeroPolicy(Policy):
    """Takes the action with the highest prior, or draws by the priors. Without a search it is many times as fast, and
    shows how much strength the search adds."""

    uses_legal_actions = True

    def __init__(
        self, config: MuZeroConfig, observation: ObservationSpec, action: ActionSpec, inference: Inference = PLAIN
    ) -> None:
        """Raises UnsupportedSpaceError, DeviceError if the device does not exist, and UserCodeError for the encoder."""
        self._observation, self._action = observation, action
        self._actions = number_of_actions(action)
        self._device = usable(inference.device, setting="collector.device")
        self._shared = inference.shared
        if self._elsewhere:
            return
        network = make_network(config, observation, action, inference.source_dir, trains=False)
        self._network = network.to(self._device).requires_grad_(False)
        self._shapes = {name: tuple(tensor.shape) for name, tensor in self._network.state_dict().items()}
        self._support = Support(config.support_size)
        self._frozen: FrozenNetwork | None = None

    def load_state(self, state: Arrays) -> None:
        """Act with these weights from now on. Weights that only training needs are ignored. Raises StateMismatchError
        and keeps the old weights."""
        if self._elsewhere:
            return
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
        """Choose actions [n] of the space's dtype among the legal actions: the likeliest, or drawn by their
        probabilities."""
        with torch.inference_mode():
            seen = to_tensor(self._observation.encode(observations), self._device)
            probabilities, _ = self.frozen.predict(self.frozen.represent(seen))
        logits = logits_of(probabilities.cpu().numpy())
        policy = Categorical(masked(logits, legal))
        return self._action.to_environment(policy.mode() if deterministic else policy.sample(rng))

    def value(self, observations: np.ndarray, *, state: np.ndarray | None = None) -> np.ndarray:
        """The network's values, without a search: float32 [n]."""
        with torch.inference_mode():
            values = self.frozen.value(to_tensor(self._observation.encode(observations), self._device))
        array: NDArray[np.float32] = values.cpu().numpy()
        return array

    @property
    def _elsewhere(self) -> bool:
        """True if another process searches, which has the network."""
        return self._shared is not None and self._shared.elsewhere

    @property
    def frozen(self) -> FrozenNetwork:
        """The newest weights. Raises RuntimeError before the first weights."""
        if self._frozen is None:
            raise RuntimeError("the policy has no weights yet: call load_state first")
        return self._frozen


class MuZeroPolicy(NetworkMuZeroPolicy):
    """Searches the learned model, and takes the most visited actions.

    In collectors the root's prior has noise, and actions are drawn by their visits. Gumbel MuZero takes the winners of
    sequential halving, in collectors with Gumbel noise. All randomness comes from the given generator.
    """

    def __init__(
        self, config: MuZeroConfig, observation: ObservationSpec, action: ActionSpec, inference: Inference = PLAIN
    ) -> None:
        super().__init__(config, observation, action, inference)
        self._config, self._settings = config, search_settings(config)
        self._model: SearchModel | None = None
        self._tree: tuple[int, Tree] | None = None
        """Number of roots, and their trees."""
        self._compute: Function = self._search
        if self._shared is not None:
            self._compute = self._shared.place(None if self._elsewhere else self._search)

    def load_state(self, state: Arrays) -> None:
        super().load_state(state)
        self._model = None

    def recorded(self) -> Mapping[str, tuple[tuple[int, ...], str]]:
        return {SEARCH_POLICY: ((self._actions,), "float32"), ROOT_VALUE: ((), "float32")}

    def measured(self) -> Mapping[str, tuple[tuple[int, ...], str]]:
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
        """See Policy: records the search's policy and value.

        Actions are drawn by visits ** (1 / temperature), or, with Gumbel MuZero, by its noise.
        """
        roots, gumbel = len(observations), self._config.gumbel
        alpha = np.full(self._actions, self._config.root_noise_alpha)
        noise = rng.gumbel(size=(roots, self._actions)) if gumbel else rng.dirichlet(alpha, roots)
        found = self._searched(observations, noise.astype(np.float32), legal)
        chosen = found.action if gumbel else choose(found.visits, exploration[TEMPERATURE], rng)
        policy = found.policy if legal is None else np.where(legal, found.policy, np.float32(ILLEGAL))
        columns = {SEARCH_POLICY: policy, ROOT_VALUE: found.value}
        if gumbel:
            columns[VISITS] = found.visits
        return self._action.to_environment(chosen), columns

    def collected_metrics(self, columns: Arrays) -> Arrays:
        """See Policy: the entropy of the searches' visits in nats, and with Gumbel MuZero the values of the roots."""
        if not self._config.gumbel:
            return {VISIT_ENTROPY: entropies(columns[SEARCH_POLICY])}
        return {VISIT_ENTROPY: entropies(columns[VISITS]), COMPLETED_VALUE: columns[ROOT_VALUE]}

    def searched(self, observations: np.ndarray, legal: NDArray[np.bool_]) -> SearchResult:
        """Search from each observation [n, …] without noise, among the `legal` actions [n, actions]."""
        return self._searched(observations, None, legal)

    def _searched(
        self, observations: np.ndarray, noise: NDArray[np.float32] | None, legal: NDArray[np.bool_] | None
    ) -> SearchResult:
        arrays: dict[str, np.ndarray] = {"observations": self._observation.encode(observations)}
        if noise is not None:
            arrays["noise"] = noise
        if legal is not None:
            arrays["legal"] = legal
        found = self._compute("search", arrays)
        return SearchResult(*(found[name] for name in _RESULTS))

    def _search(self, output: str, arrays: Arrays) -> Arrays:
        """Search, as a Function of encoded observations, noise and legal actions."""
        noise, observations = arrays.get("noise"), arrays["observations"]
        if self._model is None:
            self._model = SearchModel(self.frozen, self._device)
        roots = len(observations)
        if self._tree is None or self._tree[0] != roots:
            self._tree = roots, new_tree(roots, self._actions, self._settings)
        found = search(
            self._model,
            observations,
            self._settings,
            tree=self._tree[1],
            legal=arrays.get("legal"),
            noise=noise,
            noise_fraction=0.0 if noise is None else self._config.root_noise_fraction,
        )
        return {name: getattr(found, name) for name in _RESULTS}


def entropies(shares: NDArray[np.generic]) -> NDArray[np.float64]:
    """Entropy in nats, [n], of shares or counts [n, actions]; negative entries are ignored."""
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


class MuZeroReanalyzer(Reanalyzer):
    """Searches every position of a row with a chosen action, without noise, among the legal actions.

    Successive rows hold mostly the same observations: equal observations are searched once.
    """

    def __init__(
        self, config: MuZeroConfig, observation: ObservationSpec, action: ActionSpec, inference: Inference = PLAIN
    ) -> None:
        self._policy = MuZeroPolicy(config, observation, action, inference)

    def load_state(self, state: Arrays) -> None:
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
    """Index of the first of each group of equal observations [n, …] and legal actions [n, actions], int64 [m], and the
    group of each observation, int64 [n]."""
    number: dict[bytes, int] = {}
    first: list[int] = []
    again = np.empty(len(observations), np.int64)
    for index in range(len(observations)):
        content = observations[index].tobytes() + legal[index].tobytes()
        again[index] = number.setdefault(content, len(number))
        if again[index] == len(first):
            first.append(index)
    return np.array(first, np.int64), again
