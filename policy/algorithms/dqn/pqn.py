"""PQN, the learning side (Gallici et al. 2025): the update rule on one page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from remuda.config.algorithms.q_learning import PqnConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.dqn.learning import in_own_rewards, make_network, reward_scale
from remuda.policy.base import Arrays, LearnResult, Loss
from remuda.policy.network_learner import VectorLearner, shuffled
from remuda.policy.networks.layouts import begins_of
from remuda.policy.networks.portable import Portable
from remuda.policy.networks.recurrent_networks import RecurrentNetwork, Unrolled
from remuda.policy.networks.tensors import masked, to_tensor, weights_from
from remuda.policy.returns import Floats, Outcome, generalized_advantages
from remuda.policy.spaces import ActionSpec, ObservationSpec


class Steps(NamedTuple):
    """Valid slots of a batch or of a minibatch, [n, …]."""

    obs: torch.Tensor | Unrolled
    """Encoded; whole segments for a recurrent network, whose requested observations are the steps."""
    action: torch.Tensor
    """Indices int64 [n]."""
    target: torch.Tensor
    """float32 [n]: targets of the action values."""


class Pqn(VectorLearner[nn.Module]):
    """Several epochs of minibatches on each batch of segments, towards λ-returns of the network itself."""

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        assert isinstance(config.policy, PqnConfig), config.policy.type
        self._policy, self._seed = config.policy, seed
        with weights_from(seed):
            online = make_network(config.policy, observation, action, config.source_dir).to(config.learner.device)
        super().__init__(config, observation, action, online=online)
        self._rewards = reward_scale(online)

    def portable(self) -> Portable:
        epsilon, rewards = self._policy.epsilon_end, self._rewards
        return Portable(self._online, self.observation, self.action, "q_values", exploration=epsilon, rewards=rewards)

    def learn(self, batch: Arrays) -> LearnResult:
        """Compute the λ-returns, then do `epochs` passes over `minibatches` shares of the batch."""
        self._updates += 1
        valid: NDArray[np.bool_] = batch["valid"]
        if self._rewards is not None:
            scaled = self._rewards.of_segments(self.ranks, batch, discount=self._policy.discount)
            batch = {**batch, "reward": scaled}
        minibatches = self._minibatches(self._steps(batch), valid)
        gradient_steps = [self._step(steps) for steps in minibatches]
        metrics: dict[str, float | torch.Tensor] = {"cur_lr": self._learner.learning_rate}
        if gradient_steps:
            metrics |= {name: torch.cat([step[name] for step in gradient_steps]) for name in gradient_steps[0]}
        return LearnResult(metrics, None, len(gradient_steps))

    # --- the update rule

    def loss(self, steps: Steps) -> Loss:
        """Half the mean squared error of the values of the actions (equation 11 of the paper)."""
        q_value = self._values(steps.obs).gather(1, steps.action.unsqueeze(1)).squeeze(1)
        values = q_value.detach()
        metrics = {"q_value": values, "target_q_value": steps.target, "td_error": (values - steps.target).abs()}
        return Loss(0.5 * functional.mse_loss(q_value, steps.target), metrics)

    def returns(self, outcome: Outcome, best: Floats) -> Floats:
        """The λ-returns float32 [B, T] (algorithm 1 of the paper; Peng and Williams 1994), given the values of the best
        legal actions in all observations, float32 [B, T + 1]: a generalised advantage is how far such a return is from
        the value."""
        config = self._policy
        advantages = generalized_advantages(outcome, best, discount=config.discount, gae_lambda=config.q_lambda)
        returns: Floats = advantages + best[:, :-1]
        return returns

    def _steps(self, batch: Arrays) -> Steps:
        """Return the valid slots, with targets by the newest network."""
        outcome, legal = Outcome.of(batch), batch.get("legal")
        segments, slots = outcome.valid.shape
        seen = batch["obs"].reshape(segments * (slots + 1), *self.observation.shape)
        encoded = to_tensor(self.observation.encode(seen), self._device)
        whole = encoded if self._policy.recurrent is None else self._in_order(encoded, batch)
        with torch.no_grad():
            values = self._values(whole)
            allowed = None if legal is None else to_tensor(legal.reshape(len(seen), -1), self._device)
            best = masked(values, allowed).amax(dim=1).cpu().numpy().reshape(segments, slots + 1)
        segment, slot = np.nonzero(outcome.valid)
        columns = (
            segment * (slots + 1) + slot,
            self.action.indices(batch["action"][outcome.valid]),
            self.returns(outcome, best)[outcome.valid],
        )
        index, action, target = (to_tensor(column, self._device) for column in columns)
        return Steps(whole if isinstance(whole, Unrolled) else encoded.index_select(0, index), action, target)

    def _in_order(self, encoded: torch.Tensor, batch: Arrays) -> Unrolled:
        """Arrange observations [B * (T + 1), …] as segments."""
        begins = to_tensor(begins_of(batch["valid"]), self._device)
        segments = encoded.reshape(*begins.shape, *encoded.shape[1:])
        return Unrolled(segments, to_tensor(batch["state"], self._device), begins)

    def _values(self, seen: torch.Tensor | Unrolled) -> torch.Tensor:
        """Values of all actions [n, actions]."""
        network = self._online
        if isinstance(seen, Unrolled):
            assert isinstance(network, RecurrentNetwork)
            network, seen = network.head, network.remembered(seen)
        values: torch.Tensor = network(seen)
        return values

    # --- parts of an update

    def _minibatches(self, steps: Steps, valid: NDArray[np.bool_]) -> Iterator[Steps]:
        """Yield every step once per epoch, in shuffled minibatches, reduced to the steps of this rank; for a recurrent
        network in shares of whole segments. `valid` [B, T] marks the slots of `steps`."""
        rng = np.random.default_rng((self._seed, self._updates))  # of the batch, so a resumed run goes on the same
        own = len(steps.action)
        first, whole = self._span(own)
        shares = min(self._policy.minibatches, whole)
        for _ in range(self._policy.epochs if whole else 0):
            seen = steps.obs
            if isinstance(seen, Unrolled):
                for share, chosen in seen.shares(valid, self._policy.minibatches, rng):
                    yield Steps(share, steps.action.index_select(0, chosen), steps.target.index_select(0, chosen))
                continue
            order, sizes = shuffled(rng, whole=whole, first=first, own=own, shares=shares)
            drawn = to_tensor(order, self._device)
            columns = (seen, steps.action, steps.target)
            yield from map(Steps, *(torch.split(column.index_select(0, drawn), sizes) for column in columns))

    def _step(self, steps: Steps) -> dict[str, torch.Tensor]:
        """Take one optimizer step on `loss`; returns the metrics as vectors."""
        loss = self.loss(steps)
        total = loss.total.detach()
        norm = self._descend(loss.total, len(steps.action), total)
        metrics = in_own_rewards(loss.metrics, self._rewards)
        values = {name: torch.as_tensor(value) for name, value in metrics.items()}
        return {"total_loss": total.reshape(1), **values, "grad_norm": norm.reshape(1)}
