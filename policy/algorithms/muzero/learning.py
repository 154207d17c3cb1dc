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
from remuda.policy.algorithms.muzero.search.search import new_tree, search
from remuda.policy.algorithms.muzero.targets import SEARCH_POLICY, Floats, Positions, Returns
from remuda.policy.base import Arrays, LearnResult, Loss, ReanalyzingAlgorithm
from remuda.policy.network_learner import VectorLearner
from remuda.policy.networks.portable import Portable
from remuda.policy.networks.tensors import scaled, to_tensor, weights_from
from remuda.policy.spaces import ActionSpec, ObservationSpec

ROUNDED = 64
"""Positions in bfloat16 consistency are padded to a multiple of this, by repetition: torch's processor library keeps a
kernel per size of such products, and compiling thousands of kernels takes seconds and gigabytes. Repeated positions
count twice in the moments of the batch, and once in the loss."""


@dataclass(frozen=True)
class TrainingBatch:
    """A batch of B rows as tensors over its P positions, in the order of Positions: those of position 0 first."""

    counts: tuple[int, ...]
    """Number of rows with position 0, 1 … K."""
    observation: torch.Tensor
    """Encoded, of position 0: [B, …]."""
    action: torch.Tensor
    """int64 [P]: action from this position to the next."""
    policy: torch.Tensor
    """float32 [P, actions]: the search's policy; 0 without a search."""
    value: torch.Tensor
    """float32 [P]: n-step returns."""
    reward: torch.Tensor
    """float32 [P - B]: reward of the step to each position after 0."""
    acted: torch.Tensor
    """float32 [P]: 1 at positions with a policy target, else 0."""
    valued: torch.Tensor
    """float32 [P]: 1 at positions with a value target, else 0."""
    weights: torch.Tensor
    """float32 [P]: importance weights."""
    compared: torch.Tensor
    """int64 [C]: indices of the positions after 0 with an observation."""
    seen: torch.Tensor
    """Encoded, of these: [C, …]."""


Part = tuple[float, torch.Tensor, torch.Tensor, torch.Tensor]
"""A part of the loss: coefficient, the part per position [n], shares in the sum, and importance weights."""


def summed(parts: Mapping[str, Part]) -> tuple[torch.Tensor, dict[str, float | torch.Tensor]]:
    """Sum the parts. Returns the weighted total, and metrics without weights and graphs: each part's sum, their total,
    and the weighted total."""
    weighted = [coefficient * (part @ (shares * weights)) for coefficient, part, shares, weights in parts.values()]
    sums = {name: part.detach() @ shares for name, (_, part, shares, _) in parts.items()}
    plain = torch.stack([parts[name][0] * each for name, each in sums.items()]).sum()
    total = torch.stack(weighted).sum()
    return total, {"weighted_total_loss": total.detach(), "total_loss": plain, **sums}


