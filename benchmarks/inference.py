"""How fast collectors answer a batch of observations, against torch's eager mode and a traced, frozen graph.

The networks are plain feed-forward ones with random weights: an MLP such as CartPole's, and the convolutions that
Atari's images go through. Ours is whatever ActingNetwork takes for them on this machine.
"""

# torch's annotations are partial: pyright does not know what from_numpy returns.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from remuda.benchmarks.figure import Figure, compare, main
from remuda.policy.acting.network import ActingNetwork
from remuda.policy.networks.layouts import features_of, input_layout
from remuda.policy.networks.reading import programs
from remuda.policy.networks.torch_networks import QNetwork
from remuda.policy.networks.trunks import trunk_of
from remuda.policy.spaces import ObservationSpec
from remuda.worker.process import bound_threads

MEASURED_S = 1.0
BATCH = 8
"""Environments of one collector."""


def calls_per_s(answer: Callable[[np.ndarray], object], observations: np.ndarray) -> float:
    """Over about a second, the first call left out: it allocates."""
    answer(observations)
    calls, begin_s = 0, time.perf_counter()
    while (passed_s := time.perf_counter() - begin_s) < MEASURED_S:
        answer(observations)
        calls += 1
    return calls / passed_s


CASES = {
    "inference_mlp": (ObservationSpec((4,), "float32"), 2, (128, 128, 64)),
    "inference_atari": (ObservationSpec((4, 84, 84), "uint8", 0.0, 255.0), 6, (512,)),
}
"""Observations, actions and hidden layers: of CartPole, and of Atari (Mnih et al. 2015)."""


def figures(peers: bool) -> list[Figure]:
    """There are no peers but torch itself."""
    bound_threads()
    rng = np.random.default_rng(0)
    small = rng.standard_normal((BATCH, 4), np.float32)
    images = rng.integers(256, size=(BATCH, 4, 84, 84), dtype=np.uint8)
    return _against_torch("inference_mlp", small) + _against_torch("inference_atari", images)


def _against_torch(name: str, observations: np.ndarray) -> list[Figure]:
    spec, actions, hidden = CASES[name]

    def make() -> QNetwork:
        image = input_layout(spec, None)
        trunk = None if image is None else trunk_of(image)
        return QNetwork(features_of(spec, image), actions, hidden, dueling=False, trunk=trunk)

    network = make().eval().requires_grad_(requires_grad=False)
    example = torch.from_numpy(observations)
    frozen = torch.jit.freeze(torch.jit.trace(network, example))  # type: ignore[no-untyped-call]
    acting = ActingNetwork(make, spec, timed="values", chosen=print)
    arrays = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    acting.load_state(arrays | programs(network))
    ours = partial(acting, "values")
    np.testing.assert_allclose(ours(observations), network(example).numpy(), rtol=1e-5, atol=1e-4)

    def eager(batch: np.ndarray) -> object:
        with torch.inference_mode():
            return network(torch.from_numpy(batch)).numpy()

    def graph(batch: np.ndarray) -> object:
        with torch.inference_mode():
            return frozen(torch.from_numpy(batch)).numpy()

    references = {"torch eager": eager, "torch traced and frozen": graph}
    return compare(
        name,
        unit=f"batches of {BATCH}/s",
        goal=">= 0.77",  # the other way round a tie: there is none much faster
        ours=partial(calls_per_s, ours, observations),
        references={who: partial(calls_per_s, way, observations) for who, way in references.items()},
    )


if __name__ == "__main__":
    main(figures)
