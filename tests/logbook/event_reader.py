"""TensorBoard's own reader, which ships no types, behind one typed function."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

# TensorBoard has neither stubs nor a py.typed marker.
import tensorboard.backend.event_processing.event_accumulator as untyped  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]


def curves(path: Path) -> dict[str, list[tuple[int, float]]]:
    """Everything TensorBoard finds in a folder: tag to (step, value) points, in its order."""
    reader = cast("Any", untyped).EventAccumulator(str(path), size_guidance={"scalars": 0})
    reader.Reload()
    return {
        tag: [(int(event.step), float(event.value)) for event in reader.Scalars(tag)]
        for tag in reader.Tags()["scalars"]
    }
