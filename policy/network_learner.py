"""Bases of algorithms with a single network: state in checkpoints, batches on the device, and steps on a loss."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from remuda.config.schema import ExperimentConfig
from remuda.policy.base import Algorithm, Arrays
from remuda.policy.networks.flat_parameters import FlatParameters
from remuda.policy.networks.layouts import flat
from remuda.policy.networks.optimizers import Optimizer, Optimizers, load_keeping_settings, make_optimizer
from remuda.policy.networks.precision import Products
from remuda.policy.networks.tensors import legal_in, model_misfits, to_tensor
from remuda.policy.networks.torch_networks import RewardScale
from remuda.policy.saved_state import StateMismatchError
from remuda.policy.spaces import ActionSpec, ObservationSpec

Network = TypeVar("Network", bound=nn.Module)
AnyOptimizer = TypeVar("AnyOptimizer", bound=Optimizer | Optimizers)


class NetworkLearner(Algorithm, Generic[Network, AnyOptimizer]):
    """An algorithm with a network, an optimizer, and optionally a target network."""

    _rewards: RewardScale | None = None
    """Divides the rewards of batches, by moments in the network; None: rewards stay as they are."""

    def __init__(
        self,
        observation: ObservationSpec,
        action: ActionSpec,
        *,
        online: Network,
        optimizer: AnyOptimizer,
        target: Network | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        """`generator`: random generator of updates; None if updates draw nothing or seed a new generator."""
        self.observation, self.action = observation, action
        self.network = self._online = online
        self._networks: dict[str, nn.Module] = {"model": online}
        """By the name in a saved state."""
        if target is not None:
            self._networks["target_model"] = target
        self._optimizer, self._generator = optimizer, generator
        self._further: dict[str, nn.Module | torch.optim.Optimizer] = {}
        self._updates = 0

    def also_save(self, **further: nn.Module | torch.optim.Optimizer) -> None:
        """Save further modules and optimizers of a subclass in checkpoints, by name, and load them at a resume: of an
        intrinsic reward, for instance. Collectors do not get them. Call before the first update."""
        self._further |= further

    def _loaded(self) -> None:
        """Update values derived from the networks, after their weights were replaced."""
        if self._rewards is not None:
            self._rewards.read()

    def _copy_to_target(self) -> None:
        """Copy the weights of the trained network to the target network, if there is one."""
        if "target_model" in self._networks:
            self._networks["target_model"].load_state_dict(self._online.state_dict())

    def state(self) -> dict[str, object]:
        """See Algorithm. An optimizer's moments are vectors over the parameters, in the model's order."""
        drawn = {} if self._generator is None else {"generator": self._generator.get_state()}
        saved = {name: dict(one.state_dict()) for name, one in self._further.items()}
        return {
            **{name: dict(network.state_dict()) for name, network in self._networks.items()},
            "optimizer": self._optimizer.state(),
            "schedules": {"updates": self._updates, **drawn, **({"further": saved} if saved else {})},
        }

    def load_state(self, state: Mapping[str, object]) -> None:
        """See Algorithm. Learning rates are the config's."""
        if problems := self._misfits(state):
            raise StateMismatchError(problems)
        schedules = cast("Mapping[str, object]", state["schedules"])
        for name, network in self._networks.items():
            network.load_state_dict(cast("dict[str, torch.Tensor]", state[name]))
        self._optimizer.load_state(cast("Mapping[str, object]", state["optimizer"]))
        self._updates = cast("int", schedules["updates"])
        if self._generator is not None:
            self._generator.set_state(cast("torch.Tensor", schedules["generator"]).cpu())
        for name, one in self._further.items():
            _load_further(one, cast("Mapping[str, object]", schedules["further"])[name])
        self._loaded()

    def load_weights(self, state: Mapping[str, object]) -> None:
        """Start from a saved model; the target network starts from it as well."""
        super().load_weights(state)
        self._copy_to_target()
        self._loaded()

    def _misfits(self, state: Mapping[str, object]) -> list[str]:
        """Reasons why a saved state cannot be loaded; empty if it fits."""
        problems = [problem for name, own in self._networks.items() for problem in model_misfits(own, state, name)]
        problems += self._optimizer.misfits(state.get("optimizer"))
        schedules = cast("Mapping[str, object]", state.get("schedules") or {})
        if not isinstance(schedules.get("updates"), int):
            problems.append("schedules: missing updates")
        drawn, own = schedules.get("generator"), self._generator
        if own is not None and not (isinstance(drawn, torch.Tensor) and drawn.shape == own.get_state().shape):
            problems.append("schedules: missing generator")
        saved = cast("Mapping[str, object]", schedules.get("further") or {})
        for name, one in self._further.items():
            if isinstance(one, nn.Module):
                problems += model_misfits(one, saved, name)
            elif name not in saved:
                problems.append(f"{name}: missing")
            else:
                try:
                    _load_further(copy.deepcopy(one), saved[name])
                except Exception as error:  # whatever a class of torch or of the user raises
                    problems.append(f"{name}: {type(error).__name__}: {error}")
        return problems


