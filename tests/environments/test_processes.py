"""Environments in processes of their own do what objects do, and fail, stop and die in the open."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from remuda.config.environment import EnvConfig
from remuda.environments.copies import make_copies
from remuda.environments.errors import BrokenEnvironmentError, RestartLimit
from remuda.environments.lanes import AGENT, Group
from remuda.environments.make import make_single
from remuda.environments.processes import ProcessCopies
from remuda.tests.environments.stepping import begun, copies_of, stepped
from remuda.tests.patience import until_gone

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("forked")]

MODULE = """
    import ctypes, os, sys, time
    import numpy as np
    from remuda.tests.environments.scripted import ScriptedEnv

    class Env(ScriptedEnv):
        '''Action 2 does `trouble`.'''
        def __init__(self, trouble):
            super().__init__(longest=5)
            self.trouble = trouble
        def step(self, action):
            if action == 2 and self.trouble == "raise":
                raise RuntimeError("the simulator broke")
            if action == 2 and self.trouble == "die":
                os._exit(7)
            if action == 2 and self.trouble == "crash":
                ctypes.string_at(0)
            if self.trouble == "print":
                print("a step", "in two lines", sep="\\n")
                print("a warning", file=sys.stderr)
            if action == 2 and self.trouble == "hang":
                time.sleep(1000)
            return super().step(action)

    def make_env(trouble="none"):
        return Env(trouble)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", [*sys.path])  # users' folders are put in front
    (tmp_path / "slice_env.py").write_text(textwrap.dedent(MODULE))
    yield tmp_path
    sys.modules.pop("slice_env", None)


def vector_of(folder: Path, num_envs: int, processes: int, trouble: str = "none") -> ProcessCopies:
    config = EnvConfig(make="slice_env:make_env", kwargs={"trouble": trouble})
    env = make_single(config, source_dir=str(folder))
    return ProcessCopies(
        config,
        {"": Group((AGENT,), env.observation_space, env.action_space)},
        num_envs=num_envs,
        processes=processes,
        source_dir=str(folder),
        limit=RestartLimit(0, print),
    )


def children() -> list[psutil.Process]:
    """Processes of environments; others of this process come and go meanwhile."""
    found: list[psutil.Process] = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "remuda.environments.process" in child.cmdline():
                found.append(child)
    return found


def test_what_they_print_is_printed_here(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vector = vector_of(folder, 3, 2, "print")
    try:
        vector.reset([1, 2, 3])
        stepped(vector, np.zeros(3, np.int64))
        assert capsys.readouterr() == ("a step\nin two lines\n" * 3, "a warning\n" * 3)
    finally:
        vector.close()


def test_slices_of_any_size_are_what_objects_in_one_process_are(folder: Path) -> None:
    config = EnvConfig(make="slice_env:make_env", vectorization="sync")
    sync = copies_of(config, num_envs=5, source_dir=str(folder))
    vector = vector_of(folder, 5, 2)
    try:
        assert len(children()) == 2
        for seeds in ([1, 2, 3, 4, 5], None):
            np.testing.assert_array_equal(begun(vector, seeds), begun(sync, seeds))
            for step in range(20):
                actions = np.arange(5) % 2 + step % 2
                for got, expected in zip(stepped(vector, actions)[:4], stepped(sync, actions)[:4], strict=True):
                    assert got.dtype == expected.dtype
                    np.testing.assert_array_equal(got, expected)
    finally:
        vector.close()
    assert not children()


def test_what_an_environment_raises_surfaces_with_its_traceback(folder: Path) -> None:
    vector = vector_of(folder, 4, 2, "raise")
    begun(vector, [1, 2, 3, 4])
    with pytest.raises(
        BrokenEnvironmentError, match=r"environment 3 .*: RuntimeError: the simulator broke; "
    ) as caught:
        stepped(vector, np.array([0, 0, 0, 2]))
    assert "slice_env.py" in "".join(caught.value.__notes__)
    vector.close()
    assert not children()


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_a_process_that_ends_is_an_error_that_says_how(folder: Path, how: str) -> None:
    vector = vector_of(folder, 4, 2, "die")
    begun(vector, [1, 2, 3, 4])
    if how == "kill":
        for child in children():
            child.send_signal(signal.SIGKILL)
    way = "signal 9" if how == "kill" else "exit code 7"
    with pytest.raises(
        BrokenEnvironmentError, match=f"environment [01] .* its process ended unexpectedly .{way}.; it is not"
    ):
        stepped(vector, np.array([2, 0, 0, 0]))
    vector.close()
    assert not children()


def test_a_crash_prints_the_stack_that_led_to_it(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    vector = vector_of(folder, 2, 1, "crash")
    begun(vector, [1, 2])
    with pytest.raises(BrokenEnvironmentError, match=r"its process ended unexpectedly \(signal 11\)"):
        stepped(vector, np.array([0, 2]))
    vector.close()
    errors = capfd.readouterr().err
    assert "Segmentation fault" in errors
    assert "slice_env.py" in errors


OWNER = """
    import sys, time
    import numpy as np
    from remuda.config.schema import EnvConfig
    from remuda.tests.environments.stepping import begun, copies_of, stepped
    config = EnvConfig(make="slice_env:make_env", kwargs={"trouble": "hang"}, vectorization="async")
    vector = copies_of(config, num_envs=2, source_dir=sys.argv[1])
    begun(vector, [1, 2])
    print("ready", flush=True)
    if sys.argv[2] == "step":
        stepped(vector, np.full(2, 2))
    time.sleep(1000)
"""


@pytest.mark.parametrize("doing", ["step", "nothing"])
def test_no_orphan_is_left_when_the_owner_is_killed(folder: Path, doing: str) -> None:
    """Also in the middle of a step that never ends."""
    arguments = [sys.executable, "-c", textwrap.dedent(OWNER), str(folder), doing]
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"ready\n"
        orphans = psutil.Process(owner.pid).children(recursive=True)
        assert orphans
        owner.kill()
    until_gone(orphans)  # who inherits them may let them be zombies


AGENTS = """
from remuda.tests.environments.leaving import Leaving

def make():
    return Leaving([3, 2, 7])
"""


def test_several_agents_in_processes_are_what_they_are_as_objects(folder: Path) -> None:
    (folder / "leaving_env.py").write_text(AGENTS)
    groups = {"odd": ("a1",), "even": ("a0", "a2")}
    found: list[list[list[float]]] = []
    for way in ("sync", "async"):
        settings = {"kind": "pettingzoo", "make": "leaving_env:make", "vectorization": way, "max_episode_steps": 5}
        copies = make_copies(EnvConfig.model_validate(settings), groups, num_envs=5, source_dir=str(folder))
        with closing(copies):
            copies.reset([1, 2, 3, 4, 5])
            seen = list[list[float]]()
            for number in range(20):
                taken = copies.step([np.full(len(lanes), number % 3) for lanes in copies.lanes])
                seen.append([taken, *copies.begun])
                for lanes in copies.lanes:
                    arrays = (lanes.observations, lanes.reward, lanes.terminated, lanes.truncated, lanes.over)
                    seen.append([float(value) for array in arrays for value in array.flat])
        found.append(seen)
        assert copies.vectorization == way
    assert found[0] == found[1]
    sys.modules.pop("leaving_env", None)
