"""The newest policy in a form for torch alone: model/model.pt and model_info.json."""

from __future__ import annotations

import copy
import hashlib
import io
import os
import shutil
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
import numpy as np
import torch
from msgspec import UNSET, Struct, UnsetType
from numpy.typing import NDArray

from remuda.config.current import evaluated
from remuda.config.plain import masked
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms import declaration
from remuda.policy.base import Algorithm
from remuda.policy.networks.portable import Normalisation, Portable
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.storage.atomic import Replacing, replacing, write_bytes
from remuda.storage.run_folder import MODEL, MODEL_INFO
from remuda.wire.messages import Counters

OBSERVATION = "observation"
"""Name of an observation without parts."""
STATE, LEGAL, ACTION, VALUE, NEXT_STATE = "state", "legal", "action", "value", "next_state"
Floats = NDArray[np.float32]


def part_shapes(observation: ObservationSpec) -> dict[str, tuple[int, ...]]:
    """Shape of each part of an observation, by the name of its input. Names of parts in a Dict or Tuple are their keys
    and positions, with the prefix `observation.` if the key alone is taken or starts with a digit."""
    if not observation.parts:
        return {OBSERVATION: observation.shape}
    taken = (STATE, STATE, LEGAL, ACTION, VALUE, NEXT_STATE)
    named: dict[str, tuple[int, ...]] = {}
    for part in observation.parts:
        own = part.name not in taken and not part.name[:1].isdigit()
        named[(part.name if own else f"{OBSERVATION}.{part.name}") or OBSERVATION] = part.shape
    return named


def as_floats(observation: ObservationSpec, observations: np.ndarray) -> dict[str, Floats]:
    """Turn observations [n, …] of Remuda's policies into inputs of an exported policy: [n, *shape] each."""
    shapes = part_shapes(observation)
    if not observation.parts:
        return {OBSERVATION: observations.astype(np.float32)}
    return {
        name: part.of(observations).astype(np.float32) for name, part in zip(shapes, observation.parts, strict=True)
    }


_USAGE = (
    "import torch",
    "model = torch.jit.load('model.pt')",
    "actions = model.act(observations)  # a tensor of observations [batch, ...], as the environment gives them",
    "env.step(actions[0].numpy())  # or .item() where actions are whole numbers",
)
_RECURRENT_USAGE = (
    *_USAGE[:2],
    "state = torch.zeros(1, {size})  # wherever an episode begins",
    "actions, state = model.act(observations, state)  # observations [1, ...] as the environment gives them, each once",
    *_USAGE[3:],
)
Format = Literal["torchscript", "onnx", "numpy"]
_METHODS = {
    "act": ("action", "the best actions, as the environment takes them"),
    "sample": ("action", "actions with as much chance in them as the algorithm ever leaves"),
    "value": ("return", "what is still to be expected, in the environment's own rewards, discounted"),
}


