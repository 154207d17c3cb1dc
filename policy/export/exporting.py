"""Exports a policy to a file without Remuda, and verifies that both act alike."""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import keyword
import os
import re
import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import torch

from remuda.config.schema import ExperimentConfig
from remuda.policy.base import Algorithm, ValuingActor
from remuda.policy.export.deployable import Comparison, Deployable, Recorded, example_of
from remuda.policy.export.numpy_code import NotInNumpyError, NumpyCode
from remuda.policy.files.checkpoint_file import first_line
from remuda.policy.files.exported_policies import Run, description_of, opened, require_onnx
from remuda.policy.files.model_artifact import (
    ACTION,
    LEGAL,
    NEXT_STATE,
    STATE,
    VALUE,
    Format,
    ModelInfo,
    Parity,
    Tensor,
    described,
    encoded,
    meaning_of,
    tensor_of,
    without_deprecation,
)
from remuda.policy.networks.portable import Portable
from remuda.policy.networks.torch_networks import ActorCriticNetwork
from remuda.wire.messages import Counters


class ExportError(Exception):
    """The policy cannot be exported; the message says why, and what to do."""


class FileFormat(ABC):
    """A file format."""

    suffix: str

    @abstractmethod
    def write(self, deployable: Deployable, example: tuple[torch.Tensor, ...], path: Path) -> None:
        """Write the policy. `example`: an example of all inputs."""

    @abstractmethod
    def run(self, path: Path) -> Run:
        """Open the file."""

    @abstractmethod
    def usage(self, file: str, inputs: list[str], outputs: list[str]) -> list[str]:
        """Code to get an action, line by line; `inputs` without `legal`."""

    def files(self, path: Path) -> list[Path]:
        """Files written by `write`."""
        return [path]


