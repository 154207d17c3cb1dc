"""The contract between an algorithm and the roles: what acts, what learns, and what each needs. Imports no torch."""

from __future__ import annotations

import functools
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from remuda.config.algorithms.base import AlgorithmConfig
from remuda.config.learning import LearnerConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.ranks import ONE_RANK, Ranks
from remuda.policy.saved_state import StateMismatchError
from remuda.policy.spaces import ActionSpec, ObservationSpec

if TYPE_CHECKING:
    import torch

    from remuda.policy.networks.portable import Portable
    from remuda.policy.networks.precision import Products

Arrays = Mapping[str, np.ndarray]


def imported(reference: str) -> Callable[..., object]:
    """Import the function or class that `module:name` names."""
    module, _, name = reference.partition(":")
    return cast("Callable[..., object]", getattr(importlib.import_module(module), name))


@dataclass(frozen=True)
class LearnResult:
    """The result of one update. Tensors stay on the learner's device, so that nothing waits for it."""

    metrics: Mapping[str, float | torch.Tensor]
    """Metrics by name; see remuda.config.declaration. Each is one number, or a tensor [n] of n numbers: one per
    gradient update or row. A metric without any number is left out. In several ranks one number is that of the whole
    batch, and the same in all; the tensors of all ranks are put together."""
    priorities: torch.Tensor | None = None
    """float32 [batch]: absolute errors, before exponent and offset; None if the algorithm has none. In several ranks
    those of the part of the batch that this rank was given."""
    updates: int = 1
    """The number of gradient updates: an on-policy algorithm passes over its batch several times. The same in all
    ranks."""


@dataclass(frozen=True)
class Loss:
    """What an update descends, and what it reports."""

    total: torch.Tensor
    """A scalar with its graph: its gradient by the parameters is followed."""
    metrics: Mapping[str, float | torch.Tensor]
    """As LearnResult's. The means of all rows among them are scalars with a graph, or other tensors."""
    priorities: torch.Tensor | None = None
    """See LearnResult."""


class Actor(ABC):
    """Anything that turns observations into actions."""

    keeps_float64: bool = False
    """Whether it gets observations of float64 unchanged; for a Policy they are also recorded so, in rows twice as
    large. Otherwise they become float32, which is enough if nothing is subtracted from them."""

    uses_legal_actions: bool = False
    """Whether it is told which actions are legal; if not, `legal` is always None. For a Policy they are also recorded:
    see remuda.config.declaration."""

    state_size: int = 0
    """Numbers of the state that it carries from one observation of an episode to the next, as recurrent networks do; if
    0, `state` is always None."""

    @abstractmethod
    def act(
        self,
        observations: np.ndarray,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        deterministic: bool,
        legal: np.ndarray | None = None,
        state: np.ndarray | None = None,
    ) -> np.ndarray:
        """Choose actions [n, …], as environments take them, for observations [n, …].

        Deterministic acting reads neither `exploration` nor `rng`. `legal` bool [n, actions] is which actions are legal
        now, in the order of a Discrete space, at least one for each observation; None: all of them. Of actions with
        several components it has the values of each component after those of the one before (ActionSpec.components).
        Environments say it by gymnasium's `info["action_mask"]`; see remuda.environments.legal_actions.

        `state` float32 [n, state_size] is what the actor carries through the episode of each environment: all 0 at the
        first observation. It is read, and overwritten with what to give with the next observation.
        """


class ValuingActor(Actor):
    """An actor that also estimates the value of observations."""

    @abstractmethod
    def value(self, observations: np.ndarray, *, state: np.ndarray | None = None) -> np.ndarray:
        """Estimate the return from observations [n, …] on: float32 [n]. `state` is read and overwritten as by `act`; an
        observation is either acted on or valued with it."""


class Policy(ValuingActor):
    """The acting side of an algorithm: its weights change."""

    @abstractmethod
    def load_state(self, state: Arrays) -> None:
        """Act with these weights from now on. Raises StateMismatchError, and the old ones stay."""

    def take_place(self, first: int, of: int) -> None:
        """Told once, in a collector, before it acts: its environments are number `first`, `first` + 1 … of the `of`
        environments of all collectors. So a policy may explore differently in each of them."""

    def recorded(self) -> Mapping[str, tuple[tuple[int, ...], str]]:
        """Shape (of one step) and dtype of each column that `act_recording` records: rows hold them."""
        return {}

    def measured(self) -> Mapping[str, tuple[tuple[int, ...], str]]:
        """Shape (of one step) and dtype of each further column that `act_recording` returns for `collected_metrics`
        alone: they are not stored."""
        return {}

    def act_recording(
        self,
        observations: np.ndarray,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        legal: np.ndarray | None = None,
        state: np.ndarray | None = None,
    ) -> tuple[np.ndarray, Arrays]:
        """Choose actions as `act` does, and return further columns to record for this step: by name, each [n, …].

        A column `action` replaces the actions that the environment gets in the record (those may be clipped). The
        `state` before these observations is recorded by the caller.
        """
        return self.act(observations, exploration, rng, deterministic=False, legal=legal, state=state), {}

    def collected_metrics(self, columns: Arrays) -> Arrays:
        """Say what the steps of a chunk mean for the logs, under names that `Declaration.collected` lists.

        Called once per chunk with steps, where the declaration lists some. Logs show the mean of each metric over all
        steps since the last report. If it raises, so does the chunk's `Rollout.collect`: nothing of it is counted.

        Args:
            columns: what `act_recording` returned, as `recorded` and `measured` name it: each [n, …], of all n
                environment steps of the chunk, in order of time, then of environment.

        Returns:
            By name, one number for each step: [n]. A number that is not finite says that the step has none. A metric
            may be left out.
        """
        return {}


