"""Acts with a model alone, without algorithm, config or checkpoint: that of a model/ folder, above all."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, cast, get_args

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from remuda.policy.acting.distributions import Gaussian, best, explored, masked
from remuda.policy.base import ValuingActor
from remuda.policy.files.checkpoint_file import CheckpointError, first_line
from remuda.policy.files.model_artifact import ModelInfo, without_deprecation
from remuda.policy.files.named_inputs import STATE
from remuda.policy.spaces import OutputName
from remuda.storage.run_folder import MODEL, MODEL_INFO

Method = Literal["act", "forward", "value"]


class ModelPolicy(ValuingActor):
    """A model as an evaluator plays it: random numbers come from numpy's generator, so that seeds repeat them."""

    keeps_float64 = True  # it takes what the environment gives

    def __init__(self, info: ModelInfo, output_name: str) -> None:
        """`info` describes the model, and `output_name` names its network's outputs. Raises CheckpointError."""
        if output_name not in get_args(OutputName):
            raise CheckpointError(f"the outputs of the model are {output_name!r}, which this Remuda does not know")
        self.info = info
        self._output_name: OutputName = cast("OutputName", output_name)
        self.uses_legal_actions = self._output_name in ("q_values", "logits")
        self.state_size = next((int(one.shape[1]) for one in self.info.inputs if one.name == STATE), 0)

    @abstractmethod
    def asked(self, method: Method, observations: np.ndarray, state: np.ndarray | None) -> NDArray[Any]:
        """The model's best actions, outputs or values. The `state` is overwritten."""

    @abstractmethod
    def log_std(self) -> NDArray[np.float32]:
        """The logarithms of the standard deviations, of normal distributions."""

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
        """See Actor; the same draws as the algorithm's own policy makes."""
        if deterministic and legal is None:
            return self._told("act", observations, state)
        name, spec = self._output_name, self.info.action
        outputs = masked(self._told("forward", observations, state), legal)
        if deterministic:
            return spec.to_environment(best(name, outputs, spec.counts))
        if name == "action_mean":
            return spec.to_environment(Gaussian(outputs, self.log_std()).sample(rng))
        drawn = explored(name, outputs, exploration, rng, counts=spec.counts, legal=legal)
        in_units = name in ("squashed_gaussian", "unit_action")
        return (spec.bounded(by=self.info.algorithm) if in_units else spec).to_environment(drawn)

    def value(self, observations: np.ndarray, *, state: np.ndarray | None = None) -> np.ndarray:
        """See ValuingActor."""
        return self._told("value", observations, state)

    def _told(self, method: Method, observations: np.ndarray, state: np.ndarray | None) -> NDArray[Any]:
        if self.state_size and state is None:
            raise ValueError("a recurrent policy acts with the state of each environment: give `state`")
        return self.asked(method, observations, state if self.state_size else None)


class ExportedPolicy(ModelPolicy):
    """The model in a model/ folder."""

    def __init__(self, folder: Path) -> None:
        """Load `folder`/model.pt. Raises CheckpointError if it is missing, damaged or of another format.

        TorchScript is a program, although without access to Python: load only models of people you trust.
        """
        self._model, info = _load(folder / MODEL)
        super().__init__(info, info.outputs[0].name)

    @torch.no_grad()
    def asked(self, method: Method, observations: np.ndarray, state: np.ndarray | None) -> NDArray[Any]:
        """See ModelPolicy."""
        seen = torch.from_numpy(np.ascontiguousarray(observations, self.info.observation.dtype))
        answer = getattr(self._model, method)(*(seen,) if state is None else (seen, torch.from_numpy(state)))
        if state is not None:
            answer, after = answer
            state[:] = after.numpy()
        own: NDArray[Any] = answer.numpy()
        return own

    def log_std(self) -> NDArray[np.float32]:
        """See ModelPolicy."""
        parameters = self._model.named_parameters()
        (found,) = (tensor for name, tensor in parameters if name.rpartition(".")[2] == "log_std")
        numbers: NDArray[np.float32] = found.numpy()
        return numbers


def _load(path: Path) -> tuple[Any, ModelInfo]:
    """The model, with the description that is inside it."""
    inside = {MODEL_INFO: ""}
    load = cast("Callable[..., torch.jit.ScriptModule]", torch.jit.load)
    try:
        with without_deprecation():
            model = load(str(path), map_location="cpu", _extra_files=inside)
        return model, msgspec.json.decode(inside[MODEL_INFO], type=ModelInfo)
    except (ValueError, RuntimeError, msgspec.MsgspecError) as error:  # torch: a missing file, a damaged one
        if not path.is_file():
            raise CheckpointError(f"{path}: no such model") from None
        raise CheckpointError(f"{path}: not a model of Remuda's, or a damaged one: {first_line(error)}") from error
