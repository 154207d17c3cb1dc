"""Acts with an exported model alone, without algorithm, config or checkpoint: of model/, or an ONNX file."""

from __future__ import annotations

import hashlib
import importlib.util
import os
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
from remuda.policy.files.model_artifact import STATE, ModelInfo, as_floats, without_deprecation
from remuda.policy.spaces import OutputName
from remuda.storage.run_folder import MODEL, MODEL_INFO
from remuda.storage.untrusted import open_regular

Method = Literal["act", "forward", "value"]
Answer = Callable[[Method, np.ndarray, np.ndarray | None], NDArray[Any]]
"""Answers with the model's best actions, outputs or values of observations. Overwrites the state, the last input."""


class ExportedActor(ValuingActor):
    """A model for evaluation. Random numbers come from numpy's generator: repeatable by seeds."""

    keeps_float64 = True  # it takes what the environment gives

    def __init__(
        self, info: ModelInfo, output_name: str, answer: Answer, log_std: Callable[[], NDArray[np.float32]]
    ) -> None:
        """Make an actor of a model with outputs of this meaning. `log_std` returns the logarithms of the standard
        deviations, of normal distributions. Raises CheckpointError."""
        if output_name not in get_args(OutputName):
            raise CheckpointError(f"the outputs of the model are {output_name!r}, which this Remuda does not know")
        self.info, self._model_answer, self._log_std = info, answer, log_std
        self._output_name: OutputName = cast("OutputName", output_name)
        self.uses_legal_actions = self._output_name in ("q_values", "logits")
        self.state_size = next((int(one.shape[1]) for one in self.info.inputs if one.name == STATE), 0)

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
            return self._answer("act", observations, state)
        name, spec = self._output_name, self.info.action
        outputs = masked(self._answer("forward", observations, state), legal)
        if deterministic:
            return spec.to_environment(best(name, outputs, spec.counts))
        if name == "action_mean":
            return spec.to_environment(Gaussian(outputs, self._log_std()).sample(rng))
        drawn = explored(name, outputs, exploration, rng, counts=spec.counts, legal=legal)
        in_units = name in ("squashed_gaussian", "unit_action")
        return (spec.bounded(by=self.info.algorithm) if in_units else spec).to_environment(drawn)

    def value(self, observations: np.ndarray, *, state: np.ndarray | None = None) -> np.ndarray:
        return self._answer("value", observations, state)

    def _answer(self, method: Method, observations: np.ndarray, state: np.ndarray | None) -> NDArray[Any]:
        if self.state_size and state is None:
            raise ValueError("a recurrent policy acts with the state of each environment: give `state`")
        return self._model_answer(method, observations, state if self.state_size else None)


def model_actor(folder: Path) -> ExportedActor:
    """Load `folder`/model.pt of a model/ folder. Raises CheckpointError if it is missing, damaged or of another format.

    TorchScript is a program, although without access to Python: load only models of people you trust.
    """
    model, info = _load(folder / MODEL)

    @torch.no_grad()
    def answer(method: Method, observations: np.ndarray, state: np.ndarray | None) -> NDArray[Any]:
        seen = torch.from_numpy(np.ascontiguousarray(observations, info.observation.dtype))
        given = getattr(model, method)(*(seen,) if state is None else (seen, torch.from_numpy(state)))
        if state is not None:
            given, after = given
            state[:] = after.numpy()
        own: NDArray[Any] = given.numpy()
        return own

    def log_std() -> NDArray[np.float32]:
        (found,) = (tensor for name, tensor in model.named_parameters() if name.rpartition(".")[2] == "log_std")
        numbers: NDArray[np.float32] = found.numpy()
        return numbers

    return ExportedActor(info, info.outputs[0].name, answer, log_std)


def _load(path: Path) -> tuple[Any, ModelInfo]:
    """Load the model, with the description inside it."""
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


Run = Callable[[Mapping[str, np.ndarray]], list[np.ndarray]]
"""Answers inputs by name with all outputs."""
MOST_BYTES = 4 << 20
"""Of a description."""


class NoOnnxError(CheckpointError):
    """A package is missing; the message has the command to install it."""


def require_onnx() -> None:
    """Raise NoOnnxError unless ONNX files can be written and run here."""
    missing = [name for name in ("onnx", "onnxruntime") if importlib.util.find_spec(name) is None]
    if missing:
        raise NoOnnxError(f"ONNX files need {' and '.join(missing)}: pip install 'remuda[export]'")


def description_of(path: Path) -> Path:
    """Path of the description of an exported file."""
    return path.with_name(f"{path.name}.json")


def opened(path: Path) -> Run:
    """Open an ONNX file. Computes with one thread, fastest for small networks. Raises NoOnnxError, and the errors of
    onnxruntime."""
    require_onnx()
    # From 1.32 on it otherwise keeps a database for Microsoft's telemetry in the user's home.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]

    options: Any = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors: it warns of every input that may be left out
    session: Any = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda given: list(session.run(None, dict(given)))


def onnx_actor(path: Path) -> ExportedActor:
    """Load an ONNX file, and its description with the checksum. Raises CheckpointError if either is missing, damaged or
    does not match, and NoOnnxError."""
    info = _described(path)

    def answer(method: Method, observations: np.ndarray, state: np.ndarray | None) -> NDArray[Any]:
        given = as_floats(info.observation, observations)
        answers = run(given if state is None else {**given, STATE: state})
        if state is not None:
            state[:] = answers[-1]
        return answers[("act", "forward", "value").index(method)]

    try:
        _, outputs, _, *_ = info.outputs
        actor = ExportedActor(info, outputs.name, answer, lambda: np.array(info.log_std, np.float32))
    except (ValueError, IndexError) as error:
        raise CheckpointError(f"{description_of(path)}: does not describe a policy: {error}") from error
    try:
        run = opened(path)
    except NoOnnxError:
        raise
    except Exception as error:  # onnxruntime has a dozen unrelated types
        raise CheckpointError(f"{path}: not an ONNX file that onnxruntime can read: {first_line(error)}") from error
    return actor


def _described(path: Path) -> ModelInfo:
    try:
        with open_regular(path) as file, open_regular(description_of(path)) as description:
            info = msgspec.json.decode(description.read(MOST_BYTES), type=ModelInfo)
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise CheckpointError(f"{error.filename}: no such file; an exported policy and its .json go together") from None
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{description_of(path)}: does not describe a policy: {first_line(error)}") from error
    if info.format != "onnx" or info.sha256 != sha256:
        raise CheckpointError(f"{path}: damaged, or not the file that {description_of(path).name} describes")
    return info
