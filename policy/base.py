"""The contract between an algorithm and the roles: what acts, what learns, and what each needs. Imports no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from remuda.policy.saved_state import StateMismatchError
from remuda.policy.spaces import ActionSpec, ObservationSpec

if TYPE_CHECKING:
    import torch

    from remuda.policy.networks.portable import PortablePolicy

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class LearnResult:
    """What one update gives back. Tensors stay on the learner's device, so that nothing waits for it."""

    metrics: Mapping[str, float | torch.Tensor]
    """By name; see remuda.config.declaration. One number, or a tensor [n] of n numbers: one per gradient update or row.
    What there is none of is left out."""
    priorities: torch.Tensor | None
    """float32 [batch]: absolute errors, before exponent and offset; None where the algorithm has none."""
    updates: int = 1
    """Gradient updates that were done: an on-policy algorithm passes over its batch several times."""


class Actor(ABC):
    """Whatever turns observations into actions."""

    keeps_float64: bool = False
    """Whether it is given observations of float64 as they are; a Policy has them recorded so too, in rows twice as
    large. Otherwise they become float32, which is enough where nothing is subtracted from them."""

    uses_legal_actions: bool = False
    """Whether it is told which actions are legal: then it takes one argument more, see LegalActor."""

    @abstractmethod
    def act(
        self,
        observations: np.ndarray,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        deterministic: bool,
    ) -> np.ndarray:
        """Choose actions [n, …], as environments take them, for observations [n, …].

        Deterministic acting reads neither `exploration` nor `rng`.
        """


class LegalActor(Protocol):
    """What an Actor looks like that `uses_legal_actions`.

    `legal` bool [n, actions] is which actions are legal now, in the order of a Discrete space, at least one for each
    observation; None: all of them. Environments say it by gymnasium's `info["action_mask"]`; see
    remuda.environments.legal_actions.
    """

    def act(
        self,
        observations: np.ndarray,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        deterministic: bool,
        legal: np.ndarray | None = None,
    ) -> np.ndarray:
        """Choose legal actions; see Actor."""
        ...

    def act_recording(
        self,
        observations: np.ndarray,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        legal: np.ndarray | None = None,
    ) -> tuple[np.ndarray, Arrays]:
        """Of a policy alone: choose legal actions, and what is to be recorded; see Policy."""
        ...


def told_legal_actions(actor: Actor) -> LegalActor | None:
    """The same actor, if it is to be told which actions are legal."""
    return cast("LegalActor", actor) if actor.uses_legal_actions else None


class ValuingActor(Actor):
    """One that also knows what its observations are worth."""

    @abstractmethod
    def value(self, observations: np.ndarray) -> np.ndarray:
        """Estimate the return from observations [n, …] on: float32 [n]."""


class Policy(ValuingActor):
    """The acting side of an algorithm: its weights change."""

    @abstractmethod
    def load_state(self, state: Arrays) -> None:
        """Act with these weights from now on. Raises StateMismatchError, and the old ones stay."""

    def recorded(self) -> Mapping[str, tuple[tuple[int, ...], str]]:
        """Shape (of one step) and dtype of each column that `act_recording` records."""
        return {}

    def act_recording(
        self, observations: np.ndarray, exploration: Mapping[str, float], rng: np.random.Generator
    ) -> tuple[np.ndarray, Arrays]:
        """Choose actions as `act` does, and what else is to be recorded of this step: columns by name, each [n, …].

        A column `action` takes the place of the actions that the environment is given (they may be clipped).
        """
        return self.act(observations, exploration, rng, deterministic=False), {}


class Algorithm(ABC):
    """The learning side. Same seed and same batches give bit-identical weights."""

    observation: ObservationSpec
    action: ActionSpec
    network: torch.nn.Module
    """What is trained and acts. The learner's log shows it; state()["model"] is its state_dict."""

    def portable(self) -> PortablePolicy | None:
        """The acting side with these weights, for model/. Shares the network: to be copied before it is kept.

        None where the algorithm has no such form: then runs have no model/."""
        return None

    @abstractmethod
    def learn(self, batch: Arrays) -> LearnResult:
        """Learn from one batch of the rows declared: columns by name, see remuda.config.declaration."""

    @abstractmethod
    def state(self) -> dict[str, object]:
        """Everything a true resume needs: model, target_model, optimizer, schedules, in types that
        `torch.load(weights_only=True)` opens. Tensors are live, not copies."""

    @abstractmethod
    def load_state(self, state: Mapping[str, object]) -> None:
        """Continue from `state()` of another incarnation. Raises StateMismatchError, and nothing is changed."""

    def load_weights(self, state: Mapping[str, object]) -> None:
        """Take only the model out of `state()`: a new run that starts from old weights. Raises StateMismatchError."""
        from remuda.policy.networks.tensors import model_misfits

        if problems := model_misfits(self.network, state, "model"):
            raise StateMismatchError(problems)
        self.network.load_state_dict(cast("dict[str, torch.Tensor]", state["model"]))

    def acting_state(self) -> dict[str, np.ndarray]:
        """Copy what Policy.load_state needs to the host: the network's state_dict, by name."""
        state: Mapping[str, torch.Tensor] = self.network.state_dict()
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in state.items()}
