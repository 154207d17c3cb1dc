"""Acts with a model/ folder, without algorithm, config or checkpoint."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from remuda.policy.acting.distributions import Categorical, Gaussian, epsilon_greedy
from remuda.policy.base import ValuingActor
from remuda.policy.files.checkpoint_file import CheckpointError, first_line
from remuda.policy.files.model_artifact import ModelInfo, without_deprecation
from remuda.storage.run_folder import MODEL, MODEL_INFO


class ExportedPolicy(ValuingActor):
    """A model as an evaluator plays it: random numbers come from numpy's generator, so that seeds repeat them."""

    keeps_float64 = True  # it takes what the environment gives

    def __init__(self, folder: Path) -> None:
        """Load `folder`/model.pt. Raises CheckpointError if it is missing, damaged or of another format.

        TorchScript is a program, although without access to Python: load only models of people you trust.
        """
        self._model, self.info = _load(folder / MODEL)
        self._output_name = self.info.outputs[0].name

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
        if deterministic:
            return self._asked(self._model.act, observations)
        outputs = self._asked(self._model, observations)
        if self._output_name == "q_values":
            drawn: np.ndarray = epsilon_greedy(outputs, exploration["epsilon"], rng)
        elif self._output_name == "logits":
            drawn = Categorical(outputs).sample(rng)
        else:
            drawn = Gaussian(outputs, self._model.network.log_std.numpy()).sample(rng)
        return self.info.action.to_environment(drawn)

    def value(self, observations: np.ndarray, *, state: np.ndarray | None = None) -> np.ndarray:
        """See ValuingActor."""
        return self._asked(self._model.value, observations)

    def _asked(self, method: Callable[[torch.Tensor], torch.Tensor], observations: np.ndarray) -> NDArray[Any]:
        seen = np.ascontiguousarray(observations, self.info.observation.dtype)
        with torch.no_grad():
            answer: NDArray[Any] = method(torch.from_numpy(seen)).numpy()
        return answer


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
