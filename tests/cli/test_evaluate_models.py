"""`remuda evaluate` on model/, where the environment is gone, in a window and on film."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.tests.cli.terminal import Ended, Terminal
from remuda.tests.environments import painter
from remuda.tests.environments.painter import LENGTH
from remuda.tests.environments.test_video import pictures
from remuda.tests.patience import HANG_S, until
from remuda.tests.policy.files.exported import CASES, leave_behind

pytestmark = pytest.mark.xdist_group("a tiny run")


@pytest.fixture
def painted(tiny_run: Path, tmp_path: Path) -> Path:
    """A run whose environment paints: its policy was trained elsewhere, on observations of the same shape."""
    copy = tmp_path / "painted"
    shutil.copytree(tiny_run, copy)
    (tmp_path / "source").mkdir()
    shutil.copy(painter.__file__, tmp_path / "source" / "brush.py")  # tests are no part of the installed package
    mend(copy, {"make": "brush:WidePainter"}, source_dir=str(tmp_path / "source"))
    return copy


def mend(run: Path, env: dict[str, object], **settings: object) -> None:
    """Change the run's config.json, as its owner would."""
    path = run / "config.json"
    content = json.loads(path.read_text()) | settings
    content["env"] |= env
    path.write_text(json.dumps(content))


def test_the_film_is_in_the_folder_and_shows_every_step(terminal: Terminal, painted: Path, tmp_path: Path) -> None:
    ended = terminal.remuda("evaluate", painted, "-n", 2, "-d", "--record", tmp_path / "films", "-i", 0)
    assert ended.code == 0, ended.err
    names = [tmp_path / "films" / f"iteration_0_episode_{number}.mp4" for number in range(2)]
    assert [line for line in ended.out.splitlines() if line.startswith("recorded")] == [
        f"recorded {name}" for name in names
    ]
    for name in names:
        assert len(pictures(name)) == LENGTH + 1


def remuda_in_a_process(*arguments: object, **environment: str) -> Ended:
    """A process of its own, since a window's library never lets go."""
    command = [sys.executable, "-m", "remuda.cli", *map(str, arguments)]
    inherited = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, env={**inherited, **environment})
    return Ended(done.returncode, done.stdout, done.stderr)


def interrupted(folder: Path, *arguments: object) -> Ended:
    """Ctrl-C on a terminal, which all its processes hear, once an episode is over."""
    out, err = folder / "out.txt", folder / "err.txt"
    command = [sys.executable, "-m", "remuda.cli", *map(str, arguments)]
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(command, stdout=stdout, stderr=stderr, start_new_session=True)
    with process:
        until(lambda: process.poll() is not None or "[EVALUATOR]" in out.read_text(), "an episode")
        assert process.poll() is None, err.read_text()
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(HANG_S)
    return Ended(code, out.read_text(), err.read_text())


@pytest.mark.processes
@pytest.mark.usefixtures("forked")
def test_ctrl_c_sums_up_what_is_over(tiny_run: Path, tmp_path: Path) -> None:
    ended = interrupted(tmp_path, "evaluate", tiny_run, "-n", 100_000, "-nr")
    assert ended.code == 0, ended.err
    assert ended.err == ""
    *lines, said = ended.out[: ended.out.index("\n\n")].splitlines()
    over = sum(line.startswith("[EVALUATOR]") for line in lines)
    assert said == f"interrupted: {over} of 100000 episodes were finished"
    assert f"| {over} " in ended.out


@pytest.mark.processes
@pytest.mark.usefixtures("forked")
def test_a_display_that_is_not_there_is_explained(tmp_path: Path) -> None:
    """As after a session that ended: SDL then draws where nobody sees it, at the pace of somebody who looks."""
    leave_behind(CASES["dqn"], tmp_path)
    display = {"DISPLAY": ":4711", "SDL_VIDEODRIVER": "x11,offscreen"}  # its own order, without what else this host has
    ended = remuda_in_a_process("evaluate", tmp_path / "model", "-n", 1, "-d", **display)
    assert ended.code == 2
    assert "CartPole-v1 cannot be shown: no window can be opened on the display :4711\nWith -nr the" in ended.err


@pytest.mark.parametrize("option", [("--follow",), ("-i", "best")])
def test_a_model_is_one_policy(terminal: Terminal, tiny_run: Path, option: tuple[str, ...]) -> None:
    ended = terminal.remuda("evaluate", tiny_run / "model", *option)
    assert (ended.code, ended.out) == (2, "")
    assert f"is a model/ folder with one policy; for {option[0]} give the run folder" in ended.err
