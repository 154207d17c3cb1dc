"""Acts with an ONNX file that `remuda export` wrote, by onnxruntime, which the extra `export` brings."""

# onnxruntime has no annotations.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from remuda.policy.files.checkpoint_file import CheckpointError, first_line
from remuda.policy.files.exported_policy import Method, ModelPolicy
from remuda.policy.files.model_artifact import ModelInfo
from remuda.policy.files.named_inputs import STATE, as_floats
from remuda.storage.untrusted import open_regular

Run = Callable[[Mapping[str, np.ndarray]], list[np.ndarray]]
"""Answers inputs by name with all outputs."""
MOST_BYTES = 4 << 20
"""Of a description."""


class NoOnnxError(CheckpointError):
    """A package is missing; the text has the command that installs it."""


def require_onnx() -> None:
    """Raise NoOnnxError unless ONNX files can be written and run here."""
    missing = [name for name in ("onnx", "onnxruntime") if importlib.util.find_spec(name) is None]
    if missing:
        raise NoOnnxError(f"ONNX files need {' and '.join(missing)}: pip install 'remuda[export]'")


def description_of(path: Path) -> Path:
    """The file that describes an exported one."""
    return path.with_name(f"{path.name}.json")


def opened(path: Path) -> Run:
    """Open an ONNX file. Computes with one thread, as small networks are fastest. Raises NoOnnxError,
    and whatever onnxruntime makes of it."""
    require_onnx()
    # From 1.32 on it otherwise keeps a database for Microsoft's telemetry in the user's home.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]

    options: Any = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors: it warns of every input that may be left out
    session: Any = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda given: list(session.run(None, dict(given)))


class OnnxPolicy(ModelPolicy):
    """An ONNX file as an evaluator plays it."""

    def __init__(self, path: Path) -> None:
        """Load a file and its description beside it, which has its checksum. Raises CheckpointError if one of them is
        missing, damaged or not of the other, and NoOnnxError."""
        info = _described(path)
        try:
            _, outputs, _, *_ = info.outputs
            super().__init__(info, outputs.name)
        except (ValueError, IndexError) as error:
            raise CheckpointError(f"{description_of(path)}: does not describe a policy: {error}") from error
        try:
            self._run = opened(path)
        except NoOnnxError:
            raise
        except Exception as error:  # onnxruntime has a dozen unrelated types
            raise CheckpointError(f"{path}: not an ONNX file that onnxruntime can read: {first_line(error)}") from error

    def asked(self, method: Method, observations: np.ndarray, state: np.ndarray | None) -> NDArray[Any]:
        """See ModelPolicy."""
        given = as_floats(self.info.observation, observations)
        answers = self._run(given if state is None else {**given, STATE: state})
        if state is not None:
            state[:] = answers[-1]
        return answers[("act", "forward", "value").index(method)]

    def log_std(self) -> NDArray[np.float32]:
        """See ModelPolicy."""
        return np.array(self.info.log_std, np.float32)


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