class TorchScript(FileFormat):
    """For torch, from Python and C++."""

    suffix = ".pt"

    def write(self, deployable: Deployable, example: tuple[torch.Tensor, ...], path: Path) -> None:
        """With a second method for legal actions, since a method has a fixed number of inputs."""
        with without_deprecation():
            methods = {"forward": example}
            if deployable.choices:
                methods = {"forward": example[:-1], "with_legal": example}
            traced = cast("Callable[..., Any]", torch.jit.trace_module)(deployable, methods, check_trace=False)
            torch.jit.save(torch.jit.freeze(traced, [*methods][1:]), str(path))

    def run(self, path: Path) -> Run:
        """Open the file."""
        with without_deprecation():
            model = cast("Callable[..., Any]", torch.jit.load)(str(path))

        @torch.no_grad()
        def run(given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
            tensors = [torch.from_numpy(np.ascontiguousarray(each)) for each in given.values()]
            answer = model.with_legal(*tensors) if LEGAL in given else model(*tensors)
            return [each.numpy() for each in answer]

        return run

    def usage(self, file: str, inputs: list[str], outputs: list[str]) -> list[str]:
        """In Python."""
        call = f"policy({', '.join(inputs)})"
        return ["import torch", f"policy = torch.jit.load({file!r})", f"{', '.join(outputs)} = {call}"]


class Onnx(FileFormat):
    """For onnxruntime, in many languages."""

    suffix = ".onnx"
    OPSET = 17
    """The first version with layer normalisation: supported since onnxruntime 1.12 (2022)."""

    def write(self, deployable: Deployable, example: tuple[torch.Tensor, ...], path: Path) -> None:
        """Write by torch's trace-based exporter: it needs no further packages, and takes milliseconds."""
        require_onnx()
        import onnx

        inputs, outputs = list(deployable.inputs), list(deployable.outputs)
        axes = {name: {0: "batch_or_1" if name == LEGAL else "batch"} for name in (*inputs, *outputs)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # see `without_deprecation`
            torch.onnx.export(
                deployable,
                example,
                str(path),
                input_names=inputs,
                output_names=outputs,
                dynamic_axes=axes,
                opset_version=self.OPSET,
                dynamo=False,
            )
        model = onnx.load(str(path))
        if deployable.choices:  # an input with an initializer may be left out
            ones = np.ones((1, deployable.choices), np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(ones, LEGAL))
        onnx.checker.check_model(model, full_check=True)
        path.write_bytes(model.SerializeToString())

    def run(self, path: Path) -> Run:
        """Open the file."""
        return opened(path)

    def usage(self, file: str, inputs: list[str], outputs: list[str]) -> list[str]:
        """In Python."""
        given = ", ".join(f"{name!r}: {_identifier(name)}" for name in inputs)
        return [
            "import onnxruntime",
            f"policy = onnxruntime.InferenceSession({file!r})",
            f"{', '.join(outputs)} = policy.run(None, {{{given}}})",
        ]


_NUMPY = '''"""The policy in {weights}: needs numpy, and that file beside it. Written by `remuda export`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

w = dict(np.load(Path(__file__).with_name("{weights}")))

{functions}
def policy({arguments}):
    """Returns {returned}. All inputs are float32 [batch, ...]: {weights}.json describes them."""
{lines}
'''


class Numpy(FileFormat):
    """A module that needs only numpy, and a file of weights."""

    suffix = ".npz"

    def write(self, deployable: Deployable, example: tuple[torch.Tensor, ...], path: Path) -> None:
        """Raises NotInNumpyError."""
        arguments = [_identifier(name) for name in deployable.inputs]
        with without_deprecation():
            traced = cast("Callable[..., Any]", torch.jit.trace)(deployable, example, check_trace=False)
            code = NumpyCode(traced, arguments)
        lines = code.lines(deployable.outputs)
        if deployable.choices:
            arguments[-1] = f"{LEGAL}=None"
            lines.insert(0, f"{LEGAL} = np.ones((1, {deployable.choices})) if {LEGAL} is None else {LEGAL}")
        text = _NUMPY.format(
            weights=path.name,
            functions="".join(f"\n{function}\n" for function in code.functions),
            arguments=", ".join(arguments),
            returned=", ".join(deployable.outputs),
            lines="\n".join(f"    {line}" for line in lines),
        )
        self.files(path)[1].write_text(text, encoding="utf-8")
        cast("Callable[..., None]", np.savez)(path, **code.arrays)

    def run(self, path: Path) -> Run:
        """Import the module."""
        spec = importlib.util.spec_from_file_location("remuda_exported_policy", self.files(path)[1])
        assert spec is not None
        assert spec.loader is not None
        module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return lambda given: list(module.policy(**{_identifier(name): array for name, array in given.items()}))

    def usage(self, file: str, inputs: list[str], outputs: list[str]) -> list[str]:
        """In Python."""
        call = f"policy({', '.join(map(_identifier, inputs))})"
        return [f"from {Path(file).stem} import policy", f"{', '.join(outputs)} = {call}"]

    def files(self, path: Path) -> list[Path]:
        """The weights and the module."""
        return [path, path.with_suffix(".py")]


FORMATS: Mapping[Format, FileFormat] = {"torchscript": TorchScript(), "onnx": Onnx(), "numpy": Numpy()}


def _identifier(name: str) -> str:
    """Name of the argument for an input: other characters become underscores."""
    plain = re.sub(r"\W", "_", name)
    return f"{plain}_" if keyword.iskeyword(plain) or plain in ("np", "w", "policy") else plain


TOLERANCE = 1e-3
"""Largest accepted difference of outputs and values, as a share of the largest number, or absolute below 1."""
LEAST_EQUAL = 0.99
"""Least share of equal actions: rounding may decide between equally good actions."""


class PolicyExport:
    """An export of a policy."""

    def __init__(
        self,
        algorithm: Algorithm,
        policy: ValuingActor,
        config: ExperimentConfig,
        counters: Counters,
        recorded: Recorded,
    ) -> None:
        """`policy` has the weights of `algorithm`, and acts without a search. The file accepts legal actions if
        environments give them and the policy uses them. Raises ExportError."""
        portable = algorithm.portable()
        if portable is None:
            raise ExportError(
                f"policy.type {config.policy.type!r} cannot be exported: its algorithm has no `portable` module (see "
                "remuda.Algorithm)"
            )
        self._portable = copy.deepcopy(portable).to("cpu").eval().requires_grad_(False)
        self._algorithm, self._policy, self._config, self._counters = algorithm, policy, config, counters
        self._recorded = recorded
        masks = policy.uses_legal_actions and recorded.legal is not None
        self._deployable = Deployable(self._portable, algorithm.observation, algorithm.action, masks=masks).eval()

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """Shape of each input by name, without the batch."""
        return self._deployable.inputs

    def write(self, path: Path, format: Format) -> ModelInfo:
        """Write the file with its description, all at once at the end.

        Raises ExportError if the format does not support the policy, or if the file does not act like the policy;
        nothing is written then. Raises NoOnnxError and OSError.
        """
        way = FORMATS[format]
        example = example_of(self._deployable, self._algorithm.observation)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=path.parent) as folder, torch.no_grad():
            made = Path(folder) / path.name
            try:
                with _plain_attention():
                    way.write(self._deployable, example, made)
            except (NotInNumpyError, torch.onnx.errors.OnnxExporterError) as error:
                others = " or ".join(other for other in FORMATS if other != format)
                raise ExportError(f"{first_line(error)}: use --format {others}") from error
            comparison = Comparison(self._policy, self._portable, self._algorithm.observation)
            parity = comparison.parity(way.run(made), self._recorded)
            _require_alike(parity, self._algorithm)
            info = self._described(made, format, example, parity)
            description_of(made).write_bytes(encoded(info))
            for file in (*way.files(made), description_of(made)):
                os.replace(file, path.parent / file.name)
        return info

    def _described(self, made: Path, format: Format, example: Sequence[torch.Tensor], parity: Parity) -> ModelInfo:
        deployable = self._deployable
        inputs = [name for name in deployable.inputs if name != LEGAL]
        info = described(
            self._portable,
            self._algorithm,
            self._config,
            self._counters,
            usage=FORMATS[format].usage(made.name, inputs, list(deployable.outputs)),
            inputs=[
                tensor_of(name, tensor, meaning=self._meaning(name))
                for name, tensor in zip(deployable.inputs, example, strict=True)
            ],
            outputs=self._outputs(example),
            format=format,
        )
        versions = info.versions | ({"onnx": metadata.version("onnx")} if format == "onnx" else {})
        sha256 = hashlib.sha256(made.read_bytes()).hexdigest()
        log_std = _log_std(self._portable)
        return msgspec.structs.replace(info, versions=versions, sha256=sha256, log_std=log_std, parity=parity)

    def _outputs(self, example: Sequence[torch.Tensor]) -> list[Tensor]:
        meanings = {
            ACTION: "the best actions, as the environment takes them",
            VALUE: "what is still to be expected, in the environment's own rewards, discounted",
            NEXT_STATE: "to give as `state` with the next observations",
        }
        answers = zip(self._deployable.outputs, self._deployable(*example), strict=True)
        return [tensor_of(name, each, meaning=meanings.get(name, meaning_of(self._portable))) for name, each in answers]

    def _meaning(self, name: str) -> str:
        if name == STATE:
            return "what `next_state` was before; 0 where an episode begins"
        if name == LEGAL:
            return "above 0 where an action is legal; may be left out: then all are"
        return self._deployable.meanings[name]


@contextmanager
def _plain_attention() -> Generator[None]:
    """Context in which torch's attention is traced as single operations: its fast path is an operation that only torch
    has.

    Hides torch's warnings about constants in a trace, such as checks of shapes: the file is verified later.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with warnings.catch_warnings():
            unexported = cast("type[Warning]", getattr(torch.jit, "TracerWarning"))  # noqa: B009  (torch does not declare it)
            warnings.simplefilter("ignore", unexported)
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _log_std(portable: Portable) -> list[float] | msgspec.UnsetType:
    for module in portable.modules():
        if isinstance(module, ActorCriticNetwork) and module.log_std is not None:
            return [float(number) for number in module.log_std]
    return msgspec.UNSET


def _require_alike(parity: Parity, algorithm: Algorithm) -> None:
    difference = max(parity.largest_output_difference, parity.largest_value_difference)
    if difference <= TOLERANCE * max(1.0, parity.largest_number) and parity.equal_actions >= LEAST_EQUAL:
        return
    exact = algorithm.observation.dtype in ("float64", "int64", "uint64", "int32", "uint32")
    hint = f": its observations are {algorithm.observation.dtype}, of which float32 has too few digits" if exact else ""
    raise ExportError(
        f"nothing was written, since the file would not act as the policy does: over {parity.observations} "
        f"observations from {parity.source}, {parity.equal_actions:.2%} of the actions are equal, and outputs differ "
        f"by up to {difference:.3g}{hint}"
    )
