"""Specs describe the supported spaces, survive JSON, and encode rows for networks."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from remuda.environments.errors import UnsupportedSpaceError
from remuda.environments.spaces import packed_space
from remuda.policy.spaces import ActionSpec, ObservationSpec


def test_a_box_with_and_without_bounds() -> None:
    assert ObservationSpec.of(spaces.Box(-1.0, 2.0, (3, 2), np.float32)) == ObservationSpec(
        (3, 2), "float32", -1.0, 2.0
    )
    half = spaces.Box(np.array([0.0, -np.inf]), np.array([5.0, 5.0]), dtype=np.float64)
    assert ObservationSpec.of(half) == ObservationSpec((2,), "float64", None, 5.0)
    assert ObservationSpec.of(spaces.Box(0, 255, (8, 8), np.uint8)).features == 64


@pytest.mark.parametrize(
    "space",
    [
        spaces.Dict({"a": spaces.Discrete(2)}),
        spaces.Tuple((spaces.Discrete(2),)),
        spaces.MultiBinary(3),
        spaces.Text(4),
        spaces.Box(0.0, 1.0, (), np.float32),
    ],
)
def test_unsupported_observations_are_named_with_what_is_supported(space: gymnasium.Space[Any]) -> None:
    with pytest.raises(UnsupportedSpaceError) as caught:
        ObservationSpec.of(space)
    assert str(space) in str(caught.value)
    assert "supported: Box" in str(caught.value)
    assert ("wrappers.FlattenObservation" in str(caught.value)) == isinstance(space, spaces.Box)


def test_rows_of_several_parts_do_not_come_from_a_dataset() -> None:
    """Another layout of as many bytes would pass for them."""
    parts = packed_space(spaces.Dict({"a": spaces.Box(0, 9, (3,), np.uint8), "b": spaces.Box(0, 9, (2,), np.uint8)}))
    with pytest.raises(UnsupportedSpaceError, match=r"several parts \(a, b\)"):
        assert ObservationSpec.of(parts).of_dataset
    assert ObservationSpec.of(packed_space(spaces.MultiBinary(3))).of_dataset == ((3,), "uint8")


@pytest.mark.parametrize("space", [spaces.Box(0, 9, (2,), np.int64), spaces.Text(3)])
def test_unsupported_actions_are_named_with_what_is_supported(space: gymnasium.Space[Any]) -> None:
    with pytest.raises(UnsupportedSpaceError, match="supported: Discrete, MultiDiscrete, MultiBinary, Tuple and Dict"):
        ActionSpec.of(space)


@pytest.mark.parametrize(
    ("shape", "dtype", "is_image"),
    [
        ((4, 84, 84), "uint8", True),
        ((10, 10, 4), "bool", True),
        ((84, 84), "uint8", True),
        ((2, 4, 84, 84), "uint8", True),
        ((10, 10, 4, 2), "bool", True),
        ((10, 10), "bool", False),
        ((128,), "uint8", False),
        ((2, 2, 4, 84, 84), "uint8", False),
        ((3, 84, 84), "float32", False),
        ((3, 84, 84), "int64", False),
    ],
)
def test_images_are_bytes_or_booleans_of_some_axes(shape: tuple[int, ...], dtype: str, is_image: bool) -> None:
    assert ObservationSpec(shape, dtype).is_image == is_image


@pytest.mark.parametrize(
    ("shape", "axes", "image_shape"),
    [
        ((84, 80), (0, 1), (1, 84, 80)),
        ((4, 84, 80, 1), (0, 3, 1, 2), (4, 84, 80)),  # grey frames whose last axis was kept
        ((4, 84, 80, 3), (0, 3, 1, 2), (12, 84, 80)),  # a stack of colours
        ((4, 3, 84, 80), (0, 1, 2, 3), (12, 84, 80)),
        ((84, 80, 3, 4), (2, 3, 0, 1), (12, 84, 80)),
    ],
)
def test_channels_come_first(shape: tuple[int, ...], axes: tuple[int, ...], image_shape: tuple[int, int, int]) -> None:
    spec = ObservationSpec(shape, "uint8", 0.0, 255.0)
    assert (spec.image_axes, spec.image_shape, spec.channels_last) == (axes, image_shape, False)
    seen = np.random.default_rng(0).integers(0, 256, (2, *shape), np.uint8)
    encoded = spec.encode(seen)
    assert (encoded.shape, str(encoded.dtype)) == ((2, *image_shape), "uint8")
    pixels = np.moveaxis(seen, [axis + 1 for axis in axes[-2:]], [-2, -1])
    assert (encoded[1, -1] == pixels.reshape(2, -1, *image_shape[1:])[1, -1]).all()


def test_bytes_that_are_no_image_lie_between_0_and_1() -> None:
    ram = ObservationSpec((3,), "uint8", 0.0, 255.0)
    encoded = ram.encode(np.array([[0, 51, 255]], np.uint8))
    assert encoded.dtype == np.float32
    assert encoded.tolist() == [[0.0, pytest.approx(0.2), 1.0]]


# --- actions

PUSH = spaces.Box(np.array([[-2.0, -np.inf]]), np.array([[2.0, 0.5]]), dtype=np.float64)


def test_what_a_policy_chose_becomes_what_the_environment_takes() -> None:
    chosen = np.array([[-3.0, -1e30], [1.0, 0.75]], np.float32)
    taken = ActionSpec.of(PUSH).to_environment(chosen)
    np.testing.assert_array_equal(taken, [[[-2.0, np.float32(-1e30)]], [[1.0, 0.5]]])
    assert taken.dtype == np.float64
    assert all(row in PUSH for row in taken)
    indices = ActionSpec(3, start=7, dtype="int32").to_environment(np.array([0, 2]))
    assert indices.tolist() == [7, 9]
    assert indices.dtype == np.int32


@pytest.mark.parametrize(
    "space",
    [
        spaces.MultiDiscrete([3, 2]),
        spaces.MultiDiscrete(np.array([[3, 2], [1, 4]]), dtype=np.int32, start=np.array([[1, 0], [0, -5]])),
        spaces.MultiBinary(3),
        spaces.MultiBinary([2, 2]),
    ],
)
def test_several_integers_at_once(space: Any) -> None:
    spec = ActionSpec.of(space)
    assert (spec.n, spec.is_box, spec.shape, spec.dtype) == (None, False, space.shape, str(space.dtype))
    assert spec.outputs == sum(spec.counts)
    assert spec.components == spec.counts
    indices = np.random.default_rng(0).integers(0, spec.counts, (50, len(spec.counts)))
    taken = spec.to_environment(indices)
    assert all(row in space for row in taken)
    np.testing.assert_array_equal(spec.indices(taken), indices)
    assert spec.indices(taken).dtype == np.int64


def test_several_integers_are_refused_by_who_values_each_action() -> None:
    several = ActionSpec.of(spaces.MultiDiscrete([3, 2]))
    said = r"MultiDiscrete\(\[3, 2\]\) is not supported by dqn; supported: Discrete\. Set policy\.type to ppo or impala"
    with pytest.raises(UnsupportedSpaceError, match=said):
        several.counted(by="dqn")
    with pytest.raises(UnsupportedSpaceError, match=r"is not supported by td3; supported: Box\. Set policy\.type"):
        several.bounded(by="td3")
    numbers = ActionSpec.of(spaces.Box(-1.0, 1.0, (2,)))
    with pytest.raises(UnsupportedSpaceError, match=r"Set policy\.type to ppo, impala, sac, crossq, td3 or iql"):
        numbers.counted(by="dqn")


def test_actions_within_bounds_come_from_minus_one_to_one_and_go_back() -> None:
    action = ActionSpec(None, 0, "float64", (1, 2), (-2.0, 0.0), (2.0, 10.0))
    box = action.bounded(by="x")
    taken = box.to_environment(np.array([[-1.0, 1.0], [0.5, 0.0]], np.float32))
    assert taken.dtype == np.float64
    assert taken.tolist() == [[[-2.0, 10.0]], [[1.0, 5.0]]]
    assert box.from_environment(taken).tolist() == [[-1.0, 1.0], [0.5, 0.0]]
    assert box.from_environment(taken).dtype == np.float32


@pytest.mark.parametrize(("low", "high"), [((None,), (1.0,)), ((0.0,), (None,)), ((1.0,), (1.0,))])
def test_a_box_without_bounds_that_differ_is_refused_by_who_needs_them(low: Any, high: Any) -> None:
    with pytest.raises(UnsupportedSpaceError, match=r"Box\(1,\) is not supported by walkers.*TransformAction"):
        ActionSpec(None, 0, "float32", (1,), low, high).bounded(by="walkers")
    with pytest.raises(UnsupportedSpaceError, match=r"Discrete\(3\) is not supported by walkers"):
        ActionSpec(3).bounded(by="walkers")
