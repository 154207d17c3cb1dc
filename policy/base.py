"""The contract between an algorithm and the roles: the acting side and the learning side. Imports no torch."""

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
    """Imports the function or class named `module:name`."""
    module, _, name = reference.partition(":")
    return cast("Callable[..., object]", getattr(importlib.import_module(module), name))


@dataclass(frozen=True)
class LearnResult:
    """Result of an update. Tensors stay on the learner's device, so no update waits for the device."""

    metrics: Mapping[str, float | torch.Tensor]
    """Metrics by name; see remuda.config.declaration. A metric is a number, or a tensor [n] with n numbers, for
    instance per gradient update or row. An empty metric is left out. With several ranks a number is the mean over the
    whole batch, equal in all ranks; tensors hold the rows of this rank, and the learner joins them."""
    priorities: torch.Tensor | None = None
    """Priorities float32 [batch]: absolute errors, before exponent and offset; None if the algorithm has no priorities.
    With several ranks, [rows of this rank]."""
    updates: int = 1
    """Number of gradient updates; several if the algorithm passes over its batch more than once. Equal in all ranks."""


@dataclass(frozen=True)
class Loss:
    """A loss to descend, with its metrics."""

    total: torch.Tensor
    """A scalar with its autograd graph. The optimizer descends its gradient."""
    metrics: Mapping[str, float | torch.Tensor]
    """Metrics by name, as in LearnResult. Means over all rows are scalar tensors."""
    priorities: torch.Tensor | None = None
    """See LearnResult."""


class Actor(ABC):
    """Maps observations to actions."""

    keeps_float64: bool = False
    """True if the actor gets float64 observations unchanged. A Policy's observations are then also recorded as float64,
    in rows twice as large. If False they become float32, which is enough unless something is subtracted from them."""

    uses_legal_actions: bool = False
    """True if the actor gets `legal`; if False, `legal` is always None. Legal actions of a Policy are also recorded:
    see remuda.config.declaration."""

    state_size: int = 0
    """Numbers of the state carried between the observations of an episode, as in recurrent networks; with 0, `state` is
    always None."""

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
        """Choose actions [n, …] of the environment's action space for observations [n, …].

        Args:
            observations: [n, …].
            exploration: the current values of `Declaration.exploration`, by name.
            rng: the only source of random numbers, so that runs can be repeated.
            deterministic: read neither `exploration` nor `rng`.
            legal: bool [n, actions], the legal actions in the order of a Discrete space, at least one per observation;
                None: all. For actions with several components: the values of component 0, then of component 1, and so
                on (ActionSpec.components). Environments give them in gymnasium's `info["action_mask"]`; see
                remuda.environments.legal_actions.
            state: float32 [n, state_size], the actor's state in every environment: 0 at the first observation of an
                episode. Overwritten with the state for the next observation.
        """


class ValuingActor(Actor):
    """An actor with estimates of the value of observations."""

    @abstractmethod
    def value(self, observations: np.ndarray, *, state: np.ndarray | None = None) -> np.ndarray:
        """Estimate the return from observations [n, …] on: float32 [n]. `state` is read and overwritten as by `act`:
        call either `act` or `value` for an observation."""


class Policy(ValuingActor):
    """The acting side of an algorithm, whose weights change."""

    @abstractmethod
    def load_state(self, state: Arrays) -> None:
        """Act with these weights from now on. Raises StateMismatchError and keeps the old weights."""

    def take_place(self, first: int, of: int) -> None:
        """Receive the indices of this collector's environments: `first`, `first` + 1 … of the `of` environments of all
        collectors. Called once, before the collector acts. A policy may explore differently in every environment."""

    def recorded(self) -> Mapping[str, tuple[tuple[int, ...], str]]:
        """Shape (of a step) and dtype of the columns that `act_recording` returns for the rows."""
        return {}

    def measured(self) -> Mapping[str, tuple[tuple[int, ...], str]]:
        """Shape (of one step) and dtype of each column that `act_recording` returns only for `collected_metrics`. These
        columns are not stored."""
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
        """Choose actions as `act` does, and return further columns of this step: by name, [n, …] each.

        A column `action` replaces the environment's actions in the record: those may be clipped. The caller records the
        `state` from before these observations.
        """
        return self.act(observations, exploration, rng, deterministic=False, legal=legal, state=state), {}

    def collected_metrics(self, columns: Arrays) -> Arrays:
        """Compute the metrics of a chunk's steps, by the names in `Declaration.collected`.

        Called once per chunk with steps if the declaration lists metrics. Logs show the mean of each metric over all
        steps since the last report. An exception propagates from `Rollout.collect`, and nothing of the chunk is
        counted.

        Args:
            columns: outputs of `act_recording`, by the names in `recorded` and `measured`: [n, …] each, for all n
                environment steps of the chunk, in order of time, then of environment.

        Returns:
            By name, a number per step: [n]. A number that is not finite means no number. A metric may be left out.
        """
        return {}


