"""The learned model: the network that the settings ask for, and what a search asks of it."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.policy.algorithms.muzero.convolution_model import ConvolutionNetwork
from remuda.policy.algorithms.muzero.networks import FrozenNetwork, MuZeroNetwork
from remuda.policy.algorithms.muzero.perceptron_model import PerceptronNetwork
from remuda.policy.networks.custom_encoder import CustomEncoder
from remuda.policy.networks.images import Pixels
from remuda.policy.networks.tensors import to_tensor
from remuda.policy.spaces import ActionSpec, ObservationSpec

Floats = NDArray[np.float32]


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


def number_of_actions(action: ActionSpec) -> int:
    """How many actions there are. Raises UnsupportedSpaceError where they cannot be counted."""
    return action.counted(by="muzero, which searches by single actions")


def make_network(
    config: MuZeroConfig, observation: ObservationSpec, action: ActionSpec, source_dir: str | None, *, trains: bool
) -> MuZeroNetwork:
    """A network as torch's generator begins it, with the heads of consistency if it `trains` with them.

    Raises UnsupportedSpaceError, and UserCodeError by its encoder, whose module is looked for in `source_dir`.
    """
    encoder = None if config.encoder is None else CustomEncoder(config, observation, source_dir)
    pixels, actions = None if encoder is not None else Pixels.of(observation), number_of_actions(action)
    trains = trains and config.consistency_coefficient > 0
    if pixels is not None:
        return ConvolutionNetwork(config, pixels, actions, trains=trains)
    features = observation.features if encoder is None else encoder.features
    return PerceptronNetwork(config, features, actions, encoder, trains=trains)
