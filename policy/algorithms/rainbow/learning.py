"""Rainbow, the learning side (Hessel et al. 2018): the update rule on one page."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from remuda.config.algorithms.q_learning import RainbowConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.dqn.entry import hidden_layers, number_of_actions
from remuda.policy.algorithms.dqn.learning import QLearner, munchausen_bonus, soft_value
from remuda.policy.algorithms.rainbow.entry import NOISE_SIGMA
from remuda.policy.base import Arrays, LearnResult, Loss
from remuda.policy.network_learner import Transitions
from remuda.policy.networks.custom import CustomValues, reads
from remuda.policy.networks.portable import Portable
from remuda.policy.networks.precision import Lowers
from remuda.policy.networks.tensors import masked
from remuda.policy.networks.trunks import lowered
from remuda.policy.return_distributions import Categorical, Quantiles, ReturnDistribution
from remuda.policy.spaces import ActionSpec, ObservationSpec


def return_distribution(config: RainbowConfig, device: torch.device) -> ReturnDistribution:
    """Make the distribution of these settings."""
    if config.distribution == "quantile":
        return Quantiles(config.atoms, device)
    return Categorical(config.atoms, config.v_min, config.v_max, device)


HIDDEN = (128, 128)
"""Default units of the hidden layers."""

Noise = Callable[[torch.Tensor], torch.Tensor] | None
"""Draws normal numbers with a tensor's shape and device, for noisy layers; None: no noise."""


class NoisyLinear(nn.Module):
    """A fully connected layer with learned noise in its weights (Fortunato et al. 2018, factorised)."""

    def __init__(self, inputs: int, outputs: int, sigma: float) -> None:
        """`sigma`: initial size of the noise, relative to the weights."""
        super().__init__()
        bound = 1.0 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((outputs, inputs), sigma * bound))
        self.bias_sigma = nn.Parameter(torch.full((outputs,), sigma * bound))

    def forward(self, inputs: torch.Tensor, noise: Noise = None) -> torch.Tensor:
        """[n, inputs] -> [n, outputs], all rows with the same noise."""
        if noise is None:
            return functional.linear(inputs, self.weight, self.bias)
        drawn = noise(self.weight[0]), noise(self.bias)
        of_inputs, of_outputs = (each.sign() * each.abs().sqrt() for each in drawn)
        weight = torch.addcmul(self.weight, self.weight_sigma * of_outputs.unsqueeze(1), of_inputs)
        return functional.linear(inputs, weight, torch.addcmul(self.bias, self.bias_sigma, of_outputs))

    @torch.no_grad()
    def relative_sigma(self) -> torch.Tensor:
        """Mean size of the weights' noise, on the scale of `sigma`."""
        size: torch.Tensor = torch.linalg.vector_norm(self.weight_sigma, ord=1)
        return size * (math.sqrt(self.weight.shape[1]) / self.weight.numel())