class Reanalyzer(ABC):
    """Computes columns of stored rows again with a newer policy (Reanalyse, Schrittwieser et al. 2021)."""

    @abstractmethod
    def load_state(self, state: Arrays) -> None:
        """Compute with these weights from now on: those of `ReanalyzingAlgorithm.target_state`. Raises
        StateMismatchError and keeps the old weights."""

    @abstractmethod
    def compute(self, columns: Arrays) -> dict[str, np.ndarray]:
        """Compute the columns named in `Declaration.reanalyzed`, with the same shapes and dtypes as in `columns`.

        Args:
            columns: whole rows as in batches, without `weights`; see remuda.config.declaration.
        """


class Algorithm(ABC):
    """The learning side. Same seed and same batches give bit-identical weights."""

    observation: ObservationSpec
    action: ActionSpec
    network: torch.nn.Module
    """The trained network, also for acting. The learner logs the network; state()["model"] is the state_dict."""
    ranks: Ranks = ONE_RANK
    """The learner's ranks; set before the first update. If the declaration has `learns_from_parts`, `learn` gets a part
    of each batch in every rank and must leave equal weights in all ranks: the weights that one rank would have learned
    from the whole batch. So average the gradient over the ranks before clipping, weighted by the number of its rows:
    `self.ranks.average(len(rows), self._parameters.gradient, loss)`."""
    products: Products | None = None
    """Precision of the networks' matrix products, set by `learner.precision`. None: the setting has no effect, and a
    config with bfloat16 is refused; see Declaration.lowers_products."""

    def adjust(self, config: ExperimentConfig) -> None:
        """Learn with these settings from the next update on: numbers that may change during a run (remuda.MayChange).
        `config.policy` is of the algorithm's settings class.

        Replaces every attribute of this object that is the config or one of its sections, and gives a changed learning
        rate to the optimizers among the attributes, Remuda's and torch's. Override this method if an update reads such
        a number elsewhere, and call it first.
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
        """Return the acting side with the newest weights, for model/. It shares the network: copy it to keep it.

        None if the algorithm has no exported form: runs then have no model/.
        """
        return None

    @abstractmethod
    def learn(self, batch: Arrays) -> LearnResult:
        """Learn from a batch of declared rows: columns [batch, …] by name, see remuda.config.declaration. The columns
        must not be changed."""

    @abstractmethod
    def state(self) -> dict[str, object]:
        """The state for an exact resume: model, and optionally target_model, optimizer and schedules, in types that
        `torch.load(weights_only=True)` opens. Other keys are refused. Tensors are live, not copies."""

    @abstractmethod
    def load_state(self, state: Mapping[str, object]) -> None:
        """Continue from `state()` of another incarnation. Raises StateMismatchError and changes nothing if the state
        does not fit."""

    def load_weights(self, state: Mapping[str, object]) -> None:
        """Load only the model of a `state()`: a new run starts from old weights. Raises StateMismatchError."""
        from remuda.policy.networks.tensors import model_misfits

        if problems := model_misfits(self.network, state, "model"):
            raise StateMismatchError(problems)
        self.network.load_state_dict(cast("dict[str, torch.Tensor]", state["model"]))

    def acting_state(self) -> dict[str, np.ndarray]:
        """Copy the network's state_dict to the host, by name, for Policy.load_state."""
        state: Mapping[str, torch.Tensor] = self.network.state_dict()
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in state.items()}

    def published_state(self) -> dict[str, np.ndarray]:
        """`acting_state`, and the network's programs, for collectors without torch."""
        return self.acting_state() | self._programs

    @functools.cached_property
    def _programs(self) -> dict[str, np.ndarray]:
        from remuda.policy.networks.reading import programs

        return programs(self.network)


class ReanalyzingAlgorithm(Algorithm):
    """An algorithm whose declaration names `reanalyzed` columns. Without reanalyzer workers, updates compute these
    columns."""

    @abstractmethod
    def leave_reanalysis(self) -> None:
        """Stop reanalysis in updates: from now on workers of the role reanalyzer write the results into the rows.
        Called before the first update."""

    @property
    @abstractmethod
    def target_iter(self) -> int:
        """The update of the last change of `target_state`; increases with every change."""

    @abstractmethod
    def target_state(self) -> dict[str, np.ndarray]:
        """Copy the target network's state_dict to the host, by name, for Reanalyzer.load_state."""
