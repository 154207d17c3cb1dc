"""The environment of a run elsewhere: built again, out of its pickle where that was allowed, or explained."""

from __future__ import annotations

import pickle  # noqa: TID251 - vars.pkl as somebody else may have written it
from pathlib import Path

import pytest

from remuda.config.environment import EnvConfig
from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.rebuild import rebuild
from remuda.environments.spaces import PackObservations
from remuda.storage.env_files import pickle_environment, unpickle_environment
from remuda.tests.environments.painter import Painter

GONE = EnvConfig(make="gone_for_good:make")


def test_where_it_cannot_be_it_is_explained_what_else_there_is(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentBuildError) as caught:
        rebuild(GONE, source_dir="/there", run_dir=tmp_path)
    first, *hints = str(caught.value).splitlines()
    assert first.startswith(
        "the run's environment cannot be built here: env.make = 'gone_for_good:make' (folder /there"
    )
    assert [hint[:24] for hint in hints] == ["- If its module has move", "- In Python you can use "]
    (tmp_path / "env_spec.json").touch()
    assert pickle_environment(tmp_path / "vars.pkl", Painter()) is None
    with pytest.raises(EnvironmentBuildError, match=r"env_spec\.json[^$]*vars\.pkl: use it with --trust-code \(in"):
        rebuild(GONE, source_dir=None, run_dir=tmp_path)


def test_the_pickled_copy_serves_where_it_is_trusted(tmp_path: Path) -> None:
    assert pickle_environment(tmp_path / "vars.pkl", Painter("rgb_array")) is None
    env = rebuild(GONE, source_dir=None, run_dir=tmp_path, trust_code=True)
    assert isinstance(env, Painter)
    assert isinstance(
        rebuild(GONE, source_dir=None, run_dir=tmp_path, render_mode="rgb_array", trust_code=True), Painter
    )
    with pytest.raises(EnvironmentBuildError, match="made for render_mode rgb_array, not human"):
        rebuild(GONE, source_dir=None, run_dir=tmp_path, render_mode="human", trust_code=True)


def test_a_pickled_copy_of_a_class_that_moved_is_read(tmp_path: Path) -> None:
    former = pickle.dumps({"env": PackObservations}, protocol=0)
    (tmp_path / "vars.pkl").write_bytes(former.replace(b"remuda.environments.spaces", b"remuda.environments.packing"))
    assert unpickle_environment(tmp_path / "vars.pkl") is PackObservations


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "No such file"), (b"no pickle", "UnpicklingError"), (pickle.dumps([1]), "no environment under `env`")],
)
def test_a_pickle_that_is_of_no_use_says_both_failures(tmp_path: Path, content: bytes | None, said: str) -> None:
    if content is not None:
        (tmp_path / "vars.pkl").write_bytes(content)
    with pytest.raises(EnvironmentBuildError, match=said) as caught:
        rebuild(GONE, source_dir=None, run_dir=tmp_path, trust_code=True)
    assert "gone_for_good" in str(caught.value)


def test_it_is_built_as_the_config_says(tmp_path: Path) -> None:
    env = EnvConfig(id="CartPole-v1", max_episode_steps=5)
    built = rebuild(env, source_dir=None, run_dir=tmp_path, render_mode="rgb_array")
    assert built.spec is not None
    assert (built.spec.max_episode_steps, built.render_mode) == (5, "rgb_array")
    built.close()  # what draws for it may hold a connection to the system
