"""A resumed run keeps its values where a default has become another, unless somebody gives the setting."""

from __future__ import annotations

from pathlib import Path

from remuda.client.beginning import keep_former_defaults, size_request, with_former_settings, with_measured_sizes
from remuda.config.dump import write_configs
from remuda.config.load import LoadedConfig, Origin, load_settings
from remuda.deploy.sizes import Costs
from remuda.deploy.sizing import Measurement, SizeRequest

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
    return keep_former_defaults(load_settings({**SAC, **settings}, folder=Path()), run_dir)


def test_what_nobody_gives_stays(tmp_path: Path) -> None:
    begun(tmp_path)
    again = resumed(tmp_path)
    assert {key: getattr(again.config.learner, key) for key in OLD} == OLD
    assert again.notes == (
        "keeps the defaults from the start of the run: learner.batch_size 64 (now 256), "
        "learner.learning_rate 0.001 (now 0.0003), "
        "learner.max_grad_norm 10.0 (now null)",
    )
    assert again.provenance["learner.batch_size"] == "default"


def test_what_is_given_now_wins(tmp_path: Path) -> None:
    begun(tmp_path)
    learner = resumed(tmp_path, learner={"batch_size": 128}).config.learner
    assert (learner.batch_size, learner.max_grad_norm) == (128, 10.0)


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


US = 1e-6
ANSWER = Measurement(Costs(4, {1: 1_000 * US}, {1: 50 * US, 64: 50 * US}, {1: 10 * US, 2: 5 * US}))
AUTO = {"env": {"id": "CartPole-v1", "num_envs": "auto"}, "collector": {"count": "auto"}}


def loaded(**settings: object) -> LoadedConfig:
    return load_settings({"name": "a", **AUTO, **settings}, folder=Path())


def request(config: LoadedConfig) -> SizeRequest:
    found = size_request(config, serial=False)
    assert found is not None
    return found


def test_the_numbers_their_origin_and_the_lines_for_the_log() -> None:
    config = loaded(learner={"threads": "auto"})
    done = with_measured_sizes(config, request(config), ANSWER)
    sizes = ANSWER.sizes(request(config).asked)
    assert sizes is not None
    assert done.config.collector.count == sizes.collectors
    assert done.config.env.num_envs == sizes.num_envs
    assert done.config.learner.threads == sizes.threads
    assert {done.provenance[key] for key in config.auto} == {"measured"}
    assert done.provenance["env.id"] == config.provenance["env.id"]
    assert not done.auto
    assert list(done.notes) == ANSWER.lines(request(config))
    assert done.config.learner.segments_per_update is None, "this algorithm has none"


def test_what_an_update_learns_from_is_settled_with_them() -> None:
    config = loaded(policy={"type": "ppo", "horizon_steps": 16})
    done = with_measured_sizes(config, request(config), ANSWER)
    assert done.config.learner.segments_per_update == 16
    assert 16 % (done.config.collector.count * done.config.env.num_envs) == 0
    threads = loaded(policy={"type": "ppo"}, collector={}, env={"id": "CartPole-v1"}, learner={"threads": "auto"})
    assert with_measured_sizes(threads, request(threads), ANSWER).config.learner.segments_per_update is None, (
        "it does not change"
    )


def test_where_nothing_could_be_measured_the_defaults_stay() -> None:
    config = loaded(policy={"type": "ppo"})
    done = with_measured_sizes(config, request(config), Measurement(problem="it hangs"))
    assert done.config == config.config
    assert done.provenance == config.provenance
    assert not done.auto
    (note,) = done.notes
    assert note == "auto: collector.count, env.num_envs: the defaults, since nothing could be measured: it hangs"


def test_a_resumed_run_keeps_its_numbers(tmp_path: Path) -> None:
    config = loaded(policy={"type": "ppo", "horizon_steps": 16}, learner={"threads": "auto"})
    measured = with_measured_sizes(config, request(config), ANSWER)
    begun = measured.config
    begun = begun.model_copy(update={"learner": begun.learner.model_copy(update={"threads": None})})
    write_configs(tmp_path, begun, measured.provenance)
    resumed = with_former_settings(config, tmp_path)
    assert resumed.config == begun
    assert not resumed.auto
    count, num_envs = begun.collector.count, begun.env.num_envs
    assert resumed.notes == (
        f"auto: collector.count {count}, env.num_envs {num_envs}, learner.threads null, as when the run began",
    )
    numbers = loaded(env={"id": "CartPole-v1"}, collector={})
    assert with_former_settings(numbers, tmp_path) is numbers
    assert not with_former_settings(config, tmp_path / "missing").auto, "resuming it will be refused"
