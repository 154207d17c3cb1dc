"""Exports a policy to a file without Remuda, and verifies that both act alike."""

from __future__ import annotations

import copy
import hashlib
import os
import tempfile
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import cast

import msgspec
import torch

from remuda.config.schema import ExperimentConfig
from remuda.policy.base import Algorithm, ValuingActor
from remuda.policy.export.deployable import Comparison, Deployable, Recorded, example_of
from remuda.policy.export.formats import FORMATS, ExportError
from remuda.policy.export.numpy_code import NotInNumpyError
from remuda.policy.files.checkpoint_file import first_line
from remuda.policy.files.exported_policies import description_of
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
)
from remuda.policy.networks.portable import Portable
from remuda.policy.networks.torch_networks import ActorCriticNetwork
from remuda.wire.messages import Counters

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
