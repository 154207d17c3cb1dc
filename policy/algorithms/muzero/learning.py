"""MuZero, the learning side (Schrittwieser et al. 2020): the update rule on one page."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.muzero.acting import ILLEGAL, SearchModel, make_network, search_settings
from remuda.policy.algorithms.muzero.networks import CONSISTENCY, Consistency, MuZeroNetwork, Support
from remuda.policy.algorithms.muzero.search.search import search
from remuda.policy.algorithms.muzero.search.tree import new_tree
from remuda.policy.algorithms.muzero.targets import SEARCH_POLICY, Floats, Positions, Returns
from remuda.policy.base import Arrays, LearnResult, Loss, ReanalyzingAlgorithm
from remuda.policy.network_learner import TargetLearner
from remuda.policy.networks.flat_parameters import FlatParameters
from remuda.policy.networks.optimizers import Optimizer, make_optimizer
from remuda.policy.networks.portable import Portable
from remuda.policy.networks.rescaling import scaled
from remuda.policy.networks.tensors import to_tensor, weights_from
from remuda.policy.spaces import ActionSpec, ObservationSpec

ROUNDED = 64
"""Consistency in bfloat16 is computed for a multiple of so many positions, some twice: torch's processor library keeps
a kernel for each size of such products, and compiling thousands of them would take seconds and gigabytes. Positions
that are computed twice count twice in the moments of the batch, and once in the loss."""


@dataclass(frozen=True)
class TrainingBatch:
    """A batch of B rows, ready to learn from: tensors over its P positions, those of position 0 first, as Positions
    lays them out."""

    counts: tuple[int, ...]
    """Rows that have position 0, 1 … K."""
    observation: torch.Tensor
    """Encoded, of position 0: [B, …]."""
    action: torch.Tensor
    """int64 [P]: what leads to the next position."""
    policy: torch.Tensor
    """float32 [P, actions]: what the search preferred; 0 where it was not asked."""
    value: torch.Tensor
    """float32 [P]: n-step returns."""
    reward: torch.Tensor
    """float32 [P - B]: what the step to each position after 0 brought."""
    acted: torch.Tensor
    """float32 [P]: 1 where there is a policy to learn, else 0."""
    valued: torch.Tensor
    """float32 [P]: 1 where there is a value to learn, else 0."""
    weights: torch.Tensor
    """float32 [P]: importance weights."""
    compared: torch.Tensor
    """int64 [C]: which of the positions after 0 have an observation."""
    seen: torch.Tensor
    """Encoded, of these: [C, …]."""


Part = tuple[float, torch.Tensor, torch.Tensor, torch.Tensor]
"""A part of the loss: its coefficient, and for each position the part [n], its share in the sum, and its weight."""


def summed(parts: Mapping[str, Part]) -> tuple[torch.Tensor, dict[str, float | torch.Tensor]]:
    """The total, by importance weights; and without these and without graphs each part's sum and their total, with the
    first once more, by the names of metrics."""
    weighted = [coefficient * (part @ (shares * weights)) for coefficient, part, shares, weights in parts.values()]
    sums = {name: part.detach() @ shares for name, (_, part, shares, _) in parts.items()}
    plain = torch.stack([parts[name][0] * each for name, each in sums.items()]).sum()
    total = torch.stack(weighted).sum()
    return total, {"weighted_total_loss": total.detach(), "total_loss": plain, **sums}


def consistency(heads: Consistency, imagined: torch.Tensor, seen: torch.Tensor, *, halved: bool) -> torch.Tensor:
    """Cosines [C] of what was imagined and seen, [C, latent] each. In bfloat16, if `halved`."""
    if not halved:
        cosine: torch.Tensor = heads(imagined, seen)
        return cosine
    compared = len(imagined)
    filled = torch.arange(-(-compared // ROUNDED) * ROUNDED, device=imagined.device) % compared
    with torch.autocast(imagined.device.type, torch.bfloat16):
        of_all: torch.Tensor = heads(imagined[filled], seen[filled])
    return of_all[:compared]


def unrolled(network: MuZeroNetwork, batch_tensors: TrainingBatch, hidden_gradient: float) -> list[torch.Tensor]:
    """Latent states of position 0, 1 … K, [rows that have it, latent] each, all imagined but the first. Their gradients
    are multiplied with `hidden_gradient` where they go into the dynamics."""
    latent = [network.represent(batch_tensors.observation)]
    start = 0
    for rows, following in zip(batch_tensors.counts[:-1], batch_tensors.counts[1:], strict=True):
        if not following:
            break
        before = latent[-1][:following]
        slowed = before * hidden_gradient + before.detach() * (1.0 - hidden_gradient)  # the same numbers
        latent.append(network.imagine(slowed, batch_tensors.action[start : start + following]))
        start += rows
    return latent


ANALYSIS = ("analysis/dormant_ratio_encoder", "analysis/dormant_ratio_dynamics", "analysis/latent_state_l2_norms")
"""Metrics that come once per `log.interval_train_iters` updates."""
DORMANT = 0.025
"""Units that are active less than this share of their layer's mean count as dormant."""


