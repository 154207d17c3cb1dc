"""`remuda evaluate`: plays exactly the checkpoint that was asked for, and says what came out."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from remuda.cli import playing
from remuda.cli.chosen_policy import named_checkpoint
from remuda.cli.errors import InputError
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.tests.cli.terminal import Ended, Terminal
from remuda.tests.imports import imported_by
from remuda.wire.messages import CheckpointRecord

pytestmark = pytest.mark.xdist_group("a tiny run")


def played(ended: Ended) -> dict[str, object]:
    assert ended.code == 0, ended.err
    content: dict[str, object] = json.loads(ended.out)
    return content


def test_a_line_per_episode_and_a_table(terminal: Terminal, tiny_run: Path) -> None:
    ended = terminal.remuda("evaluate", tiny_run, "-n", 5, "-nr", "-d")
    assert ended.code == 0, ended.err
    first, *lines = ended.out.splitlines()
    last = CheckpointIndex(tiny_run / "ckpt").last
    assert last is not None
    assert first.startswith(f"checkpoint {tiny_run}/ckpt/{last.file} (train_iter {last.train_iter}, ")
    numbers = [line.rsplit(" ", 1)[1] for line in lines if line.startswith("[EVALUATOR] env ")]
    assert numbers == ["1", "2", "3", "4", "5"]
    for column in ("episodes", "reward_mean", "reward_std", "reward_max", "reward_min", "length_mean", "side_mean"):
        assert f"| {column} " in ended.out


def test_the_same_seed_plays_the_same_episodes(terminal: Terminal, tiny_run: Path) -> None:
    asked = ("evaluate", tiny_run, "-n", 6, "-nr", "--json", "--seed")
    one, two, other = (terminal.remuda(*asked, seed).out for seed in (5, 5, 6))
    assert one == two
    assert one != other


def test_episodes_end_after_the_length_that_is_asked_for(terminal: Terminal, tiny_run: Path) -> None:
    content = played(terminal.remuda("evaluate", tiny_run, "-n", 2, "-nr", "-d", "--length", 3, "--json"))
    assert (content["length_mean"], content["length_max"]) == (3, 3)


def test_without_a_display_it_plays_on(terminal: Terminal, tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    ended = terminal.remuda("evaluate", tiny_run, "-n", 2)
    assert ended.code == 0
    assert ended.err.count("no display: ") == 1


def test_a_checkpoint_outside_the_index_is_found(tmp_path: Path) -> None:
    """index.json lists the newest 20,000."""
    unlisted = tmp_path / "iteration_100.pth.tar"
    unlisted.touch()
    assert named_checkpoint(tmp_path, "100") == (unlisted, None)


def test_of_many_checkpoints_the_nearest_are_listed(tmp_path: Path) -> None:
    index = CheckpointIndex(tmp_path)
    for train_iter in range(0, 2000, 100):
        index.add(CheckpointRecord(train_iter, 0, 1.0, None, f"iteration_{train_iter}.pth.tar", "0" * 64, ""))
    with pytest.raises(InputError) as refused:
        named_checkpoint(tmp_path, "651")
    listed = "there are: 0, 400, 500, 600, 700, 800, 900, 1900, and others"
    assert f"{listed} (`ls {tmp_path}` lists all 20), -1 (newest), best" in str(refused.value)


@pytest.mark.parametrize(("iteration", "said"), [("7", "there are: 0, "), ("newest", "-1 (newest), best, and")])
def test_a_checkpoint_that_is_not_there(terminal: Terminal, tiny_run: Path, iteration: str, said: str) -> None:
    ended = terminal.remuda("evaluate", tiny_run, "-i", iteration)
    assert ended.code == 2
    assert said in ended.err
    assert "no display" not in ended.err, "it is not played at all"


def test_a_wrong_folder_is_said_before_torch_is_imported(tmp_path: Path) -> None:
    (tmp_path / "runs" / "my run").mkdir(parents=True)
    (tmp_path / "runs" / "my run" / "config.json").touch()
    program = (
        "import sys; from remuda.cli.__main__ import main; sys.argv = ['remuda', 'evaluate', 'runs']\n"
        "try: main()\nexcept SystemExit as error: assert error.code == 2"
    )
    assert not {"torch", "gymnasium"} & imported_by(program, cwd=tmp_path)


def test_ctrl_c_does_not_fall_between_counting_an_episode_and_showing_it() -> None:
    done: list[str] = []

    def count_and_show() -> None:
        with playing._ctrl_c_waits():  # pyright: ignore[reportPrivateUsage]
            done.append("counted")
            signal.raise_signal(signal.SIGINT)
            done.append("shown")
        done.append("too far")

    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            count_and_show()
        assert done == ["counted", "shown"]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, former)


@pytest.mark.parametrize("command", ["evaluate", "plot", "replay", "league"])
def test_a_run_at_an_address_is_to_be_copied_first(terminal: Terminal, command: str) -> None:
    ended = terminal.remuda(command, "s3://bucket/runs/x")
    assert (ended.code, ended.out) == (2, "")
    assert "copy the run" in ended.err
    assert "`remuda fetch s3://bucket/runs/x`" in ended.err


def test_a_folder_that_is_no_run(terminal: Terminal, tmp_path: Path) -> None:
    ended = terminal.remuda("evaluate", tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert "is not a run folder: it has no config.json" in ended.err
