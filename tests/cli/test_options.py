"""What the shared options mean together, tried through a verb that uses all of them."""

from __future__ import annotations

from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Annotated

import pytest
import typer

from remuda.cli import app as app_module
from remuda.cli.errors import InputError
from remuda.cli.options import RunOptions, print_unused, resolve_beginning, resolve_run_dir, with_run_options
from remuda.client.beginning import ResolvedRun
from remuda.storage.existing_folder import OnExists
from remuda.tests.cli.terminal import Ended, Terminal
from remuda.tests.config.files import SMALL, write


class Starter:
    """A verb with every shared option and one of its own; keeps what it was asked for."""

    def __init__(self, terminal: Terminal, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.asked: ResolvedRun | None = None
        self.own = False
        self._terminal = terminal
        self._config = write(folder, SMALL)
        app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)

        @app.command()
        @with_run_options
        def verb(run: RunOptions, own: Annotated[bool, typer.Option("--own")] = False) -> None:
            self.asked, self.own = run.resolved(), own

        self.verb = verb
        monkeypatch.setattr(app_module, "app", app)
        monkeypatch.chdir(folder)
        monkeypatch.delenv("REMUDA_RUNS_DIR", raising=False)

    def start(self, *options: object) -> ResolvedRun:
        ended = self._terminal.remuda(self._config, *options)
        assert (ended.code, ended.err) == (0, "")
        assert self.asked is not None
        return self.asked

    def refused(self, *options: object) -> Ended:
        ended = self._terminal.remuda(self._config, *options)
        assert (ended.code, ended.out) == (2, "")
        assert self.asked is None
        return ended


@pytest.fixture
def starter(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Starter:
    return Starter(terminal, monkeypatch, tmp_path)


class TestShared:
    def test_every_field_is_an_option_the_verbs_own_before_them(self, starter: Starter) -> None:
        names = list(signature(starter.verb).parameters)
        assert names == ["config", "own", *(field.name for field in fields(RunOptions) if field.name != "config")]

    def test_the_verb_has_its_own_beside_them(self, starter: Starter) -> None:
        assert starter.start("--own", "--seed", 3).loaded.config.seed == 3
        assert starter.own
        starter.start()
        assert not starter.own

    def test_what_a_verb_adds_beats_what_was_set(self, tmp_path: Path) -> None:
        options = RunOptions(config=write(tmp_path, SMALL), sets=["name=one", "seed=4"])
        config = options.resolved("name=two").loaded.config
        assert (config.name, config.seed) == ("two", 4)


class TestRunFolder:
    def test_is_named_like_the_experiment_unless_told_otherwise(self, starter: Starter, tmp_path: Path) -> None:
        assert starter.start().run_dir == tmp_path / "runs" / "small"
        assert starter.start("--set", "name=other").run_dir == tmp_path / "runs" / "other"
        assert starter.start("--run-id", "seven").run_dir == tmp_path / "runs" / "seven"
        assert starter.start("--runs-dir", "/data", "--run-id", "seven").run_dir == Path("/data/seven")
        assert starter.start("--run-dir", "here/run").run_dir == tmp_path / "here" / "run"

    def test_runs_dir_comes_from_the_environment(self, starter: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("REMUDA_RUNS_DIR", "/elsewhere")
        assert starter.start().run_dir == Path("/elsewhere/small")
        assert starter.start("--runs-dir", "/data").run_dir == Path("/data/small"), "the option beats it"
        assert starter.start("--run-dir", "/data/x").run_dir == Path("/data/x")

    def test_named_twice_is_refused(self, starter: Starter) -> None:
        assert "--run-dir" in starter.refused("--run-dir", "a", "--run-id", "b").err

    @pytest.mark.parametrize("run_id", ["", "..", "a/b", "a\0"])
    def test_an_id_is_one_folder(self, run_id: str) -> None:
        with pytest.raises(InputError, match="use --run-dir"):
            resolve_run_dir(None, run_id, runs_dir=Path("runs"), name="small")


class TestOnExists:
    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ([], "error"),
            (["--resume"], "resume"),
            (["--force"], "force"),
            (["--on-exists", "rename"], "rename"),
            (["--on-exists", "resume", "--resume"], "resume"),
        ],
    )
    def test_is_one_wish(self, starter: Starter, options: list[str], expected: OnExists) -> None:
        assert starter.start(*options).on_exists == expected

    @pytest.mark.parametrize(
        "options", [["--resume", "--force"], ["--resume", "--on-exists", "rename"], ["--force", "--on-exists", "error"]]
    )
    def test_contradictions_are_refused(self, starter: Starter, options: list[str]) -> None:
        assert "give only one of --resume, --force and --on-exists" in starter.refused(*options).err


def test_inference_needs_a_trained_policy() -> None:
    with pytest.raises(InputError, match="--inference needs a trained policy: add --initialize-from"):
        resolve_beginning(None, inference=True, resume=False)
    assert resolve_beginning(None, inference=True, resume=True) == ["learner.inference=true"]


def test_a_run_begins_with_old_weights_or_continues() -> None:
    with pytest.raises(InputError, match=r"give only one of --resume .* and --initialize-from"):
        resolve_beginning(Path("old"), inference=False, resume=True)


def test_a_setting_without_effect_is_named(starter: Starter, capsys: pytest.CaptureFixture[str]) -> None:
    print_unused(starter.start("--set", "learner.segments_per_update=4"))
    told = capsys.readouterr().err
    assert told == "warning: learner.segments_per_update is 4 and has no effect: dqn learns from a replay\n"
