"""A resumed run keeps its values where a default has become another, unless somebody gives the setting."""

from __future__ import annotations

from pathlib import Path

from remuda.client.resuming import with_former_defaults
from remuda.config.dump import write_configs
from remuda.config.load import LoadedConfig, Origin, load_config, load_settings
from remuda.storage.run_folder import RunFolder

SAC = {"name": "a", "env": {"id": "CartPole-v1"}, "policy": {"type": "sac"}}
OLD = {"batch_size": 64, "learning_rate": 1e-3, "max_grad_norm": 10.0}
"""Of a version in which SAC had the schema's defaults."""


def begun(run_dir: Path, **settings: object) -> None:
    """The files of a run that was begun by that version; `settings` were given."""
    now = load_settings({**SAC, **settings}, folder=Path())
    given = settings.get("learner")
    old = {key: value for key, value in OLD.items() if not isinstance(given, dict) or key not in given}
    learner = now.config.learner.model_copy(update=old)
    origins: dict[str, Origin] = {key: origin for key, origin in now.provenance.items() if origin != "algorithm"}
    write_configs(run_dir, now.config.model_copy(update={"learner": learner}), origins)


def resumed(run_dir: Path, **settings: object) -> LoadedConfig:
    return with_former_defaults(load_settings({**SAC, **settings}, folder=Path()), run_dir)


def test_what_nobody_gives_stays(tmp_path: Path) -> None:
    begun(tmp_path)
    again = resumed(tmp_path)
    assert {key: getattr(again.config.learner, key) for key in OLD} == OLD
    assert again.notes == (
        "defaults as when the run began: learner.batch_size 64 (now 256), learner.learning_rate 0.001 (now 0.0003), "
        "learner.max_grad_norm 10.0 (now null)",
    )
    assert again.provenance["learner.batch_size"] == "default"


def test_what_is_given_now_wins(tmp_path: Path) -> None:
    begun(tmp_path)
    learner = resumed(tmp_path, learner={"batch_size": 128}).config.learner
    assert (learner.batch_size, learner.max_grad_norm) == (128, 10.0)


def test_what_was_given_before_and_is_not_now_is_a_default_again(tmp_path: Path) -> None:
    begun(tmp_path, learner={"batch_size": 512})
    learner = resumed(tmp_path).config.learner
    assert (learner.batch_size, learner.max_grad_norm) == (256, 10.0)


def test_without_a_record_of_what_was_given_everything_stays(tmp_path: Path) -> None:
    begun(tmp_path, learner={"batch_size": 512})
    RunFolder(tmp_path).formatted_total_config.unlink()
    assert resumed(tmp_path).config.learner.batch_size == 512


def test_the_config_of_the_run_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    begun(tmp_path)
    loaded = load_config(RunFolder(tmp_path).config_json)
    assert with_former_defaults(loaded, tmp_path) is loaded
    assert loaded.config.learner.batch_size == 64


def test_a_run_that_is_not_there_and_one_of_another_algorithm_give_nothing(tmp_path: Path) -> None:
    assert resumed(tmp_path).config.learner.batch_size == 256
    begun(tmp_path)
    assert resumed(tmp_path, policy={"type": "td3"}).config.learner.batch_size == 256


def test_each_of_several_policies_keeps_its_own(tmp_path: Path) -> None:
    game: dict[str, object] = {
        "env": {"kind": "pettingzoo", "make": "game:make"},
        "policy": {"type": "dqn"},
        "policies": {"fox": {"agents": ["*"], "policy": {"type": "sac"}, "learner": {"learning_rate": 0.5}}},
    }
    now = load_settings({**SAC, **game}, folder=Path())
    fox = now.config.policies["fox"]
    old = fox.model_copy(update={"learner": fox.learner.model_copy(update=OLD)})
    write_configs(tmp_path, now.config.model_copy(update={"policies": {"fox": old}}), {})
    learner = resumed(tmp_path, **game).config.policies["fox"].learner
    assert (learner.batch_size, learner.max_grad_norm, learner.learning_rate) == (64, 10.0, 0.5)
