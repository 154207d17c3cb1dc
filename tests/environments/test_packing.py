"""What is promised of observations of several parts: each part arrives as it was, and what cannot be read is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from remuda.collector.environments import environment_spec
from remuda.config.environment import EnvConfig
from remuda.environments.errors import EnvironmentBuildError, UnsupportedSpaceError
from remuda.environments.make import make_single
from remuda.environments.spaces import PackObservations, packed_space, packs, unpacked
from remuda.tests.environments.stepping import begun, copies_of
from remuda.tests.environments.structured import Cells, Grid, WithGraph, WrongShape

MODULE = "remuda.tests.environments.structured"


def test_every_part_arrives_as_it_was() -> None:
    env = PackObservations(Grid())
    packed, _ = env.reset(seed=3)
    raw, _ = Grid().reset(seed=3)
    assert packs(env.observation_space)
    parts = unpacked(env.observation_space, packed[None])
    assert list(parts) == ["direction", "image", "place.0", "place.1", "switches"]
    assert env.observation_space.unused == ("mission",)
    assert parts["direction"][0] == raw["direction"]
    np.testing.assert_array_equal(parts["image"][0], raw["image"])
    np.testing.assert_array_equal(parts["place.0"][0], np.float32(raw["place"][0]))
    np.testing.assert_array_equal(parts["place.1"][0], raw["place"][1])
    np.testing.assert_array_equal(parts["switches"][0], raw["switches"])
    assert packed in env.observation_space


def test_a_space_alone_is_packed_too() -> None:
    env = PackObservations(Cells())
    packed, _ = env.reset()
    assert packs(env.observation_space)
    assert unpacked(env.observation_space, packed[None])[""].tolist() == [[2, 1]]
    assert env.observation_space.parts[0].counts == (3, 2)


def test_what_no_network_reads_is_named() -> None:
    with pytest.raises(UnsupportedSpaceError, match=r"the part 'a' of the observation is Sequence"):
        PackObservations(WithGraph())
    with pytest.raises(UnsupportedSpaceError, match="has 0 parts"):
        packed_space(spaces.Dict({"mission": spaces.Text(3)}))
    with pytest.raises(EnvironmentBuildError, match="the part 'a' of the observation"):
        make_single(EnvConfig(make=f"{MODULE}:WithGraph"), source_dir=None)


def test_a_part_of_another_shape_is_named() -> None:
    with pytest.raises(ValueError, match=r"the part 'switches' of the observation has shape \(2,\)"):
        PackObservations(WrongShape()).reset(seed=0)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("place", (np.array([np.nan, 0.0]), np.array([1, 2])), r"'place.0' of the observation is \[nan, 0.0\]"),
        ("place", (np.array([1e300, 0.0]), np.array([1, 2])), "not finite as float32"),
        ("place", (np.zeros(2), np.array([1, 3])), r"'place.1' of the observation is \[1, 3\], which"),
        ("direction", np.int64(0), "'direction' of the observation is 0, which is outside its space"),
    ],
)
def test_a_value_that_a_network_would_misread_is_named(name: str, value: object, said: str) -> None:
    env = PackObservations(Grid())
    raw = env.env.reset(seed=0)[0] | {name: value}
    with pytest.raises(ValueError, match=said):
        env.observation(raw)


def test_two_parts_of_one_name_are_refused() -> None:
    number = spaces.Box(0.0, 1.0, (1,))
    with pytest.raises(UnsupportedSpaceError, match=r"several parts named a\.b: .*rename a key"):
        packed_space(spaces.Dict({"a.b": number, "a": spaces.Dict({"b": number})}))


@pytest.mark.parametrize("vectorization", ["sync", "async"])
@pytest.mark.processes
@pytest.mark.usefixtures("forked")
def test_vectors_give_the_same_rows(vectorization: str) -> None:
    env = EnvConfig.model_validate({"make": f"{MODULE}:Grid", "vectorization": vectorization})
    vector = copies_of(env, num_envs=2, source_dir=None, chosen=lambda said: None)
    try:
        rows = begun(vector, [3, 4]).copy()
        alone = [PackObservations(Grid()).reset(seed=seed)[0] for seed in (3, 4)]
    finally:
        vector.close()
    np.testing.assert_array_equal(rows, np.stack(alone))


def test_an_id_with_a_module_imports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import gymnasium\ngymnasium.register('Packed/Grid-v0', 'remuda.tests.environments.structured:Grid')\n"
    (tmp_path / "registers_a_grid.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)  # pyright: ignore[reportUnknownMemberType]
    env = make_single(EnvConfig(id="registers_a_grid:Packed/Grid-v0"), source_dir=None)
    assert packs(env.observation_space)
    with pytest.raises(EnvironmentBuildError, match="No module named 'nobodys_module'"):
        make_single(EnvConfig(id="nobodys_module:Packed/Grid-v0"), source_dir=None)


def test_env_spec_says_what_lies_where() -> None:
    config = EnvConfig(make=f"{MODULE}:Grid", vectorization="sync")
    told: Any = environment_spec(config, copies_of(config, num_envs=2, source_dir=None))
    told = told["observation_space"]
    assert [part["name"] for part in told["parts"]] == ["direction", "image", "place.0", "place.1", "switches"]
    assert told["unused_parts"] == ["mission"]
    assert told["text"].startswith("PackedSpace(direction: int64[], image: uint8[7, 7, 3]")