@torch.no_grad()
def analysis(network: MuZeroNetwork, observation: torch.Tensor, action: torch.Tensor) -> dict[str, torch.Tensor]:
    """ANALYSIS of a network as it acts, by encoded observations [n, …] and actions int64 [n]: scalars.

    The shares of the representation's and the dynamics' units that are dormant (Sokar et al. 2023, "The dormant neuron
    phenomenon"), and the mean length of a latent state. The network learns nothing from it, and its running moments do
    not change.
    """
    trained = network.training
    network.eval()
    try:
        with _activations(network.representation) as of_representation:
            latent = network.represent(observation)
        with _activations(network.dynamics) as of_dynamics:
            network.imagine(latent, action)
    finally:
        network.train(trained)
    values = dormant_ratio(of_representation), dormant_ratio(of_dynamics), latent.flatten(1).norm(dim=1).mean()
    return dict(zip(ANALYSIS, values, strict=True))


def dormant_ratio(layers: Sequence[torch.Tensor]) -> torch.Tensor:
    """Share of dormant units among all of these layers' activations, [n, units, …] each: those whose mean size is at
    most DORMANT of the mean size in their layer. The units of a convolution are its channels. A layer that is never
    active is dormant as a whole."""
    dormant, units = [], 0
    for activations in layers:
        sizes = activations.abs().transpose(0, 1).flatten(1).mean(1)
        dormant.append((sizes <= DORMANT * sizes.mean()).sum())
        units += len(sizes)
    return torch.stack(dormant).sum() / units


@contextmanager
def _activations(part: nn.Module) -> Generator[list[torch.Tensor]]:
    """What comes out of every relu of a part while it runs."""
    found: list[torch.Tensor] = []

    def keep(module: nn.Module, inputs: object, outputs: torch.Tensor) -> None:
        found.append(outputs)

    handles = [module.register_forward_hook(keep) for module in part.modules() if isinstance(module, nn.ReLU)]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


