"""Callbacks in serial runs: what they ask for is done once, also where a run is killed and resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from remuda.config.load import load_config
from remuda.config.schema import ExperimentConfig
from remuda.config.user_code import UserCodeError
from remuda.config.workers import CallbackConfig
from remuda.learner.callback import Callback
from remuda.logbook.series import Logged, read_series
from remuda.policy.files.checkpoint_file import CheckpointError
from remuda.runner.serial import Start
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.tests.callbacks import Notes
from remuda.tests.faults.sizes import LONG
from remuda.tests.logbook.event_reader import curves, histograms
from remuda.tests.runner.killing import Killer, run_to_its_death
from remuda.tests.runner.runs import run_tiny, tiny_config
from remuda.tests.runner.several import several_config
from remuda.training.journal import RunJournal
from remuda.training.snapshot import CallbacksSnapshot

EVALUATIONS = 3
EXAMPLES = Path(__file__).parents[2] / "examples"
RATE = 1e-3


def noted(user: Path, *overrides: str) -> ExperimentConfig:
    """A run that its callback ends after some evaluations."""
    named = [{"make": "remuda.tests.callbacks:Notes", "kwargs": {"evaluations": EVALUATIONS}}]
    return tiny_config(user, f"callbacks={json.dumps(named)}", *overrides)


def journaled(folder: RunFolder) -> CallbacksSnapshot:
    journal = RunJournal(folder.journal)
    found = journal.read()
    journal.close()
    assert found is not None
    return found.snapshot.experiment.callbacks


def told(folder: RunFolder) -> dict[str, Any]:
    return cast("dict[str, Any]", msgspec.msgpack.decode(journaled(folder).states["Notes"]))


def test_what_a_callback_asks_for_is_done_and_outlives_a_resume(user: Path, tmp_path: Path) -> None:
    result = run_tiny(noted(user), Start(tmp_path / "run"))
    folder = RunFolder(result.run_dir)
    assert (result.reason, result.failed) == ("callback Notes: enough", False)
    assert result.counters.env_step < 400
    log = folder.serial_evaluator_log.read_text()
    assert "callback Notes: learner.learning_rate is 0.0005 from env_step 0 on" in log
    assert "the run ends: callback Notes: enough" in log
    shown = curves(folder.serial_tb)
    assert [value for _, value in shown["callback_step/count"]] == [1.0, 2.0, 3.0]
    spread = histograms(folder.serial_tb)["callback_histogram_iter/returns"]
    assert [sum(each.counts) for _, each in spread] == [4.0] * 3, "the returns of each evaluation"
    series = [each for each in read_series(folder.series) if isinstance(each, Logged)]
    assert [each.numbers for each in series] == [{"count": 1.0}, {"count": 2.0}, {"count": 3.0}]
    evaluated = [record.env_step for record in CheckpointIndex(folder.ckpt).records if record.reward is not None]
    assert set(evaluated) <= {step for step, _ in shown["callback_step/count"]}
    (_, changed), *_ = reversed(journaled(folder).changes["learner.learning_rate"])
    again = run_tiny(tiny_config(user, "evaluator.interval_env_steps=100000"), Start(tmp_path / "run", "resume"))
    assert again.counters.train_iter > result.counters.train_iter
    learned = curves(folder.serial_tb)["learner_iter/cur_lr_avg"]
    assert learned[0][1] == pytest.approx(RATE / 2)
    since = [value for step, value in learned if step > result.counters.train_iter + 10]
    assert since == pytest.approx([changed] * len(since)), "a resumed run learns with the changed rate"
    assert since


def test_killed_anywhere_each_event_counts_once(user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, killer = noted(user), Killer(at=0)
    run_to_its_death(config, tmp_path / "whole", killer, monkeypatch)
    moments = [*range(killer.moments)] if LONG else [12, *range(25, killer.moments, 45)]
    resumed = 0
    for at in moments:
        root = tmp_path / f"killed-{at}"
        run_to_its_death(config, root, Killer(at), monkeypatch)
        folder = RunFolder(root)
        try:
            result = run_tiny(config, Start(root, "resume"))
        except CheckpointError:  # there was none yet
            continue
        resumed += 1
        assert result.reason == "callback Notes: enough", at
        events = [each for each in told(folder)["told"] if each.startswith("evaluation")]
        assert len(events) == len(set(events)), f"{at}: an evaluation counted twice"
        assert len(events) >= EVALUATIONS, at
        index = CheckpointIndex(folder.ckpt).records
        kept = {f"evaluation {record.train_iter}" for record in index if record.reward is not None}
        assert kept <= set(events), f"{at}: an evaluation was not told"
        changes = journaled(folder).changes["learner.learning_rate"]
        assert [value for _, value in changes] == [RATE / 2 ** (1 + number) for number in range(len(events))], at
    assert resumed > len(moments) / 2


def test_objects_and_classes_are_taken_from_a_program(user: Path, tmp_path: Path) -> None:
    notes = Notes(evaluations=2)
    given = (notes, Notes)
    result = run_tiny(tiny_config(user), Start(tmp_path / "run", callbacks=given))
    assert result.reason == "callback Notes: enough"
    assert notes.told[0] == "start"
    assert notes.told[-1] == "end callback Notes: enough"
    assert notes.episodes == result.counters.episode
    assert set(journaled(RunFolder(result.run_dir)).states) == {"Notes", "Notes 2"}


def test_each_of_several_policies_has_callbacks_of_its_own(tmp_path: Path) -> None:
    policies: list[str] = []

    class Which(Callback):
        def on_start(self, event: object, run: Any) -> None:
            policies.append(run.policy)

    run_tiny(several_config(tmp_path), Start(tmp_path / "run", callbacks=(Which,)))
    assert sorted(policies) == sorted(several_config(tmp_path).policies)
    with pytest.raises(UserCodeError, match="give classes"):
        run_tiny(several_config(tmp_path), Start(tmp_path / "other", callbacks=(Which(),)))
    assert not (tmp_path / "other").exists()


def test_the_example_ends_where_returns_no_longer_rise(tmp_path: Path) -> None:
    loaded = load_config(EXAMPLES / "callback.yaml", overrides=["evaluator.interval_env_steps=1024", "seed=1"])
    config = loaded.config.model_copy(
        update={"callbacks": (CallbackConfig(make="callback:Plateau", kwargs={"evaluations": 1, "halvings": 1}),)}
    )
    result = run_tiny(config, Start(tmp_path / "run"))
    assert result.reason.startswith("callback Plateau: the mean return of 1 evaluations no longer rises")
    assert [value for _, value in journaled(RunFolder(result.run_dir)).changes["learner.learning_rate"]] == [1.5e-4]
