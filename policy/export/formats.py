"""Formats of exported policies: writing, and opening for the comparison."""

from __future__ import annotations

import importlib.util
import keyword
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from remuda.policy.export.deployable import Deployable, Run
from remuda.policy.export.numpy_code import NumpyCode
from remuda.policy.files.exported_policies import opened, require_onnx
from remuda.policy.files.model_artifact import LEGAL, Format, without_deprecation


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
