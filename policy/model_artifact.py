"""The newest policy as an artefact that `torch.jit.load` opens without Remuda: model/model.pt and model_info.json."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import copy
import hashlib
import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
import torch

from remuda.policy.base import Algorithm
from remuda.storage.atomic import write_bytes

MODEL, INFO = "model.pt", "model_info.json"


def export(folder: Path, algorithm: Algorithm, *, algorithm_name: str, env: str, train_iter: int) -> None:
    """Write the acting network as TorchScript and describe its input and output. Replaces both files atomically."""
    shape = algorithm.observation
    rows = np.full((2, *shape.shape), shape.start, shape.dtype)
    example = torch.from_numpy(shape.encode(rows))
    # A copy: tracing must not disturb the network in training, which may live on another device.
    network = copy.deepcopy(algorithm.network).to("cpu").eval()
    with torch.no_grad():
        output: torch.Tensor = network(example)
        model = _traced(network, example)
    info = {
        "format": "torchscript",
        "algorithm": algorithm_name,
        "env": env,
        "train_iter": train_iter,
        "inputs": [_tensor_info("observation", example)],
        "outputs": [_tensor_info(algorithm.output_name, output)],
        "observation": algorithm.observation,
        "action": algorithm.action,
        "normalisation": None,
        "sha256": hashlib.sha256(model).hexdigest(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / MODEL, model, durable=False)
    write_bytes(folder / INFO, msgspec.json.format(msgspec.json.encode(info), indent=2) + b"\n", durable=False)


def _traced(network: torch.nn.Module, example: torch.Tensor) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # torch deprecates TorchScript in favour of torch.export, whose imports take about 5 s and whose export takes
        # another; a trace takes 20 ms, so the artefact can be refreshed with every checkpoint.
        warnings.filterwarnings("ignore", message=r".*torch\.jit", category=DeprecationWarning)
        trace = cast("Callable[..., torch.jit.ScriptModule]", torch.jit.trace)
        torch.jit.save(trace(network, example, check_trace=False), buffer)
    return buffer.getvalue()


def _tensor_info(name: str, tensor: torch.Tensor) -> dict[str, object]:
    """Batch size is free; observations are flattened (Box) or one-hot (Discrete), and images as they come."""
    return {"name": name, "dtype": str(tensor.dtype).removeprefix("torch."), "shape": ["batch", *tensor.shape[1:]]}
