"""MuZero's network on the acting side: what acts with a search and without it have in common."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.policy.algorithms.muzero.convolution_model import ConvolutionNetwork, ConvolutionShape
from remuda.policy.algorithms.muzero.model import FrozenNetwork
from remuda.policy.algorithms.muzero.networks import CONSISTENCY, MuZeroNetwork
from remuda.policy.algorithms.muzero.perceptron_model import PerceptronNetwork, PerceptronShape
from remuda.policy.algorithms.muzero.scaling import Support
from remuda.policy.base import Arrays, Policy
from remuda.policy.networks.custom_encoder import CustomEncoder
from remuda.policy.networks.images import Pixels
from remuda.policy.networks.tensors import to_tensor, usable
from remuda.policy.saved_state import require_fit
from remuda.policy.spaces import ActionSpec, ObservationSpec


class ModelPolicy(Policy):
    """Has the network, its weights and its values. A subclass says how it acts."""

    uses_legal_actions = True

    def __init__(
        self,
        config: MuZeroConfig,
        observation: ObservationSpec,
        action: ActionSpec,
        *,
        source_dir: str | None = None,
        device: str = "cpu",
    ) -> None:
        """Raises UnsupportedSpaceError, DeviceError where there is no such device, and UserCodeError by the encoder."""
        self._observation, self._action = observation, action
        self._actions = number_of_actions(action)
        self._device = usable(device, setting="collector.device")
        network = make_network(config, observation, action, source_dir, trains=False)
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
        self._frozen = FrozenNetwork(self._network, self._support)

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
    pixels = None if encoder is not None else Pixels.of(observation)
    consistency = trains and config.consistency_coefficient > 0
    actions, atoms = number_of_actions(action), Support(config.support_size).atoms
    projection = (config.projection_units, config.projection_bottleneck) if consistency else None
    if pixels is not None:
        return ConvolutionNetwork(
            ConvolutionShape(
                actions=actions,
                head_hidden=config.head_hidden,
                atoms=atoms,
                projection=projection,
                pixels=pixels,
                channels=config.channels,
                residual_blocks=config.residual_blocks,
                precision=config.precision,
            )
        )
    return PerceptronNetwork(
        PerceptronShape(
            actions=actions,
            head_hidden=config.head_hidden,
            atoms=atoms,
            projection=projection,
            features=observation.features if encoder is None else encoder.features,
            hidden=config.hidden or (128,),
            latent=config.latent,
        ),
        encoder,
    )