class MuZero(TargetLearner[MuZeroNetwork, Optimizer], ReanalyzingAlgorithm):
    """Learns a model whose rewards, values and policies are those that were seen, bootstrapped and searched.

    The self-supervised consistency of EfficientZero (Ye et al. 2021), and as much of Reanalyse (Schrittwieser et al.
    2021) as configured: values come from the target network always, policies from new searches with it for a share of
    each batch, unless workers search again (see `leave_reanalysis`). Prioritized replay comes with the weights. A
    subclass changes the update rule by overriding `loss`.
    """

    hidden_gradient = 0.5
    """What a latent state's gradient is multiplied with where it goes into the dynamics (MuZero, appendix G)."""

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        assert isinstance(config.policy, MuZeroConfig), config.policy.type
        self._policy, self._learner = config.policy, config.learner
        self._device = torch.device(config.learner.device)
        self._support = Support(config.policy.support_size)
        self._search = search_settings(config.policy)
        self._reanalyze_ratio = config.policy.reanalyze_ratio
        online, target = (_network(config, observation, action, seed, trains=trains) for trains in (True, False))
        self._parameters = FlatParameters(online)
        optimizer = make_optimizer(config, self._parameters.part(""))
        generator = torch.Generator().manual_seed(seed)
        super().__init__(observation, action, online=online, target=target, optimizer=optimizer, generator=generator)
        self._analysis_iters = config.log.interval_train_iters
        self._loaded()

    def portable(self) -> PortableMuZero:
        """See Algorithm. It acts without a search."""
        return PortableMuZero(self._online, self.observation, self.action, self._support)

    def learn(self, batch: Arrays) -> LearnResult:
        """Take one step of the optimizer down `loss`."""
        positions = Positions.of(batch["steps"], batch["terminated"], unroll_steps=self._policy.unroll_steps)
        rows = positions.counts[0]
        with torch.no_grad():
            value = self._returns(batch, positions)
            policy, reanalyzed_s = self._policies(batch, positions)
            batch_tensors = self._training_batch(batch, positions, value, policy)
        loss = self.loss(batch_tensors)
        self._parameters.gradient.zero_()
        torch.autograd.backward(loss.total)
        with torch.no_grad():
            grad_norm = self._parameters.clip_gradient(self._learner.max_grad_norm)
            self._optimizer.step()
            self._updates += 1
            if self._updates % self._policy.target_update_iters == 0:
                self._copy_to_target()
                self._loaded()
        assert loss.priorities is not None
        priorities = torch.empty_like(loss.priorities)
        priorities[to_tensor(positions.row[:rows], self._device)] = loss.priorities
        metrics = {"cur_lr": self._learner.learning_rate, **loss.metrics, "grad_norm": grad_norm}
        metrics["value_priority"] = priorities
        if self._updates % self._analysis_iters == 0:
            metrics |= analysis(self._online, batch_tensors.observation, batch_tensors.action[:rows])
        metrics["reanalyze_time_ms"] = 1e3 * reanalyzed_s
        return LearnResult(metrics, priorities)

    # --- the update rule

    def loss(self, batch_tensors: TrainingBatch) -> Loss:
        """Unroll the model, and compare it with the targets there are (MuZero, equation 1 and appendix G): sums over
        the positions of a row, and weighted means over rows. The priorities are those of the lesson's rows."""
        network, support, settings = self._online, self._support, self._policy
        rows, unrolled_steps = batch_tensors.counts[0], len(batch_tensors.counts) - 1
        latent = torch.cat(unrolled(network, batch_tensors, self.hidden_gradient))
        share = torch.full_like(batch_tensors.value, 1.0 / (rows * unrolled_steps))
        share[:rows] = 1.0 / rows  # appendix G: position 0 counts as much as all others together

        prediction = network.predict(latent)
        log_policy = prediction.policy.log_softmax(1)
        policy = -(batch_tensors.policy * log_policy).sum(1) * batch_tensors.acted
        entropy = -(log_policy.exp() * log_policy).sum(1) * batch_tensors.acted
        value = support.cross_entropy(prediction.value, batch_tensors.value) * batch_tensors.valued
        rewards = network.rewards(latent[rows:])
        reward = support.cross_entropy(rewards, batch_tensors.reward)
        parts = {
            "policy_loss": (settings.policy_coefficient, policy, share, batch_tensors.weights),
            "policy_entropy": (-settings.entropy_coefficient, entropy, share, batch_tensors.weights),
            "value_loss": (settings.value_coefficient, value, share, batch_tensors.weights),
            "reward_loss": (settings.reward_coefficient, reward, share[rows:], batch_tensors.weights[rows:]),
        }
        if network.consistency is not None and len(batch_tensors.compared):
            cosine = self._cosine(network.consistency, latent[rows:][batch_tensors.compared], batch_tensors.seen)
            of_compared = share[rows:][batch_tensors.compared], batch_tensors.weights[rows:][batch_tensors.compared]
            parts["consistency_loss"] = (settings.consistency_coefficient, -cosine, *of_compared)

        values = support.expectation(prediction.value[:rows].detach())
        total, sums = summed(parts)
        metrics = {"consistency_loss": batch_tensors.value.new_zeros(()), **sums}
        metrics["policy_entropy"] = entropy.detach().sum() / batch_tensors.acted.sum()
        metrics |= self._compared(batch_tensors, values, rewards.detach())
        return Loss(total, metrics, (values - batch_tensors.value[:rows]).abs())

    def _cosine(self, heads: Consistency, imagined: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """Cosines [C] of imagined latent states [C, latent] and those of observations [C, …] that were seen. These are
        targets: no gradient goes to them."""
        with torch.no_grad():
            target = self._online.represent(seen)
        return consistency(heads, imagined, target, halved=self._policy.precision == "bfloat16")

    def _compared(
        self, batch_tensors: TrainingBatch, values: torch.Tensor, rewards: torch.Tensor
    ) -> dict[str, float | torch.Tensor]:
        """What the logs show of targets and predictions, by LightZero's names. Values and rewards (logits) are those of
        position 0, and of the step that follows it."""
        rows, following = batch_tensors.counts[:2]
        value, reward = batch_tensors.value[:rows], batch_tensors.reward[:following]
        return {
            "target_policy_entropy": torch.special.entr(batch_tensors.policy).sum(1)
            @ batch_tensors.acted
            / batch_tensors.acted.sum(),
            "target_reward": reward.mean(),
            "target_value": value,
            "predicted_rewards": self._support.expectation(rewards[:following]).mean(),
            "predicted_values": values,
            "transformed_target_reward": scaled(reward).mean(),
            "transformed_target_value": scaled(value).mean(),
        }

    # --- what is learned

    def _returns(self, batch: Arrays, positions: Positions) -> Floats:
        """n-step returns [P], bootstrapped from the target network (as Reanalyse does for all rows)."""
        returns = Returns.of(
            positions,
            batch["reward"],
            batch["steps"],
            batch["terminated"],
            n_step=self._policy.n_step,
            discount=self._search.sign * self._search.discount,
        )
        seen = batch["obs"][positions.row[returns.bootstrapped], returns.observation]
        return returns.with_values(self._frozen.value(self._encoded(seen)).cpu().numpy())

    def _policies(self, batch: Arrays, positions: Positions) -> tuple[Floats, float]:
        """What the searches of the collectors preferred, [P, actions], for a share of the rows what a search prefers
        now, among the actions that were legal; and how long these searches took, in seconds."""
        recorded = positions.of_columns(batch[SEARCH_POLICY])
        policy: Floats = np.maximum(recorded, 0.0) * positions.acted[:, None]  # ILLEGAL is no share
        count = round(self._reanalyze_ratio * positions.counts[0])
        if not count:
            return policy, 0.0
        started_s = time.perf_counter()
        drawn = torch.randperm(positions.counts[0], generator=self._generator)[:count].numpy()
        again = np.flatnonzero(np.isin(positions.row, drawn) & positions.acted)
        seen = self.observation.encode(batch["obs"][positions.row[again], positions.position[again]])
        tree = new_tree(len(again), policy.shape[1], self._search)
        legal = recorded[again] != ILLEGAL
        model = SearchModel(self._frozen, self._device)
        policy[again] = search(model, seen, self._search, tree=tree, legal=legal).policy
        return policy, time.perf_counter() - started_s

    def _training_batch(self, batch: Arrays, positions: Positions, value: Floats, policy: Floats) -> TrainingBatch:
        """Move what is to be learned to the device."""
        first = positions.counts[0]
        chance = torch.randint(policy.shape[1], batch["action"].shape, generator=self._generator).numpy()
        action = positions.actions(batch["action"].astype(np.int64) - self.action.start, chance)
        compared = np.flatnonzero(positions.seen[first:]) if self._policy.consistency_coefficient else np.empty(0, int)
        seen = first + compared
        return TrainingBatch(
            counts=positions.counts,
            observation=self._encoded(batch["obs"][positions.row[:first], 0]),
            action=to_tensor(action, self._device),
            policy=to_tensor(policy, self._device),
            value=to_tensor(value, self._device),
            reward=to_tensor(positions.rewards(batch["reward"]), self._device),
            acted=to_tensor(positions.acted.astype(np.float32), self._device),
            valued=to_tensor(positions.valued.astype(np.float32), self._device),
            weights=to_tensor(batch["weights"][positions.row], self._device),
            compared=to_tensor(compared, self._device),
            seen=self._encoded(batch["obs"][positions.row[seen], positions.position[seen]]),
        )

    # --- what acts

    def acting_state(self) -> dict[str, np.ndarray]:
        """Copy what acts to the host: the network with its running moments, but without the heads of consistency."""
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in self._acting_part().items()}

    # --- reanalysis by workers

    def leave_reanalysis(self) -> None:
        """See ReanalyzingAlgorithm. Values still come from the target network here: they take one evaluation of it."""
        self._reanalyze_ratio = 0.0

    @property
    def target_iter(self) -> int:
        return self._updates - self._updates % self._policy.target_update_iters

    def target_state(self) -> dict[str, np.ndarray]:
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in self._target.state_dict().items()}

    # --- parts

    def _acting_part(self) -> dict[str, torch.Tensor]:
        return {name: tensor for name, tensor in self._online.state_dict().items() if not name.startswith(CONSISTENCY)}

    def _copy_to_target(self) -> None:
        self._target.load_state_dict(self._acting_part())

    def _loaded(self) -> None:
        """See TargetLearner: searches use a frozen copy of the target network."""
        self._frozen = self._target.frozen(self._support)

    def _encoded(self, observations: np.ndarray) -> torch.Tensor:
        return to_tensor(self.observation.encode(observations), self._device)


class PortableMuZero(Portable):
    """Takes the action that the network expects a search to visit most, or draws from its policy. Has the parts of the
    network that it needs: what searches imagine, and what trains it, stay out."""

    def __init__(
        self, network: MuZeroNetwork, observation: ObservationSpec, action: ActionSpec, support: Support
    ) -> None:
        super().__init__(nn.Sequential(network.representation, network.common), observation, action, "logits")
        self.policy, self.value_head, self._support = network.policy, network.value, support

    def outputs(self, seen: torch.Tensor) -> torch.Tensor:
        """Logits of the policy."""
        logits: torch.Tensor = self.policy(self.network(seen))
        return logits

    def values(self, seen: torch.Tensor) -> torch.Tensor:
        """In the environment's own rewards."""
        return self._support.expectation(self.value_head(self.network(seen)))


def _network(
    config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int, *, trains: bool
) -> MuZeroNetwork:
    """With what only training needs, if it trains; its first weights are the same with and without."""
    assert isinstance(config.policy, MuZeroConfig), config.policy.type
    with weights_from(seed):
        network = make_network(config.policy, observation, action, config.source_dir, trains=trains)
    return network.to(config.learner.device)
