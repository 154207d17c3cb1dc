"""Bootstrapped DQN, the learning side (Osband et al. 2016 and 2018): the ensemble and the update rule on one page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import nn

from remuda.config.algorithms.bootstrapped_dqn import BootstrappedDqnConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.bootstrapped_dqn.entry import HIDDEN
from remuda.policy.algorithms.dqn.entry import hidden_layers, number_of_actions
from remuda.policy.algorithms.dqn.learning import QLearner, huber
from remuda.policy.base import Arrays, LearnResult, Loss
from remuda.policy.network_learner import Transitions
from remuda.policy.networks.custom import reads
from remuda.policy.networks.portable import Portable
from remuda.policy.networks.stacked import StackedLayer, StackedPerceptron, stacked_layers
from remuda.policy.networks.tensors import masked
from remuda.policy.spaces import ActionSpec, ObservationSpec


class EnsembleNetwork(nn.Module):
    """Action values of each member, and of each member's prior: float32 [n, …] -> float32 [n, members, actions]."""

    def __init__(self, learned: nn.Sequential, prior: nn.Sequential, prior_scale: float) -> None:
        """`learned` and `prior` map observations [n, …] to values [members, n, actions]. The parameters of `prior`
        become buffers: saved and copied with the network, and never trained."""
        super().__init__()
        self.learned, self.prior, self._prior_scale = learned, prior, prior_scale
        for part in prior.modules():
            for name, parameter in list(part.named_parameters(recurse=False)):
                delattr(part, name)
                part.register_buffer(name, parameter.detach())

    def forward(self, observations: torch.Tensor, priors: torch.Tensor | None = None) -> torch.Tensor:
        """Value the actions of each observation by every member. `priors`: already computed by `scaled_priors`."""
        values: torch.Tensor = self.learned(observations)
        return (values + (self.scaled_priors(observations) if priors is None else priors)).transpose(0, 1)

    @torch.no_grad()
    def scaled_priors(self, observations: torch.Tensor) -> torch.Tensor:
        """Compute the values of the priors times their scale: [members, n, actions]."""
        if not self._prior_scale:
            return torch.zeros((), device=observations.device)
        priors: torch.Tensor = self.prior(observations)
        return self._prior_scale * priors

    def acting(self) -> dict[str, nn.Module]:
        """See remuda.policy.networks.reading: `values` of all members, those of the first member first."""
        return {"values": nn.Sequential(self, nn.Flatten())}


def make_network(
    config: BootstrappedDqnConfig, observation: ObservationSpec, action: ActionSpec, source_dir: str | None
) -> EnsembleNetwork:
    """See remuda.policy.algorithms.dqn.learning."""
    hidden = hidden_layers(config, observation, default=HIDDEN)

    def members(stack: Callable[[int, Sequence[int]], nn.Sequential]) -> nn.Sequential:
        trunk, features = reads(config, observation, source_dir)
        layers = stack(config.members, (features, *hidden, number_of_actions(config, action)))
        for layer in layers:
            if isinstance(layer, StackedLayer):
                nn.init.zeros_(layer.bias)  # a bias larger than the observations would let a member prefer one action
        return nn.Sequential(*([] if trunk is None else [trunk]), layers)

    return EnsembleNetwork(members(StackedPerceptron), members(stacked_layers), config.prior_scale)


class BootstrappedDqn(QLearner[EnsembleNetwork]):
    """Learns the action values of each member by bootstrapping from that member's own target network, all from the same
    rows. n-step returns come with the rows, and prioritized replay (Schaul et al. 2016) with the weights."""

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        assert isinstance(config.policy, BootstrappedDqnConfig), config.policy.type
        self._policy = config.policy
        make = partial(make_network, config.policy, observation, action, config.source_dir)
        super().__init__(config, observation, action, seed, make)

    def portable(self) -> Portable:
        return PortableEnsemble(
            self._online, self.observation, self.action, "q_values", exploration=self._policy.epsilon_end
        )

    def learn(self, batch: Arrays) -> LearnResult:
        """Take one optimizer step on `loss`."""
        rows = Transitions.of(batch, self.observation, self.action, self._device, as_vector=False)
        return self._learned(self.loss(rows), len(rows))

    # --- the update rule

    def loss(self, rows: Transitions) -> Loss:
        """Compute the Huber loss, a mean over all members and a weighted mean over all rows."""
        with torch.no_grad():
            target = rows.reward.unsqueeze(1) + rows.discount.unsqueeze(1) * self.next_value(rows)
        taken = rows.action.view(-1, 1, 1).expand(-1, self._policy.members, 1)
        q_value = self._online(rows.obs).gather(2, taken).squeeze(2)
        loss = torch.dot(rows.weights, huber(q_value, target).mean(1)) / len(rows)
        values, td_error = q_value.detach().mean(1), (q_value.detach() - target).abs().mean(1)
        return Loss(loss, {"q_value": values, "target_q_value": target.mean(1), "td_error": td_error}, td_error)

    def next_value(self, rows: Transitions) -> torch.Tensor:
        """Value the best legal action in the next observations, by each member: [n, members]."""
        legal = None if rows.next_legal is None else rows.next_legal.unsqueeze(1)
        priors = self._online.scaled_priors(rows.next_obs)  # which the target network has as well
        values: torch.Tensor = self._target(rows.next_obs, priors)
        if not self._policy.double:
            return masked(values, legal).amax(2)
        best = masked(self._online(rows.next_obs, priors), legal).argmax(2, keepdim=True)
        return values.gather(2, best).squeeze(2)


class PortableEnsemble(Portable):
    """Takes the action of the highest mean value of all members."""

    def outputs(self, seen: torch.Tensor) -> torch.Tensor:
        """Mean value of each action."""
        values: torch.Tensor = self.network(seen)
        return values.mean(1)
