"""How fast collectors answer a batch of observations, against torch's eager mode and a traced, frozen graph.

The networks are plain feed-forward ones with random weights: an MLP such as CartPole's, and the convolutions that
Atari's images go through. Ours is whatever `policy.inference.fastest` takes for them on this machine.
"""

# torch's annotations are partial: pyright does not know what from_numpy returns.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from remuda.benchmarks.figure import Figure, compare, main
from remuda.policy.acting.inference import fastest
from remuda.policy.acting.weights import Dense, Filters, Weights
from remuda.worker.threads import bound_threads

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


def perceptron() -> tuple[nn.Sequential, Weights]:
    """4 inputs, 128-128-64, 2 outputs."""
    sizes = (4, 128, 128, 64, 2)
    layers = [nn.Linear(inputs, outputs) for inputs, outputs in pairwise(sizes)]
    between = [step for layer in layers[:-1] for step in (layer, nn.ReLU())]
    return nn.Sequential(*between, layers[-1]), Weights(tuple(map(_dense, layers)), "relu")


def convolutions() -> tuple[nn.Sequential, Weights]:
    """Four stacked frames of 84x84 through the layers of Mnih et al. (2015), 6 outputs."""
    filters = [nn.Conv2d(4, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3, 1)]
    layers = [nn.Linear(3_136, 512), nn.Linear(512, 6)]
    trunk = [step for layer in filters for step in (layer, nn.ReLU())]
    network = nn.Sequential(*trunk, nn.Flatten(), layers[0], nn.ReLU(), layers[1])
    convolved = tuple(Filters(_array(f.weight), _array(f.bias), f.stride[0]) for f in filters)
    return network, Weights(tuple(map(_dense, layers)), "relu", convolved)


def figures(peers: bool) -> list[Figure]:
    """There are no peers but torch itself."""
    bound_threads()
    rng = np.random.default_rng(0)
    small = rng.standard_normal((BATCH, 4), np.float32)
    images = rng.integers(256, size=(BATCH, 4, 84, 84), dtype=np.uint8)
    return _against_torch("inference_mlp", *perceptron(), small) + _against_torch(
        "inference_atari", *convolutions(), images
    )


def _against_torch(name: str, network: nn.Sequential, weights: Weights, observations: np.ndarray) -> list[Figure]:
    network.eval().requires_grad_(requires_grad=False)
    example = torch.from_numpy(observations).float()
    frozen = torch.jit.freeze(torch.jit.trace(network, example))  # type: ignore[no-untyped-call]
    make, _ = fastest(weights, observations)
    ours = make(weights)
    np.testing.assert_allclose(ours(observations), network(example).numpy(), rtol=1e-5, atol=1e-4)

    def eager(batch: np.ndarray) -> object:
        with torch.inference_mode():
            return network(torch.from_numpy(batch).float()).numpy()

    def graph(batch: np.ndarray) -> object:
        with torch.inference_mode():
            return frozen(torch.from_numpy(batch).float()).numpy()

    references = {"torch eager": eager, "torch traced and frozen": graph}
    return compare(
        name,
        unit=f"batches of {BATCH}/s",
        goal=">= 0.77",  # the other way round a tie: there is none much faster
        ours=partial(calls_per_s, ours, observations),
        references={who: partial(calls_per_s, way, observations) for who, way in references.items()},
    )


def _dense(layer: nn.Linear) -> Dense:
    return Dense(_array(layer.weight), _array(layer.bias))


def _array(parameter: torch.Tensor | None) -> np.ndarray:
    assert parameter is not None
    return parameter.detach().numpy()


if __name__ == "__main__":
    main(figures)