def consistency(heads: Consistency, imagined: torch.Tensor, seen: torch.Tensor, *, halved: bool) -> torch.Tensor:
    """Cosines [C] between imagined and seen latent states, [C, latent] each; in bfloat16 if `halved`."""
    if not halved:
        cosine: torch.Tensor = heads(imagined, seen)
        return cosine
    compared = len(imagined)
    filled = torch.arange(-(-compared // ROUNDED) * ROUNDED, device=imagined.device) % compared
    with torch.autocast(imagined.device.type, torch.bfloat16):
        of_all: torch.Tensor = heads(imagined[filled], seen[filled])
    return of_all[:compared]


def unrolled(network: MuZeroNetwork, batch_tensors: TrainingBatch, hidden_gradient: float) -> list[torch.Tensor]:
    """Latent states of position 0, 1 … K, [rows with this position, latent] each; all but the first are imagined.
    Gradients into the dynamics are multiplied with `hidden_gradient`."""
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
"""Metrics computed once per `log.interval_train_iters` updates."""
DORMANT = 0.025
"""Share of the layer's mean activity: a unit with at most this mean activity is dormant."""


@torch.no_grad()
def analysis(network: MuZeroNetwork, observation: torch.Tensor, action: torch.Tensor) -> dict[str, torch.Tensor]:
    """Compute ANALYSIS for encoded observations [n, …] and actions int64 [n]: scalars.

    The shares of dormant units in representation and dynamics (Sokar et al. 2023, "The dormant neuron phenomenon"), and
    the mean length of a latent state. Weights and running moments do not change.
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
    """Share of dormant units among all of these layers' activations, [n, units, …] each: units with a mean size of at
    most DORMANT of the mean size in their layer. The units of a convolution are its channels. All units of a layer
    without any activity are dormant."""
    dormant, units = [], 0
    for activations in layers:
        sizes = activations.abs().transpose(0, 1).flatten(1).mean(1)
        dormant.append((sizes <= DORMANT * sizes.mean()).sum())
        units += len(sizes)
    return torch.stack(dormant).sum() / units


@contextmanager
def _activations(part: nn.Module) -> Generator[list[torch.Tensor]]:
    """Collect the outputs of every relu of a part."""
    found: list[torch.Tensor] = []

    def keep(module: nn.Module, inputs: object, outputs: torch.Tensor) -> None:
        found.append(outputs)

    handles = [module.register_forward_hook(keep) for module in part.modules() if isinstance(module, nn.ReLU)]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


class MuZero(VectorLearner[MuZeroNetwork], ReanalyzingAlgorithm):
    """Learns a model whose rewards, values and policies match observed rewards, bootstrapped returns and searches.

    Includes the self-supervised consistency of EfficientZero (Ye et al. 2021), and a configured part of Reanalyse
    (Schrittwieser et al. 2021): values always come from the target network, policies from new searches with it for a
    share of each batch, unless workers search again (see `leave_reanalysis`). Prioritized replay comes with the
    weights. A subclass may override `loss`.
    """

    hidden_gradient = 0.5
    """Factor of a latent state's gradient into the dynamics (MuZero, appendix G)."""

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        assert isinstance(config.policy, MuZeroConfig), config.policy.type
        self._policy = config.policy
        self._support = Support(config.policy.support_size)
        self._search = search_settings(config.policy)
        self._reanalyze_ratio = config.policy.reanalyze_ratio
        online, self._target = (_network(config, observation, action, seed, trains=trains) for trains in (True, False))
        generator = torch.Generator().manual_seed(seed)
        super().__init__(config, observation, action, online=online, target=self._target, generator=generator)
        self._analysis_iters = config.log.interval_train_iters
        self._loaded()

    def portable(self) -> PortableMuZero:
        """See Algorithm. Acts without a search."""
        return PortableMuZero(self._online, self.observation, self.action, self._support)

    def learn(self, batch: Arrays) -> LearnResult:
        """Take one optimizer step on `loss`."""
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
        """Unroll the model, and compare it with the targets (MuZero, equation 1 and appendix G): sums over the
        positions of a row, and weighted means over rows. Priorities are in the order of `batch_tensors`."""
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
        """Cosines [C] between imagined latent states [C, latent] and those of seen observations [C, …]. The latter are
        targets, without gradients."""
        with torch.no_grad():
            target = self._online.represent(seen)
        return consistency(heads, imagined, target, halved=self._policy.precision == "bfloat16")

    def _compared(
        self, batch_tensors: TrainingBatch, values: torch.Tensor, rewards: torch.Tensor
    ) -> dict[str, float | torch.Tensor]:
        """Metrics of targets and predictions, by LightZero's names. Values are those of position 0, rewards (logits)
        those of the step after it."""
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
        """Policy targets [P, actions]: the collectors' searches, or, for a share of the rows, new searches among the
        legal actions. Also returns the duration of the new searches in seconds."""
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
        """Move the batch and its targets to the device."""
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
        """Copy the network to the host, with running moments, without the heads of consistency."""
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in self._acting_part().items()}

    # --- reanalysis by workers

    def leave_reanalysis(self) -> None:
        """See ReanalyzingAlgorithm. Values still come from the target network: one evaluation per batch."""
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
    """Takes the action with the highest prior, or draws by the priors. Contains only the parts of the network for
    policy and value."""

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
    """Make the network, with the parts for training if it `trains`; the first weights are the same with and without."""
    assert isinstance(config.policy, MuZeroConfig), config.policy.type
    with weights_from(seed):
        network = make_network(config.policy, observation, action, config.source_dir, trains=trains)
    return network.to(config.learner.device)
