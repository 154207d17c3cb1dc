"""Demonstrations: a dataset's steps in every batch of a learner from replay, or a policy's start as an imitation."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from remuda.buffer.chunk import Columns
from remuda.buffer.episodes import DatasetError
from remuda.config.schema import ExperimentConfig
from remuda.environments.seeding import generator
from remuda.policy.base import Algorithm, Arrays, LearnResult
from remuda.policy.networks.batch_norm import BatchNorm
from remuda.policy.networks.hyperspherical import UnitWeights
from remuda.policy.networks.layouts import flat
from remuda.policy.networks.normalisation import Moments
from remuda.policy.networks.portable import Portable
from remuda.policy.networks.tensors import to_tensor
from remuda.policy.networks.torch_networks import RunningMoments
from remuda.policy.spaces import ActionSpec, ObservationSpec, OutputName
from remuda.policy.torch_distributions import categorical
from remuda.training.replay.dataset import dataset_rows, fitting_episodes

Learn = Callable[[Arrays], LearnResult]
BATCH_ROWS = 256
LEARNING_RATE = 1e-3


def with_demonstrations(
    config: ExperimentConfig, algorithm: Algorithm, learn: Learn | None, *, epoch: int
) -> Learn | None:
    """Return an update like `learn` (None: the algorithm's) whose batches have rows of `buffer.demonstrations` as well;
    without that setting, return `learn`. `epoch`: of the learner, for its draws. Raises as dataset_rows."""
    shown, share = demonstrated(config, algorithm.observation, algorithm.action), config.buffer.demonstration_share
    if shown is None:
        return learn
    rng = generator(config.seed, "learner", 0, "demonstrations", incarnation=epoch)
    inner = learn or algorithm.learn

    def update(batch: Arrays) -> LearnResult:
        drawn = len(batch["reward"])
        more = max(1, round(drawn * share / (1.0 - share)))
        result = inner(joined(batch, shown, rng.integers(len(shown["reward"]), size=more)))
        return result if result.priorities is None else replace(result, priorities=result.priorities[:drawn])

    return update


def demonstrated(
    config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, *, sampled: bool = False
) -> Columns | None:
    """Read the rows of `buffer.demonstrations`; None without them. `sampled`: the rows of the first and last episode
    alone, for a check before the learner reads them all. Raises as dataset_rows."""
    dataset, share = config.buffer.demonstrations, config.buffer.demonstration_share
    if dataset is None or not share:
        return None
    return dataset_rows(config, dataset, observation, action, sampled=sampled)


def joined(batch: Arrays, shown: Arrays, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Append rows of the demonstrations, with weight 1, to the batch. A column without demonstrations, such as legal
    actions, gets 1 in the appended rows."""
    columns: dict[str, np.ndarray] = {}
    for name, own in batch.items():
        added = shown[name][rows] if name in shown else np.ones((len(rows), *own.shape[1:]), own.dtype)
        columns[name] = np.concatenate([own, added.astype(own.dtype, copy=False)])
    return columns


def imitate(config: ExperimentConfig, algorithm: Algorithm) -> str | None:
    """Let a new algorithm imitate `learner.initialize_from_demonstrations`, if given; return a line for the log.

    The likelihood of the actions grows (of counted ones), or their distance from the policy's falls. All other parts of
    the algorithm stay new, except layers shared with the policy. Raises DatasetError and UnsupportedSpaceError.
    """
    dataset = config.learner.initialize_from_demonstrations
    if dataset is None:
        return None
    policy = _clone(algorithm)
    seen, acted = algorithm.observation, algorithm.action
    episodes = fitting_episodes(Path(dataset), seen, acted)
    targets, observed = targets_of(policy.output_name, acted, episodes.actions), episodes.observed
    device = next(policy.network.parameters()).device
    if policy.normalisation is not None and isinstance(moments := policy.network.observations, RunningMoments):
        moments.store(Moments.of(flat(seen, episodes.observations[observed])))
    optimizer = torch.optim.Adam(policy.network.parameters(), lr=LEARNING_RATE)
    unit_weights = UnitWeights(policy.network)
    rng = generator(config.seed, "learner", 0, "demonstrations")
    losses: list[float] = []
    for _ in range(config.learner.demonstration_iters):
        rows = rng.integers(len(targets), size=BATCH_ROWS)
        encoded = policy.encoded(to_tensor(episodes.observations[observed[rows]], device))
        loss = loss_of(policy.output_name, acted)(policy.outputs(encoded), to_tensor(targets[rows], device))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        unit_weights.normalise()
        losses.append(float(loss.detach()))
    algorithm.load_weights({"model": policy.network.state_dict()})
    first, last = (float(np.mean(part)) for part in (losses[:10], losses[-10:]))
    return (
        f"imitated {dataset}: {len(episodes.lengths)} episodes, {episodes.steps} steps; {len(losses)} updates, loss "
        f"{first:.4g} at first, {last:.4g} at last"
    )


def check_imitation(config: ExperimentConfig, algorithm: Algorithm) -> None:
    """Check that `imitate` can begin, by the first and last episode alone. Raises as `imitate`."""
    if config.learner.initialize_from_demonstrations is not None:
        policy, acted = _clone(algorithm), algorithm.action
        dataset = Path(config.learner.initialize_from_demonstrations)
        episodes = fitting_episodes(dataset, algorithm.observation, acted, sampled=True)
        targets_of(policy.output_name, acted, episodes.actions)


def _clone(algorithm: Algorithm) -> Portable:
    """Return a copy of the acting side, to be trained apart. Raises DatasetError if imitation alone cannot make it."""
    shared = algorithm.portable()
    by_batch = shared is not None and any(isinstance(part, BatchNorm) for part in shared.network.modules())
    if shared is None or shared.state_size or by_batch:
        raise DatasetError(
            "learner.initialize_from_demonstrations: this policy remembers observations, normalises batches, or has no "
            "exported form, and cannot start from demonstrations; dqn, rainbow, ppo, impala, sac, td3 and iql can, "
            "without policy.recurrent"
        )
    clone = copy.deepcopy(shared).to(next(shared.network.parameters()).device).eval()  # its layers are then torch's own
    clone.drop_average()  # the weights imitate, and the algorithm begins its average with them
    for parameter in clone.parameters():
        parameter.grad = None
    return clone


def targets_of(output: OutputName, action: ActionSpec, actions: np.ndarray) -> np.ndarray:
    """Return what the outputs are compared with: indices of counted actions, or numbers, in -1 … 1 if the outputs
    are."""
    if not action.is_box:
        return action.indices(actions)
    if output == "action_mean":
        return actions.reshape(len(actions), -1).astype(np.float32)
    return action.bounded(by="learner.initialize_from_demonstrations").from_environment(actions)


def loss_of(output: OutputName, action: ActionSpec) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the loss of outputs [n, k] and targets: minus the mean log probability, or the mean squared distance."""
    if not action.is_box:
        return lambda outputs, targets: -categorical(outputs, action.counts).of(targets).log_prob.mean()
    if output == "squashed_gaussian":
        return lambda outputs, targets: nn.functional.mse_loss(outputs.chunk(2, dim=1)[0].tanh(), targets)
    return nn.functional.mse_loss
