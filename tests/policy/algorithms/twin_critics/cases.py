"""Small algorithms and batches of SAC, CrossQ and TD3, and their textbook losses for autograd."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable
from typing import Any, cast

import numpy as np
import torch

from remuda.config.algorithms.crossq import CrossQConfig
from remuda.config.algorithms.twin_critics import IqlConfig, SacConfig, Td3Config
from remuda.config.environment import EnvConfig
from remuda.config.learning import BufferConfig, LearnerConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms import make_algorithm
from remuda.policy.algorithms.twin_critics.learning import TwinCriticLearner, TwinCriticNetwork
from remuda.policy.networks.hyperspherical import UnitLinear, hyperspherical_perceptron
from remuda.policy.spaces import ActionSpec, ObservationSpec

OBSERVATION = ObservationSpec((3,), "float32")
PUSH = ActionSpec(None, 0, "float32", (2,), (-2.0, 0.0), (2.0, 10.0))
COUNTED = ActionSpec(4, start=1)
UNCLIPPED = LearnerConfig(max_grad_norm=None, learning_rate=1e-2)

Batch = dict[str, np.ndarray]
Policy = SacConfig | CrossQConfig | Td3Config | IqlConfig


def config(policy: Policy, learner: LearnerConfig = UNCLIPPED) -> ExperimentConfig:
    env, buffer = EnvConfig(id="Pendulum-v1"), BufferConfig(min_rows=100)
    return ExperimentConfig(name="case", env=env, policy=policy, learner=learner, buffer=buffer)


def made(
    policy: Policy, action: ActionSpec = PUSH, *, learner: LearnerConfig = UNCLIPPED, seed: int = 0
) -> TwinCriticLearner[Any]:
    algorithm = make_algorithm(config(policy, learner), OBSERVATION, action, seed)
    assert isinstance(algorithm, TwinCriticLearner)
    return algorithm


def batch(rng: np.random.Generator, action: ActionSpec = PUSH, rows: int = 16) -> Batch:
    acted: np.ndarray
    if action.n is None:
        low, high = np.array(action.low, np.float64), np.array(action.high, np.float64)
        acted = rng.uniform(low, high, (rows, len(low))).astype(np.float32)
    else:
        acted = rng.integers(action.start, action.start + action.n, rows)
    return {
        "obs": rng.normal(size=(rows, 3)).astype(np.float32),
        "next_obs": rng.normal(size=(rows, 3)).astype(np.float32),
        "action": acted,
        "reward": rng.normal(size=rows).astype(np.float32),
        "discount": np.where(rng.random(rows) < 0.3, 0.0, 0.9).astype(np.float32),
        "weights": rng.uniform(0.2, 2.0, rows).astype(np.float32),
    }


def noise(updates: int, each: int, rows: int = 16) -> torch.Tensor:
    """Normal numbers that an algorithm with seed 0 draws after `updates` updates."""
    return torch.from_numpy(np.random.default_rng((0, updates)).standard_normal((rows, each), np.float32))


def tensors(rows: Batch) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(column) for name, column in rows.items()}


def seen(algorithm: TwinCriticLearner[Any], rows: Batch) -> dict[str, torch.Tensor]:
    """Columns with normalised observations, if the network normalises them."""
    assert isinstance(algorithm.network, TwinCriticNetwork)
    t, moments = tensors(rows), algorithm.network.observations
    normalised = {} if moments is None else {name: moments(t[name]) for name in ("obs", "next_obs")}
    return {**t, **normalised}


def unit(actions: torch.Tensor) -> torch.Tensor:
    """PUSH's actions in -1 … 1."""
    return torch.stack((actions[:, 0] / 2.0, actions[:, 1] / 5.0 - 1.0), dim=1)


def networks(algorithm: TwinCriticLearner[Any]) -> tuple[TwinCriticNetwork, TwinCriticNetwork]:
    """Copies of the network and the target network, for autograd."""
    assert isinstance(algorithm.network, TwinCriticNetwork)
    online = copy.deepcopy(algorithm.network).eval()  # so its layers are torch's own
    for parameter in online.parameters():
        parameter.grad = None
    return online, copy.deepcopy(online)