class RainbowNetwork(nn.Module, Lowers):
    """Encoded observations [n, …] -> float32 [n, actions, atoms].

    Layers before the streams are plain. Each stream has a hidden layer and a last layer, noisy with `noisy_sigma`.
    """

    def __init__(
        self,
        features: int,
        actions: int,
        atoms: int,
        hidden: tuple[int, ...],
        *,
        dueling: bool,
        noisy_sigma: float | None,
        trunk: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self._actions, self._atoms = actions, atoms
        self.trunk = trunk
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise((features, *hidden[:-1])):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.torso = nn.Sequential(*layers)
        width, before = hidden[-1], (features, *hidden)[-2]
        self.streams = _layer(before, 2 * width if dueling else width, noisy_sigma)
        self.advantage = _layer(width, actions * atoms, noisy_sigma)
        self.value = _layer(width, atoms, noisy_sigma) if dueling else None

    def forward(self, observations: torch.Tensor, noise: Noise = None) -> torch.Tensor:
        """Compute the distribution of returns of each action; see ReturnDistribution."""
        with lowered(self, self.trunk):
            hidden = observations if self.trunk is None else self.trunk(observations)
            hidden = torch.relu(_apply(self.streams, self.torso(hidden), noise))
        with torch.autocast(hidden.device.type, enabled=False):  # the last layers are float32 always
            return self._outputs(hidden.float(), noise)

    def acting(self) -> dict[str, nn.Module]:
        """See remuda.policy.networks.reading: the `features` before the (noisy) streams."""
        return {"features": nn.Sequential(*([] if self.trunk is None else [self.trunk]), self.torso)}

    def relative_sigma(self) -> torch.Tensor:
        """Mean of `relative_sigma` over the noisy layers, at least one."""
        layers = (self.streams, self.advantage, self.value)
        return torch.stack([layer.relative_sigma() for layer in layers if isinstance(layer, NoisyLinear)]).mean()

    def _outputs(self, hidden: torch.Tensor, noise: Noise) -> torch.Tensor:
        if self.value is None:
            return _apply(self.advantage, hidden, noise).view(-1, self._actions, self._atoms)
        of_state, of_actions = hidden.chunk(2, dim=1)
        advantage = _apply(self.advantage, of_actions, noise).view(-1, self._actions, self._atoms)
        value = _apply(self.value, of_state, noise).unsqueeze(1)
        return value + advantage - advantage.mean(dim=1, keepdim=True)


def _layer(inputs: int, outputs: int, noisy_sigma: float | None) -> nn.Linear | NoisyLinear:
    return nn.Linear(inputs, outputs) if noisy_sigma is None else NoisyLinear(inputs, outputs, noisy_sigma)


def _apply(layer: nn.Linear | NoisyLinear, inputs: torch.Tensor, noise: Noise) -> torch.Tensor:
    outputs: torch.Tensor = layer(inputs, noise) if isinstance(layer, NoisyLinear) else layer(inputs)
    return outputs


def make_network(
    config: RainbowConfig, observation: ObservationSpec, action: ActionSpec, source_dir: str | None
) -> nn.Module:
    """See remuda.policy.algorithms.dqn.learning."""
    actions = number_of_actions(config, action)
    if config.network is not None:
        return CustomValues(config, observation, action, source_dir, shape=(actions, config.atoms), output="features")
    hidden = hidden_layers(config, observation, default=HIDDEN)
    trunk, features = reads(config, observation, source_dir)
    return RainbowNetwork(
        features,
        actions,
        config.atoms,
        hidden,
        dueling=config.dueling,
        noisy_sigma=config.noisy_sigma if config.noisy else None,
        trunk=trunk,
    )


class Rainbow(QLearner[nn.Module]):
    """Learns the distribution of returns of each action, bootstrapping from a target network.

    C51 (Bellemare et al. 2017) or quantile regression (Dabney et al. 2018); double (van Hasselt et al. 2016), dueling
    (Wang et al. 2016) and noisy networks (Fortunato et al. 2018) as configured. n-step returns come with the rows, and
    prioritized replay (Schaul et al. 2016) with the weights; a row's priority is its loss.
    """

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        assert isinstance(config.policy, RainbowConfig), config.policy.type
        self._policy = config.policy
        make = partial(make_network, config.policy, observation, action, config.source_dir)
        generator = torch.Generator(config.learner.device).manual_seed(seed)
        super().__init__(config, observation, action, seed, make, generator=generator)
        self._distribution = return_distribution(config.policy, self._device)
        self._noise: Noise = self._draw if config.policy.noisy else None

    def portable(self) -> PortableRainbow:
        epsilon = self._policy.epsilon_end if self._policy.takes_random_actions else 0.0
        distribution = return_distribution(self._policy, torch.device("cpu"))  # where the network is copied to
        return PortableRainbow(self._online, self.observation, self.action, epsilon, distribution)

    def learn(self, batch: Arrays) -> LearnResult:
        """Take one optimizer step on `loss`."""
        rows = Transitions.of(batch, self.observation, self.action, self._device, as_vector=False)
        return self._learned(self.loss(rows), len(rows))

    # --- the update rule

    def loss(self, rows: Transitions) -> Loss:
        """The weighted mean of the losses of the distributions."""
        target = self._distribution.target(*self._bootstrap(rows), rows.discount)
        outputs = of_actions(self._online(rows.obs, self._noise), rows.action)
        losses = self._distribution.losses(outputs, target)
        q_value = self._distribution.expectation(outputs.detach())
        target_q_value = self._distribution.target_expectation(target)
        metrics: dict[str, float | torch.Tensor] = {
            "q_value": q_value,
            "target_q_value": target_q_value,
            "td_error": (q_value - target_q_value).abs(),
        }
        if isinstance(self._online, RainbowNetwork) and self._policy.noisy:
            metrics[NOISE_SIGMA] = self._online.relative_sigma()
        return Loss(torch.dot(rows.weights, losses) / len(rows), metrics, losses.detach().clamp(min=0.0))

    @torch.no_grad()
    def _bootstrap(self, rows: Transitions) -> tuple[torch.Tensor, torch.Tensor]:
        """The target network's outputs for the best legal action in the next observations [n, atoms], and the rewards
        [n]. Munchausen: the mixture of all legal actions, and rewards with the bonus and the entropy."""
        outputs = self._target(rows.next_obs, self._noise)
        if self._policy.munchausen_share is not None:
            temperature, values = self._policy.munchausen_temperature, self._distribution.expectation(outputs)
            values = masked(values, rows.next_legal)
            probability = (values / temperature).softmax(dim=1)
            mean = torch.where(probability > 0, probability * values, 0.0).sum(dim=1)  # -inf where illegal
            entropy = soft_value(values, temperature) - mean
            now = self._distribution.expectation(self._target(rows.obs, self._noise))
            reward = rows.reward + munchausen_bonus(self._policy, now, rows) + rows.discount * entropy
            return self._distribution.mixture(outputs, probability), reward
        chooses = self._online(rows.next_obs, self._noise) if self._policy.double else outputs
        values = masked(self._distribution.expectation(chooses), rows.next_legal)
        return of_actions(outputs, values.argmax(dim=1)), rows.reward

    # --- parts

    def _draw(self, like: torch.Tensor) -> torch.Tensor:
        return torch.randn(like.shape, generator=self._generator, device=like.device)


class PortableRainbow(Portable):
    """Takes the action of the highest expected return, in `sample` with noise in the weights."""

    def __init__(
        self,
        network: nn.Module,
        observation: ObservationSpec,
        action: ActionSpec,
        epsilon: float,
        distribution: ReturnDistribution,
    ) -> None:
        super().__init__(network, observation, action, "q_values", exploration=epsilon)
        self._distribution = distribution

    def outputs(self, seen: torch.Tensor) -> torch.Tensor:
        """Expected return of each action."""
        return self._distribution.expectation(self.network(seen))

    def exploring(self, seen: torch.Tensor) -> torch.Tensor:
        """Expected returns with noise in the weights of noisy layers, as in collectors."""
        return self._distribution.expectation(self.network(seen, torch.randn_like))


def of_actions(outputs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Select the outputs of one action per row: [n, actions, atoms], indices [n] -> [n, atoms]."""
    return outputs.gather(1, action.view(-1, 1, 1).expand(-1, 1, outputs.shape[2])).squeeze(1)
