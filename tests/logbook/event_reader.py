"""TensorBoard's own reader, which ships no types, behind one typed function."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

# TensorBoard has neither stubs nor a py.typed marker.
import tensorboard.backend.event_processing.event_accumulator as untyped  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]
import tensorboard.plugins.hparams.plugin_data_pb2 as untyped_hparams  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]

from remuda.wire.messages import Film


def curves(path: Path) -> dict[str, list[tuple[int, float]]]:
    """Everything TensorBoard finds in a folder: tag to (step, value) points, in its order."""
    reader = cast("Any", untyped).EventAccumulator(str(path), size_guidance={"scalars": 0})
    reader.Reload()
    return {
        tag: [(int(event.step), float(event.value)) for event in reader.Scalars(tag)]
        for tag in reader.Tags()["scalars"]
    }


@dataclass(frozen=True)
class Buckets:
    """A histogram as TensorBoard reads it."""

    edges: list[float]
    counts: list[float]
    total: float


def histograms(path: Path) -> dict[str, list[tuple[int, Buckets]]]:
    """What the page of histograms shows: tag to (step, buckets)."""
    reader = cast("Any", untyped).EventAccumulator(str(path), size_guidance={"histograms": 0})
    reader.Reload()

    def buckets(value: Any) -> Buckets:
        assert value.num == sum(value.bucket)
        assert value.max == value.bucket_limit[-1], "TensorBoard takes it for the last edge"
        return Buckets([value.min, *value.bucket_limit], list(value.bucket), value.sum)

    return {
        tag: [(int(event.step), buckets(event.histogram_value)) for event in reader.Histograms(tag)]
        for tag in reader.Tags()["histograms"]
    }


def films(path: Path) -> dict[str, list[tuple[int, Film]]]:
    """What the page of images shows: tag to (step, film)."""
    reader = cast("Any", untyped).EventAccumulator(str(path), size_guidance={"images": 0})
    reader.Reload()
    return {
        tag: [(image.step, Film(image.encoded_image_string, image.height, image.width)) for image in reader.Images(tag)]
        for tag in reader.Tags()["images"]
    }


def texts(path: Path) -> dict[str, list[tuple[int, str]]]:
    """What the page of texts shows: tag to (step, Markdown)."""
    reader = cast("Any", untyped).EventAccumulator(str(path), size_guidance={"tensors": 0})
    reader.Reload()
    return {
        tag: [(event.step, event.tensor_proto.string_val[0].decode()) for event in reader.Tensors(tag)]
        for tag in reader.PluginTagToContent("text")
    }


def hyperparameters(path: Path) -> dict[str, object]:
    """What the page of hyperparameters knows of a run: values by name, and as `metrics` the tags of its results."""
    reader = cast("Any", untyped).EventAccumulator(str(path))
    reader.Reload()
    if "scalars" not in reader.Tags() or "_hparams_/experiment" not in reader.summary_metadata:
        return {}
    parsed = cast("Any", untyped_hparams).HParamsPluginData.FromString
    found = {tag: parsed(content) for tag, content in reader.PluginTagToContent("hparams").items()}
    experiment, start = (
        found["_hparams_/experiment"].experiment,
        found["_hparams_/session_start_info"].session_start_info,
    )
    values = {name: getattr(value, value.WhichOneof("kind")) for name, value in start.hparams.items()}
    assert {info.name for info in experiment.hparam_infos} == set(values)
    assert found["_hparams_/session_end_info"].session_end_info.status == 1, "a success"
    return values | {"metrics": sorted(info.name.tag for info in experiment.metric_infos)}