def values(network: TwinCriticNetwork, obs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """Of both critics: [2, n]."""
    of_both: torch.Tensor = network.critics(torch.cat((obs, actions), dim=1))
    return of_both.squeeze(2)


def density(network: torch.nn.Module, obs: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Actions drawn with this noise, and their log density, by torch's distributions."""
    mean, log_std = network(obs).chunk(2, dim=1)
    normal = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp())
    squash = torch.distributions.transforms.TanhTransform(cache_size=1)
    squashed = torch.distributions.TransformedDistribution(normal, squash)
    action = cast("torch.Tensor", squash(mean + log_std.clamp(-20, 2).exp() * noise))
    log_prob = cast("Callable[[torch.Tensor], torch.Tensor]", squashed.log_prob)
    return action, log_prob(action).sum(dim=1)


def entropy(logits: torch.Tensor) -> torch.Tensor:
    """Of counted actions: [n]."""
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(dim=1)


class NormalisedNetworks:
    """CrossQ's actor and critics with the first weights of an algorithm: of torch's own modules, or hyperspherical."""

    def __init__(self, algorithm: TwinCriticLearner[Any], hidden: tuple[int, ...], outputs: int) -> None:
        assert isinstance(algorithm.network, TwinCriticNetwork)
        make = _normalised if algorithm.network.observations is None else _hyperspherical
        self.actor = make(3, hidden, 4)
        self.critics = torch.nn.ModuleList([make(5, hidden, outputs) for _ in range(2)])
        self._parts = {"actor.0.": self.actor.eval(), "critics.": self.critics.eval()}
        state = algorithm.network.state_dict()
        for prefix, module in self._parts.items():
            own = {name.removeprefix(prefix): copy.deepcopy(state[name]) for name in state if name.startswith(prefix)}
            module.load_state_dict(own, strict=False)  # torch's own also count batches

    def outputs(self, obs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """Of both critics: [2, n, outputs]."""
        return torch.stack([critic(torch.cat((obs, actions), 1)) for critic in self.critics])

    def project(self, unit_length: bool, *modules: torch.nn.Module) -> None:
        """Scale the weights before normalisations to length 1."""
        for layer in (layer for module in modules for layer in module.modules()):
            if not unit_length or not isinstance(layer, torch.nn.Linear):
                continue
            if isinstance(layer, UnitLinear) or "bias" not in dict(layer.named_parameters()):
                layer.weight.data /= layer.weight.data.norm(dim=1, keepdim=True)

    def state(self) -> dict[str, torch.Tensor]:
        """Weights and moments, by the algorithm's names."""
        named = {prefix + name: t for prefix, part in self._parts.items() for name, t in part.state_dict().items()}
        return {name: tensor for name, tensor in named.items() if "num_batches" not in name}


def _normalised(inputs: int, hidden: tuple[int, ...], outputs: int) -> torch.nn.Sequential:
    layers: list[torch.nn.Module] = [torch.nn.BatchNorm1d(inputs, 1e-3, affine=False)]
    for before, after in itertools.pairwise((inputs, *hidden)):
        layers += [torch.nn.Linear(before, after, bias=False), torch.nn.BatchNorm1d(after, 1e-3), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(hidden[-1], outputs))


def _hyperspherical(inputs: int, hidden: tuple[int, ...], outputs: int) -> torch.nn.Sequential:
    return hyperspherical_perceptron((inputs, *hidden, outputs), unit_outputs=outputs > 1)


def follow(target: torch.nn.Module, online: torch.nn.Module, share: float) -> None:
    with torch.no_grad():
        for behind, ahead in zip(target.parameters(), online.parameters(), strict=True):
            behind.copy_((1.0 - share) * behind + share * ahead)


def step(optimizer: torch.optim.Optimizer, loss: torch.Tensor, parameters: Iterable[torch.nn.Parameter]) -> None:
    """A step of these parameters alone down a loss."""
    kept = list(parameters)
    for parameter, gradient in zip(kept, torch.autograd.grad(loss, kept), strict=True):
        parameter.grad = gradient
    optimizer.step()


def integral(of: Callable[[np.ndarray], np.ndarray], low: float, high: float) -> float:
    """By the midpoint rule."""
    edges = np.linspace(low, high, 200_001)
    return float((of((edges[:-1] + edges[1:]) / 2) * np.diff(edges)).sum())