class Tensor(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An input or output of a method of the model."""

    name: str
    dtype: str
    shape: list[int | Literal["batch"]]
    method: str = ""
    meaning: str = ""


class Parity(Struct, frozen=True, kw_only=True):
    """Comparison of an exported file with its policy."""

    observations: int
    source: str
    """Origin of the observations."""
    equal_actions: float
    """Share of the best actions; numbers of a Box are equal within 1e-5."""
    largest_action_difference: float
    largest_output_difference: float
    """Between the file and the network in torch."""
    largest_value_difference: float
    largest_number: float
    """Of the outputs and values, to judge the differences by."""


class ModelInfo(Struct, frozen=True, kw_only=True):
    """model_info.json: describes model.pt, its inputs and its outputs; model.pt contains a copy. Describes files of
    `remuda export` as well."""

    format: Format = "torchscript"
    version: int = 2
    """The version of this file's layout."""
    algorithm: str
    train_iter: int
    env_step: int
    usage: list[str]
    """Code to get an action, line by line."""
    inputs: list[Tensor]
    """The inputs of every method."""
    outputs: list[Tensor]
    """Output of every method; the first is that of the model's call. With `state` as input, the state is a second
    output of every method."""
    observation: ObservationSpec
    action: ActionSpec
    normalisation: Normalisation | None
    """Null if observations are not normalised."""
    exploration: dict[str, float]
    """The exploration of `sample`; empty if the policy itself is a distribution."""
    env: dict[str, Any]
    """The section `env` of the config."""
    source_dir: str | None
    """Folder of the module of `env.make`."""
    seed: int
    """The seed of the run."""
    versions: dict[str, str]
    sha256: str | None
    """The checksum of the file; null in the copy inside of model.pt."""
    log_std: list[float] | UnsetType = UNSET
    """Logarithms of the standard deviations of an exported `action_mean`."""
    parity: Parity | UnsetType = UNSET
    """Of an exported file."""


class Exporter:
    """Writes an algorithm's newest policy, repeatedly.

    Traces only once: torch keeps every trace, almost a megabyte, until the process ends.
    """

    def __init__(self, algorithm: Algorithm, config: ExperimentConfig) -> None:
        self._algorithm, self._config = algorithm, config
        self._model: torch.jit.ScriptModule | None = None

    def export(self, folder: Path, counters: Counters, *, replace: Replacing = replacing) -> None:
        """Write the acting side as TorchScript with its description, and keep a copy as iteration_<train_iter>.pt.
        Replaces each file atomically.

        Raises OSError, and torch's errors for a network that cannot be traced.
        """
        # A copy: tracing must not disturb the network in training, which may live on another device.
        shared = self._algorithm.portable()
        assert shared is not None, "the caller has checked it"
        portable = copy.deepcopy(shared).to("cpu").eval().requires_grad_(False)
        spec = self._algorithm.observation
        example = torch.from_numpy(spec.example(2))
        with torch.random.fork_rng(devices=[]):  # `sample` draws, and must draw nothing that training would have drawn
            info = _info(portable, self._algorithm, self._config, counters, example)
            if self._model is None:
                self._model = traced_policy(portable, _inputs(portable, example))
        _give(self._model, portable)
        model = _saved(self._model, encoded(info))
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(folder / MODEL, model, durable=False, replace=replace)
        _keep(folder, counters.train_iter, replace)
        info = msgspec.structs.replace(info, sha256=hashlib.sha256(model).hexdigest())
        write_bytes(folder / MODEL_INFO, encoded(info), durable=False, replace=replace)


def _keep(folder: Path, train_iter: int, replace: Replacing) -> None:
    """Keep the file under the name of its checkpoint, by a hard link: model.pt is replaced, never written to."""
    path = folder / f"iteration_{train_iter}{Path(MODEL).suffix}"
    with replace(path, durable=False) as temporary:
        try:
            os.link(folder / MODEL, temporary)
        except OSError:  # a file system without hard links
            shutil.copyfile(folder / MODEL, temporary)


@contextmanager
def without_deprecation() -> Generator[None]:
    """Suppress torch's advice to export in another way.

    torch deprecates TorchScript in favour of torch.export, whose imports take about 5 s, and whose export takes another
    5 s. A trace takes milliseconds, so the file can be written with every checkpoint.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*torch\.jit")  # torch 2.14 calls it FutureWarning
        yield


def _info(
    portable: Portable, algorithm: Algorithm, config: ExperimentConfig, counters: Counters, example: torch.Tensor
) -> ModelInfo:
    inputs = _inputs(portable, example)
    state = [tensor_of(STATE, inputs[1])] if portable.state_size else []
    own = tensor_of(portable.output_name, _answer(portable, portable(*inputs)), meaning=meaning_of(portable))
    return described(
        portable,
        algorithm,
        config,
        counters,
        usage=[line.format(size=portable.state_size) for line in (_RECURRENT_USAGE if state else _USAGE)],
        inputs=[tensor_of("observation", example), *state],
        outputs=[
            msgspec.structs.replace(own, method="forward"),
            *(
                tensor_of(name, _answer(portable, getattr(portable, method)(*inputs)), method=method, meaning=text)
                for method, (name, text) in _METHODS.items()
            ),
            *(
                msgspec.structs.replace(one, method="every", meaning="to give with the next observations")
                for one in state
            ),
        ],
    )


def described(
    portable: Portable,
    algorithm: Algorithm,
    config: ExperimentConfig,
    counters: Counters,
    *,
    usage: list[str],
    inputs: list[Tensor],
    outputs: list[Tensor],
    format: Format = "torchscript",
) -> ModelInfo:
    """Describe a policy in a file of this format."""
    return ModelInfo(
        format=format,
        algorithm=config.policy.type,
        train_iter=counters.train_iter,
        env_step=counters.env_step,
        usage=usage,
        inputs=inputs,
        outputs=outputs,
        observation=algorithm.observation,
        action=algorithm.action,
        normalisation=portable.normalisation,
        exploration=dict(declaration(config).least_exploration),
        env=cast("dict[str, Any]", masked(evaluated(config).env.model_dump(mode="json"))),
        source_dir=config.source_dir,
        seed=config.seed,
        versions={name: metadata.version(name) for name in ("remuda", "torch")},
        sha256=None,
    )


def meaning_of(portable: Portable) -> str:
    """Meaning of the network's outputs, for people."""
    meaning = {
        "q_values": "the value of each action",
        "logits": "of each action",
        "squashed_gaussian": "means, then logarithms of standard deviations, before tanh brings actions to -1 … 1",
        "unit_action": "the best action, in -1 … 1 between the bounds of the space",
    }
    return meaning.get(portable.output_name, "the best action, unclipped")


def _inputs(portable: Portable, example: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Inputs of every method: the example of observations [batch, …], and states if the policy is recurrent."""
    return (example, torch.zeros(len(example), portable.state_size)) if portable.state_size else (example,)


def _answer(portable: Portable, given: Any) -> torch.Tensor:
    """Output of a method, without the states."""
    answer: torch.Tensor = given[0] if portable.state_size else given
    return answer


def tensor_of(name: str, tensor: torch.Tensor, *, method: str = "", meaning: str = "") -> Tensor:
    """Describe an input or output by an example [batch, …]."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Tensor(name=name, dtype=dtype, shape=["batch", *tensor.shape[1:]], method=method, meaning=meaning)


def traced_policy(portable: Portable, example: tuple[torch.Tensor, ...]) -> torch.jit.ScriptModule:
    """Trace all methods of the policy, with an example of the inputs [batch, …]."""
    with without_deprecation():
        trace = cast("Callable[..., torch.jit.ScriptModule]", torch.jit.trace_module)
        inputs: Mapping[str, tuple[torch.Tensor, ...]] = dict.fromkeys(("forward", *_METHODS), example)
        return trace(portable, inputs, check_trace=False)


@torch.no_grad()
def _give(model: torch.jit.ScriptModule, newest: Portable) -> None:
    """Copy the present weights of the policy into the trace."""
    held = _held_by(model)
    for name, tensor in _held_by(newest).items():
        held[name].copy_(tensor)


def _held_by(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _saved(model: torch.jit.ScriptModule, info: bytes) -> bytes:
    buffer = io.BytesIO()
    with without_deprecation():
        torch.jit.save(model, buffer, _extra_files={MODEL_INFO: info})
    return buffer.getvalue()


def encoded(info: ModelInfo) -> bytes:
    """As JSON for people."""
    return msgspec.json.format(msgspec.json.encode(info), indent=2) + b"\n"
