"""A config gets the environment it asks for, or an error that says what to change."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
import pytest

from remuda.config.environment import EnvConfig
from remuda.environments.errors import EnvironmentBuildError, unbuildable
from remuda.environments.lanes import Copies
from remuda.environments.make import make_single
from remuda.environments.spaces import Array
from remuda.tests.environments.scripted import SameStepVector, ScriptedEnv
from remuda.tests.environments.stepping import begun, copies_of, stepped
from remuda.tests.environments.timers import quick
from remuda.tests.patience import HANG_S

CARTPOLE = EnvConfig(id="CartPole-v1")


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [*sys.path])  # users' folders are put in front
    register = cast(Any, gymnasium).register
    here = "remuda.tests.environments.scripted"
    register("Scripted-v0", f"{here}:ScriptedEnv")
    register("SameStep-v0", f"{here}:ScriptedEnv", vector_entry_point=f"{here}:SameStepVector")
    register("Sequence-v0", f"{here}:SequenceEnv")
    yield
    for name in ("Scripted-v0", "SameStep-v0", "Sequence-v0"):
        del gymnasium.registry[name]


def vector_of(env: EnvConfig, num_envs: int = 2, source_dir: str | None = None) -> Copies:
    return copies_of(env, num_envs=num_envs, source_dir=source_dir, timer=quick)


def test_auto_takes_the_native_class_and_what_it_can_take() -> None:
    vector = vector_of(EnvConfig(id="CartPole-v1", kwargs={"sutton_barto_reward": True}, max_episode_steps=7), 3)
    assert vector.vectorization == "native"
    begun(vector, [1, 2, 3])
    rewards: list[Array] = []
    dones: list[Array] = []
    for step in range(7):
        _, reward, terminated, truncated, _ = stepped(vector, np.full(3, step % 2))
        rewards.append(reward)
        dones.append(terminated | truncated)
    assert not np.any(rewards)  # sutton_barto_reward pays 0 until it falls
    assert np.all(dones[-1])
    assert not np.any(dones[:-1])


def test_auto_falls_back_to_sync_where_native_cannot_serve() -> None:
    assert vector_of(EnvConfig(id="Scripted-v0")).vectorization == "sync"
    ids_only = EnvConfig(id="SameStep-v0", kwargs={"longest": 3})  # the native class takes no such argument
    assert vector_of(ids_only).vectorization == "sync"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (EnvConfig(id="Scripted-v0", vectorization="native"), "Scripted-v0 has no vectorised class of its own"),
        (EnvConfig(make="m:f", vectorization="native"), r"env\.make returns single environments"),
        (
            EnvConfig(id="SameStep-v0", vectorization="native", kwargs={"longest": 3}),
            "the vectorised class of SameStep-v0 does not take longest",
        ),
        (EnvConfig(id="SameStep-v0", vectorization="native", max_episode_steps=5), "does not take max_episode_steps"),
    ],
)
def test_native_that_cannot_be_says_why(config: EnvConfig, reason: str) -> None:
    with pytest.raises(EnvironmentBuildError, match=reason):
        vector_of(config)


def test_another_autoreset_mode_is_refused_and_the_vector_closed() -> None:
    closed = SameStepVector.closed_count
    with pytest.raises(EnvironmentBuildError, match=r"NEXT_STEP.*set env.vectorization to sync"):
        vector_of(EnvConfig(id="SameStep-v0"))
    assert SameStepVector.closed_count == closed + 1
    assert vector_of(EnvConfig(id="SameStep-v0", vectorization="sync")).vectorization == "sync"


def test_sync_seeds_each_environment_as_it_would_be_alone() -> None:
    vector = vector_of(EnvConfig(id="CartPole-v1", vectorization="sync"), 3)
    observations = begun(vector, [11, 12, 13])
    for row, seed in enumerate((11, 12, 13)):
        alone, _ = make_single(CARTPOLE, source_dir=None).reset(seed=seed)
        np.testing.assert_array_equal(observations[row], alone)
    again = begun(vector, None)
    assert not np.array_equal(again, observations), "without seeds the random streams go on"


@pytest.mark.parametrize("vectorizing", ["single", "sync", "native"])
def test_the_longest_episode_is_truncated(vectorizing: str) -> None:
    if vectorizing == "single":
        env = make_single(EnvConfig(id="CartPole-v1", max_episode_steps=3), source_dir=None)
        env.reset(seed=0)
        endings = [env.step(step % 2)[2:4] for step in range(3)]
    else:
        config = EnvConfig.model_validate({"id": "CartPole-v1", "max_episode_steps": 3, "vectorization": vectorizing})
        vector = vector_of(config, 1)
        begun(vector, [0])
        endings = [(bool(s[2][0]), bool(s[3][0])) for s in (stepped(vector, np.array([t % 2])) for t in range(3))]
    assert endings == [(False, False), (False, False), (False, True)]


@pytest.mark.parametrize(("wrong", "hint"), [("cartpole-v1", "CartPole-v1"), ("MountainCr-v0", "MountainCar-v0")])
def test_an_unknown_id_names_the_nearest(wrong: str, hint: str) -> None:
    for build in (lambda: vector_of(EnvConfig(id=wrong)), lambda: make_single(EnvConfig(id=wrong), source_dir=None)):
        with pytest.raises(EnvironmentBuildError, match=f"env.id = '{wrong}'.*did you mean {hint}"):
            build()


def test_a_package_registers_the_ids_of_its_namespace(tmp_path: Path) -> None:
    """As MinAtar does, by a function that its metadata name."""
    about = tmp_path / "shelf-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[gymnasium.envs]\nShelf = shelf_games:register\n")
    (tmp_path / "shelf_games.py").write_text(
        "import gymnasium\n"
        "def register():\n"
        "    gymnasium.register('Shelf/Cart-v0', 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        assert make_single(EnvConfig(id="Shelf/Cart-v0"), source_dir=None).observation_space.shape == (4,)
        with pytest.raises(EnvironmentBuildError, match=r"did you mean Shelf/Cart-v0"):
            make_single(EnvConfig(id="Shelf/Card-v0"), source_dir=None)
    finally:
        del gymnasium.registry["Shelf/Cart-v0"]


def test_spaces_that_are_not_one_array_are_refused() -> None:
    with pytest.raises(EnvironmentBuildError, match=r"observation space Sequence.*FlattenObservation"):
        make_single(EnvConfig(id="Sequence-v0"), source_dir=None)


# --- env.make --------------------------------------------------------------------------------------------------------
def write_module(folder: Path, name: str, text: str = "") -> None:
    text = (
        text
        or """
        from remuda.tests.environments.scripted import ScriptedEnv

        def make_env(longest=5, render_mode=None):
            env = ScriptedEnv(longest=longest)
            env.render_mode = render_mode
            return env

        def make_list(): return []
        def make_trouble(): raise RuntimeError("no simulator licence")
    """
    )
    (folder / f"{name}.py").write_text(textwrap.dedent(text))


def test_a_function_gets_kwargs_time_limit_and_render_mode(tmp_path: Path) -> None:
    write_module(tmp_path, "given_env")
    config = EnvConfig(make="given_env:make_env", kwargs={"longest": 1000}, max_episode_steps=2)
    env = make_single(config, source_dir=str(tmp_path), render_mode="human")
    assert env.render_mode == "human"
    env.reset(seed=0)
    assert [env.step(0)[3] for _ in range(2)] == [False, True]
    assert vector_of(config, 2, str(tmp_path)).vectorization == "sync"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        ("nowhere:make_env", "module 'nowhere' cannot be imported: ModuleNotFoundError"),
        ("err_env:make_envs", "has no function 'make_envs'"),
        ("err_env:make_list", r"returned \[\], which is not a gymnasium.Env"),
        ("err_env:make_trouble", "cannot be built: RuntimeError: no simulator licence"),
        ("broken_env:make_env", "cannot be imported: SyntaxError"),
        ("json:make_env", "rename the module, if it is another one of that name"),
    ],
)
def test_errors_name_module_function_and_folder(tmp_path: Path, make: str, message: str) -> None:
    write_module(tmp_path, "err_env")
    write_module(tmp_path, "broken_env", "def make_env(:")
    with pytest.raises(EnvironmentBuildError, match=message) as caught:
        make_single(EnvConfig(make=make), source_dir=str(tmp_path))
    assert make in str(caught.value)
    if "cannot be imported" in message or "has no function" in message:
        assert str(tmp_path) in str(caught.value)


def test_a_module_of_an_id_that_raises_is_named_with_the_line(tmp_path: Path) -> None:
    """The command ended with a traceback."""
    write_module(tmp_path, "raising_env", "size = 1\nsize / 0\n")
    sys.path.insert(0, str(tmp_path))
    said = "env.id = 'raising_env:Big-v0': module 'raising_env' cannot be imported: ZeroDivisionError: division by zero"
    with pytest.raises(EnvironmentBuildError, match=rf"{said} in {tmp_path}/raising_env\.py, line 2, in <module>"):
        make_single(EnvConfig(id="raising_env:Big-v0"), source_dir=None)


def longest_of(folder: Path) -> int:
    env = make_single(EnvConfig(make="same_name:make_env"), source_dir=str(folder)).unwrapped
    assert isinstance(env, ScriptedEnv)
    return env.longest


def make_longest(longest: int, settings: str = "same_settings") -> str:
    return f"""
        from remuda.tests.environments.scripted import ScriptedEnv
        from {settings} import factor
        def make_env(): return ScriptedEnv(longest={longest} * factor)
    """


def test_a_worker_that_outlives_an_experiment_imports_the_next_ones_module(tmp_path: Path) -> None:
    for name, longest, factor in (("a", 11, 1), ("b", 222, 10)):
        (tmp_path / name).mkdir()
        write_module(tmp_path / name, "same_name", make_longest(longest))
        write_module(tmp_path / name, "same_settings", f"factor = {factor}")
    assert longest_of(tmp_path / "a") == 11
    assert longest_of(tmp_path / "b") == 2220, "another folder's module of the same name"
    assert longest_of(tmp_path / "a") == 11
    write_module(tmp_path / "a", "same_settings", "factor = 1000  # edited between two experiments")
    assert longest_of(tmp_path / "a") == 11_000


@pytest.mark.processes
def test_a_users_folder_with_files_named_like_our_packages_works(tmp_path: Path) -> None:
    """`buffer` and `learner` are folders of ours and files of the user's; each side gets its own."""
    write_module(tmp_path, "buffer", "WHOSE = 'the user'")
    write_module(tmp_path, "learner", "from buffer import WHOSE")
    write_module(
        tmp_path,
        "my_env",
        """
        import gymnasium
        import learner
        def make_env():
            assert learner.WHOSE == "the user"
            return gymnasium.make("CartPole-v1")
        """,
    )
    program = """
        import sys
        import remuda.buffer, remuda.learner
        from remuda.config.schema import EnvConfig
        from remuda.environments.copies import make_copies
        made = EnvConfig(make="my_env:make_env")
        copies = make_copies(made, {"": ("agent",)}, num_envs=2, source_dir=sys.argv[1])
        copies.reset([1, 2])
        print(copies.lanes[0].observations.shape, "torch" in sys.modules)
    """
    for folder in (tmp_path, Path(__file__).resolve().parents[2]):  # started from the user's folder, and from ours
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, "(2, 4) False\n"), done.stderr


@pytest.mark.parametrize(
    ("said", "extra"),
    [
        ('Box2D is not installed: run `pip install swig`, then `pip install "gymnasium[box2d]"`', "box2d"),
        ('MuJoCo is not installed, run `pip install "gymnasium[mujoco]"`', "mujoco"),
        ("pygame is not installed, run `pip install gymnasium[classic-control]`", "video"),
    ],
)
def test_a_package_that_is_missing_is_named_with_the_extra_that_brings_it(said: str, extra: str) -> None:
    error = unbuildable(EnvConfig(id="LunarLander-v3"), gymnasium.error.DependencyNotInstalled(said))
    assert str(error) == f"env.id = 'LunarLander-v3' needs packages that are missing: pip install 'remuda[{extra}]'"
