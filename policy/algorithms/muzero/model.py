"""The learned model as a search asks for it: probabilities and values, and a pool of latent states."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from remuda.policy.algorithms.muzero.networks import MuZeroNetwork
from remuda.policy.algorithms.muzero.scaling import Support
from remuda.policy.networks.tensors import to_tensor

Floats = NDArray[np.float32]


class FrozenNetwork:
    """A network as it is now, whatever is learned afterwards: for acting, and as a target.

    What it says are probabilities, and numbers of the environment's own rewards. Call it under torch.inference_mode or
    no_grad.
    """

    def __init__(self, network: MuZeroNetwork, support: Support) -> None:
        self._model = network.folded()
        self._support = support

    def represent(self, observations: torch.Tensor) -> torch.Tensor:
        """Latent states [n, …] of encoded observations [n, …]."""
        return self._model.represent(observations)

    def imagine(self, latent: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """The latent states [n, …] that actions, int64 [n], lead to."""
        return self._model.imagine(latent, actions)

    def predict(self, latent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Probabilities of the actions [n, actions], and values [n]."""
        said = self._model.predict(latent)
        return said.policy.softmax(1), self._support.expectation(said.value)

    def value(self, observations: torch.Tensor) -> torch.Tensor:
        """Values [n] of encoded observations [n, …]."""
        return self._support.expectation(self._model.predict(self.represent(observations)).value)

    def evaluate(self, latent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What the action brought, [n], that led to these latent states, and what `predict` says of them."""
        said = self._model.predict(latent)
        means = self._support.expectation(torch.cat((self._model.rewards(latent), said.value)))  # at once: n is small
        reward, value = means.chunk(2)
        return reward, said.policy.softmax(1), value


class SearchedModel:
    """What a search asks of a network; see remuda.policy.algorithms.muzero.search. Latent states stay in one tensor,
    which is kept from one search to the next."""

    def __init__(self, network: FrozenNetwork, device: torch.device) -> None:
        self._network, self._device = network, device
        self._pool = torch.empty(0, 0, device=device)
        """[simulations + 1, n, …]"""

    def begin(self, observations: np.ndarray, simulations: int) -> tuple[Floats, Floats]:
        """Take the roots of a search, encoded observations [n, …], into the pool as node 0.

        Returns the prior, float32 [n, actions], and the value, float32 [n].
        """
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
        """Imagine what each action [n] leads to from the nodes `parents` [n], and keep that as `node`.

        Returns the reward, float32 [n], the prior, float32 [n, actions], and the value, float32 [n].
        """
        with torch.inference_mode():
            rows = to_tensor(parents * np.int64(len(parents)) + self._rows, self._device)
            before = self._pool.flatten(0, 1).index_select(0, rows)
            latent = self._network.imagine(before, to_tensor(actions, self._device))
            self._pool[node] = latent
            reward, prior, value = self._network.evaluate(latent)
        return reward.cpu().numpy(), prior.cpu().numpy(), value.cpu().numpy()
