"""Networks with several parts: acting, learning and exported models read the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from remuda.config.algorithms.actor_critic import PpoConfig
from remuda.config.algorithms.base import AlgorithmConfig
from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.config.environment import EnvConfig
from remuda.config.schema import ExperimentConfig
from remuda.environments.errors import UnsupportedSpaceError
from remuda.environments.spaces import PackObservations
from remuda.policy.algorithms import make_algorithm, make_policy
from remuda.policy.networks.compiled import compiled
from remuda.policy.networks.layouts import PartsLayout, features_of, input_layout
from remuda.policy.networks.precision import Products
from remuda.policy.networks.reading import Names
from remuda.policy.networks.torch_networks import QNetwork
from remuda.policy.networks.trunks import PartsTrunk, from_bytes
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.environments.structured import Cells, Grid

ENV = PackObservations(Grid())
SPEC = ObservationSpec.of(ENV.observation_space)
ROWS = np.stack([ENV.reset(seed=seed)[0] for seed in range(5)])
ACTIONS = ActionSpec(4)
VECTORS = 4 + 2 + (2 + 3) + 3


def experiment(policy: AlgorithmConfig) -> ExperimentConfig:
    return ExperimentConfig.model_validate({"name": "case", "env": EnvConfig(id="CartPole-v1"), "policy": policy})


def test_the_trunk_reads_vectors_and_images_as_acting_does() -> None:
    layout = PartsLayout.of(SPEC, None)
    trunk = PartsTrunk(layout)
    with torch.no_grad():
        learned = trunk(torch.from_numpy(ROWS)).numpy()
        acted = trunk.eval()(torch.from_numpy(ROWS)).numpy()
    assert learned.shape == (5, layout.features)
    assert layout.features == VECTORS + 16 * 5 * 5
    state = {name: value.numpy() for name, value in trunk.state_dict().items()}
    forward = compiled(trunk.steps(Names(trunk)), state, SPEC)
    np.testing.assert_allclose(forward(ROWS), learned, atol=1e-5)
    np.testing.assert_allclose(acted, learned, atol=1e-5)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UnsupportedSpaceError, match="no part of the observations is one"):
        input_layout(ObservationSpec.of(PackObservations(Cells()).observation_space), ((8, 3, 1),))
    with pytest.raises(UnsupportedSpaceError, match=r"observations have several parts \(direction, image"):
        make_policy(experiment(PpoConfig(normalize_observations=True)), SPEC, ACTIONS)
    with pytest.raises(UnsupportedSpaceError, match=r"several parts \(direction, .*not supported by this algorithm"):
        make_algorithm(experiment(MuZeroConfig()), SPEC, ACTIONS, seed=0)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint16", "uint32", "float32"])
def test_bytes_are_read_as_the_numbers_they_are(dtype: str) -> None:
    known = np.dtype(dtype)
    if known.kind == "f":
        some = np.array([0.0, -0.0, 1.0, -1.5, 3.14159, 1e-45, 1e-38, -3.4e38, 1e30], np.float32)
    else:
        some = np.array([np.iinfo(known).min, np.iinfo(known).max, 0, 1, 127], known)
    read = from_bytes(torch.from_numpy(some.view(np.uint8).reshape(len(some), -1)), known)
    assert read.numpy().tolist() == some.tolist()


def test_vectors_beside_images_are_not_read_in_a_lower_precision() -> None:
    """The layers after the convolutions read both."""
    layout = PartsLayout.of(SPEC, None)
    network = QNetwork(features_of(SPEC, layout), 4, (512, 512), dueling=True, trunk=PartsTrunk(layout))
    exact = network(torch.from_numpy(ROWS))
    products = Products(torch.device("cpu")).reach(network)
    products.precision = "bfloat16"
    assert torch.equal(network(torch.from_numpy(ROWS)), exact)
    assert not products.lowered