def _load_further(one: nn.Module | torch.optim.Optimizer, state: object) -> None:
    values = cast("dict[str, Any]", state)
    if isinstance(one, torch.optim.Optimizer):
        load_keeping_settings(one, values)
    else:
        one.load_state_dict(values)


class TargetLearner(NetworkLearner[Network, AnyOptimizer]):
    """An algorithm with a target network, for bootstraps."""

    def __init__(
        self,
        observation: ObservationSpec,
        action: ActionSpec,
        *,
        online: Network,
        target: Network,
        optimizer: AnyOptimizer,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(observation, action, online=online, optimizer=optimizer, target=target, generator=generator)
        self._target = target


class VectorLearner(NetworkLearner[Network, Optimizer]):
    """A built-in algorithm with a vector of all parameters, and the optimizer of the config."""

    def __init__(
        self,
        config: ExperimentConfig,
        observation: ObservationSpec,
        action: ActionSpec,
        *,
        online: Network,
        target: Network | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        """Both networks are on `config.learner.device`."""
        self._learner, self._device = config.learner, torch.device(config.learner.device)
        self._parameters = FlatParameters(online)
        optimizer = make_optimizer(config, self._parameters.part(""))
        super().__init__(observation, action, online=online, optimizer=optimizer, target=target, generator=generator)
        self.products = Products(self._device).reach(online) if config.policy.lowers_products else None

    def _span(self, rows: int) -> tuple[int, int]:
        """Return the number of rows in the parts of lower ranks, and in the whole batch; this rank has `rows`."""
        counts = self.ranks.gather(np.array([rows], np.float64))[:, 0]
        return int(counts[: self.ranks.rank].sum()), int(counts.sum())

    def _descend(self, total: torch.Tensor, rows: int, *means: torch.Tensor) -> torch.Tensor:
        """Take one optimizer step on a loss, a mean over `rows` rows; return the gradient's norm before clipping.

        Replaces `means` over the rows by means over the rows of all ranks.
        """
        self._parameters.backward(total)
        self.ranks.average(rows, self._parameters.gradient, *means)
        norm = self._parameters.clip_gradient(self._learner.max_grad_norm)
        self._optimizer.step()
        return norm

    def acting_state(self) -> dict[str, np.ndarray]:
        """Copy parameters (in one transfer) and buffers to the host."""
        return self._parameters.snapshot()


def shuffled(
    rng: np.random.Generator, *, whole: int, first: int, own: int, shares: int
) -> tuple[NDArray[np.int64], list[int]]:
    """Deal the rows of a batch to minibatches whose sizes differ by at most one. Return the row indices in this rank's
    part, ordered by minibatch, and the number of its rows in every minibatch.

    Args:
        rng: in the same state in all ranks.
        whole: rows of the batch.
        first: rows of lower ranks.
        own: rows of this rank.
        shares: number of minibatches.
    """
    order = rng.permutation(whole) - first
    here = (order >= 0) & (order < own)
    begins = [share * (whole // shares) + min(share, whole % shares) for share in range(shares)]
    return order[here], np.add.reduceat(here, begins, dtype=np.int64).tolist()


@dataclass(frozen=True)
class Transitions:
    """A batch of n rows of `n_step` environment steps each; see remuda.config.declaration.Steps."""

    obs: torch.Tensor
    """[n, …]: encoded."""
    next_obs: torch.Tensor
    action: torch.Tensor
    """Indices of Discrete actions, int64 [n]; or the numbers of a Box in -1 … 1, float32 [n, k]."""
    reward: torch.Tensor
    """float32 [n]; the same for `discount`, 0 where the episode terminated, and `weights`."""
    discount: torch.Tensor
    weights: torch.Tensor
    legal: torch.Tensor | None
    """bool [n, actions]: legal actions in obs; None: all are legal. `next_legal` likewise for next_obs."""
    next_legal: torch.Tensor | None

    def __len__(self) -> int:
        return len(self.reward)

    @classmethod
    def of(
        cls, batch: Arrays, observation: ObservationSpec, action: ActionSpec, device: torch.device, *, as_vector: bool
    ) -> Transitions:
        """Move a batch to a device. With `as_vector` every observation becomes one vector, also with several parts."""

        def given(column: np.ndarray) -> torch.Tensor:
            return to_tensor(column, device)

        def encoded(name: str) -> torch.Tensor:
            return given(flat(observation, batch[name]) if as_vector else observation.encode(batch[name]))

        if action.n is None:
            taken = action.bounded(by="an algorithm that replays steps").from_environment(batch["action"])
        else:
            taken = action.indices(batch["action"])
        return cls(
            encoded("obs"),
            encoded("next_obs"),
            given(taken),
            given(batch["reward"]),
            given(batch["discount"]),
            given(batch["weights"]),
            legal_in(batch, "legal", device),
            legal_in(batch, "next_legal", device),
        )
