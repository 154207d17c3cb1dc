"""What is promised of a study: it stays in its folder, searches where results were good, and gives up what is worse."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.client.sweeps.space import Choices, FloatRange, IntRange, Pruning, Search, SearchedSetting
from remuda.client.sweeps.study import Study

SETTINGS = (
    SearchedSetting("learner.learning_rate", FloatRange(1e-4, 1e-1, log=True), "f:1"),
    SearchedSetting("policy.n_step", IntRange(1, 5), "f:2"),
    SearchedSetting("policy.hidden", Choices(([64], [32, 32])), "f:3"),
)


def search(**changed: object) -> Search:
    fields: dict[str, object] = {"trials": 30, "settings": SETTINGS, "sampler": "random"}
    return Search(**{**fields, **changed})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_settings_lie_in_their_ranges_and_lists_are_lists(tmp_path: Path) -> None:
    study = Study(tmp_path, "hills", search())
    for number in range(20):
        trial = study.ask()
        assert trial.number == number
        assert 1e-4 <= float(str(trial.settings["learner.learning_rate"])) <= 1e-1
        assert trial.settings["policy.n_step"] in (1, 2, 3, 4, 5)
        assert trial.settings["policy.hidden"] in ([64], [32, 32])


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    first = Study(tmp_path, "hills", search())
    asked = [first.ask() for _ in range(3)]
    first.report(0, 100, 5.0)
    first.tell(0, "complete", 7.5)
    first.tell(1, "failed")
    again = Study(tmp_path, "hills", search())
    assert [(one.number, one.state, one.value) for one in again.trials] == [
        (0, "complete", 7.5),
        (1, "failed", None),
        (2, "running", None),
    ]
    assert [one.settings for one in again.trials] == [one.settings for one in asked]
    fourth = again.ask()
    assert fourth.number == 3
    assert fourth.settings not in [one.settings for one in asked]  # it does not draw the same numbers again


def test_the_same_seed_draws_the_same(tmp_path: Path) -> None:
    drawn: list[object] = []
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        (tmp_path / folder).mkdir()
        study = Study(tmp_path / folder, "hills", search(seed=seed))
        drawn.append([study.ask().settings for _ in range(4)])
    assert drawn[0] == drawn[1] != drawn[2]


def test_another_space_is_refused(tmp_path: Path) -> None:
    Study(tmp_path, "hills", search()).ask()
    with pytest.raises(ValueError, match="was begun with another space"):
        Study(tmp_path, "hills", search(settings=SETTINGS[:2]))


def test_what_is_worse_after_as_many_steps_is_given_up(tmp_path: Path) -> None:
    study = Study(tmp_path, "hills", search(pruning=Pruning(50.0, after_trials=3, after_env_steps=200)))
    for value in (10.0, 20.0, 30.0):
        trial = study.ask()
        assert not study.report(trial.number, 200, value)  # nobody to compare with
        study.tell(trial.number, "complete", value)
    worse, better = study.ask(), study.ask()
    assert not study.report(worse.number, 100, -5.0)  # too soon
    assert study.report(worse.number, 200, 15.0)  # the median is 20
    assert not study.report(better.number, 200, 25.0)
    study.tell(worse.number, "pruned")
    told = study.trials[worse.number]
    assert (told.state, told.value) == ("pruned", 15.0)


def test_tpe_finds_a_hill_that_chance_seldom_finds(tmp_path: Path) -> None:
    """One setting, the best at 2e-3: half of the last twenty trials lie within a factor of two; a fifth by chance."""
    study = Study(tmp_path, "hills", search(trials=60, sampler="tpe", settings=SETTINGS[:1]))
    near = 0
    for number in range(60):
        trial = study.ask()
        rate = float(str(trial.settings["learner.learning_rate"]))
        study.tell(trial.number, "complete", -((max(rate / 2e-3, 2e-3 / rate) - 1.0) ** 2))
        near += number >= 40 and 1e-3 <= rate <= 4e-3
    assert near >= 10
    assert study.log_settings == ["learner.learning_rate"]


def test_importances_name_what_matters(tmp_path: Path) -> None:
    study = Study(tmp_path, "hills", search())
    for _ in range(60):
        trial = study.ask()
        study.tell(trial.number, "complete", float(str(trial.settings["policy.n_step"])))
    shares = study.importances()
    assert max(shares, key=lambda key: shares[key]) == "policy.n_step"
    assert sum(shares.values()) == pytest.approx(1.0)
    (tmp_path / "empty").mkdir()
    assert Study(tmp_path / "empty", "hills", search()).importances() == {}