class Reanalyzer(ABC):
    """Computes columns of stored rows again with a newer policy (Reanalyse, Schrittwieser et al. 2021)."""

    @abstractmethod
    def load_state(self, state: Arrays) -> None:
        """Compute with these weights from now on: those of `ReanalyzingAlgorithm.target_state`. Raises
        StateMismatchError, and the old ones stay."""

    @abstractmethod
    def compute(self, columns: Arrays) -> dict[str, np.ndarray]:
        """Compute the columns that `Declaration.reanalyzed` names, each of the shape and dtype it has in `columns`.

        Args:
            columns: whole rows as batches have them, without `weights`; see remuda.config.declaration.
        """


class Algorithm(ABC):
    """The learning side. Same seed and same batches give bit-identical weights."""

    observation: ObservationSpec
    action: ActionSpec
    network: torch.nn.Module
    """The network that is trained and acts. The learner's log shows it; state()["model"] is its state_dict."""
    ranks: Ranks = ONE_RANK
    """The ranks that learn together; others are set before the first update. Where the declaration says
    `learns_from_parts`, `learn` is given a part of each batch in each of them, and leaves the same weights in all:
    those that one rank would have learned from the whole batch. So before a gradient is clipped it is averaged over the
    ranks, weighted by the rows of which it is the mean:
    `self.ranks.average(len(rows), self._parameters.gradient, loss)`."""
    products: Products | None = None
    """How the products of its networks are computed, which the learner sets by `learner.precision`. None: that setting
    does not reach them, and a config that asks for bfloat16 is refused; see Declaration.lowers_products."""

    def adjust(self, config: ExperimentConfig) -> None:
        """Learn with these settings from the next update on: some numbers that may change (remuda.MayChange) differ
        from the former. `config.policy` is of the class of the algorithm's settings.

        Replaces sections of the config that are attributes of this object, whatever their names, and those of a config,
        and gives a learning rate that has changed to the optimizers among the attributes: Remuda's and torch's.
        Override it, and call it first, where an update reads such a number elsewhere.
        """
        from remuda.policy.networks.optimizers import set_learning_rate  # not above: it needs torch

        rate, attributes = config.learner.learning_rate, list(vars(self).items())
        held = (value for _, value in attributes if isinstance(value, LearnerConfig | ExperimentConfig))
        former = {
            value.learning_rate if isinstance(value, LearnerConfig) else value.learner.learning_rate for value in held
        }
        for name, value in attributes:
            if isinstance(value, AlgorithmConfig):
                setattr(self, name, config.policy)
            elif isinstance(value, LearnerConfig):
                setattr(self, name, config.learner)
            elif isinstance(value, ExperimentConfig):
                setattr(self, name, config)
            elif former != {rate}:
                set_learning_rate(value, rate)

    def portable(self) -> Portable | None:
        """The acting side with these weights, for model/. Shares the network: copy it before you keep it.

        None if the algorithm has no such form: then runs have no model/.
        """
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
        """Continue from `state()` of another incarnation. Raises StateMismatchError and changes nothing if it does not
        fit."""

    def load_weights(self, state: Mapping[str, object]) -> None:
        """Load only the model of a `state()`: a new run starts from old weights. Raises StateMismatchError."""
        from remuda.policy.networks.tensors import model_misfits

        if problems := model_misfits(self.network, state, "model"):
            raise StateMismatchError(problems)
        self.network.load_state_dict(cast("dict[str, torch.Tensor]", state["model"]))

    def acting_state(self) -> dict[str, np.ndarray]:
        """Copy what Policy.load_state needs to the host: the network's state_dict, by name."""
        state: Mapping[str, torch.Tensor] = self.network.state_dict()
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in state.items()}

    def published_state(self) -> dict[str, np.ndarray]:
        """`acting_state`, and how the network computes, for collectors that have no torch."""
        return self.acting_state() | self._programs

    @functools.cached_property
    def _programs(self) -> dict[str, np.ndarray]:
        """See remuda.policy.networks.reading."""
        from remuda.policy.networks.reading import programs

        return programs(self.network)


class ReanalyzingAlgorithm(Algorithm):
    """An algorithm whose declaration names `reanalyzed` columns. Without workers that compute them again it does so
    itself, as part of an update."""

    @abstractmethod
    def leave_reanalysis(self) -> None:
        """Compute nothing again from now on: workers of the role reanalyzer do it, and rows hold what they found.
        Called before the first update."""

    @property
    @abstractmethod
    def target_iter(self) -> int:
        """The update after which `target_state` last changed: it rises with each change."""

    @abstractmethod
    def target_state(self) -> dict[str, np.ndarray]:
        """Copy what Reanalyzer.load_state needs to the host: the target network's state_dict, by name."""
